package loop_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// TestTheModelSeesAMessageWhenItsRunHasBegun: not before, and behind the answer
// to the one before, although the log has it earlier.
func TestTheModelSeesAMessageWhenItsRunHasBegun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sent [][]string
		b := looptest.NewBench(looptest.NewLog(), nil, looptest.Says("look", "seen"))
		var enqueue func()
		answers := calls("look")
		agent := b.Engine.Agents["demo"]
		agent.Model = looptest.Model(func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
			var texts []string
			for _, m := range req.Messages {
				texts = append(texts, string(m.Role)+" "+m.Text())
			}
			sent = append(sent, texts)
			enqueue()
			answers(ctx, req, yield)
		})
		b.Engine.Agents["demo"] = agent
		id := b.Session(t)
		first := b.Start(t, id, "one")
		var second loop.Job
		enqueue = func() {
			enqueue = func() {}
			second = b.Say(t, id, "two", event.PolicyEnqueue)
		}
		b.Advance(t, first)
		b.Advance(t, second)
		want := [][]string{
			{"user one"},
			{"user one", "assistant ", "tool "},
			{"user one", "assistant ", "tool ", "assistant done", "user two"},
			{"user one", "assistant ", "tool ", "assistant done", "user two", "assistant ", "tool "},
		}
		if !reflect.DeepEqual(sent, want) {
			t.Errorf("the model was sent %q; want %q", sent, want)
		}
		checked(t, b, id)
	})
}

// TestAMessageIsCheckedWhenItArrives: hooks are asked once, and what they decided
// is stored with the message.
func TestAMessageIsCheckedWhenItArrives(t *testing.T) {
	t.Parallel()
	b, asked := onInput(says("ok"), hooks.BeforeInputResult{Action: hooks.ActionContinue})
	id := b.Session(t)
	first := b.Start(t, id, "one")
	second := b.Say(t, id, "two", event.PolicyEnqueue)
	events, _ := checked(t, b, id)
	if rec := ledger(b, id); len(rec) != 2 || rec[1].EventSeq != events[len(events)-1].Seq {
		t.Errorf("ledger %v; want two decisions, the last with run.created", rows(rec))
	}
	b.Advance(t, first)
	b.Advance(t, second)
	checked(t, b, id)
	if asked.Load() != 2 {
		t.Errorf("asked %d times; want 2", asked.Load())
	}
}

func TestTheQueueIsBounded(t *testing.T) {
	t.Parallel()
	for _, gate := range []bool{false, true} {
		t.Run(fmt.Sprintf("gate=%v", gate), func(t *testing.T) {
			t.Parallel()
			b, _ := onInput(says("ok"), hooks.BeforeInputResult{Action: hooks.ActionContinue})
			if !gate {
				quiet(b)
			}
			id := b.Session(t)
			first := b.Start(t, id, "one")
			var last loop.Job
			for i := range loop.MaxEnqueued {
				last = b.Say(t, id, fmt.Sprint("more ", i), event.PolicyEnqueue)
			}
			before := len(b.Events(t, id))
			start := func() (loop.StartedRun, error) {
				return b.Commands.StartRun(t.Context(), loop.StartRun{
					TenantID: looptest.Tenant, SessionID: id, Text: "one more", Policy: event.PolicyEnqueue, IdempotencyKey: "k", Actor: looptest.Tester,
				})
			}
			_, err := start()
			var full *loop.BusyError
			if !errors.Is(err, loop.ErrQueueFull) || errors.Is(err, loop.ErrBusy) || !errors.As(err, &full) || full.ActiveRunID != first.RunID || !strings.Contains(err.Error(), "64 runs are enqueued") {
				t.Errorf("%v; want ErrQueueFull", err)
			}
			events, _ := checked(t, b, id)
			if got := payloads[event.InputRejected](t, events); gate != (len(got) == 1) || gate && got[0].Policy != "enqueue" || !gate && len(events) != before {
				t.Errorf("rejected %+v; want it recorded if a hook was asked", got)
			}
			if err := cancel(t, b, last); err != nil {
				t.Fatal(err)
			}
			if run, err := start(); err != nil || !run.Enqueued || run.Repeated {
				t.Errorf("when there is room: %+v, %v; want a run", run, err)
			}
		})
	}
}
