package loop_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// fails is a model that yields chunks and then err, if it is not nil.
func fails(err error, chunks ...stream.Chunk) looptest.Model {
	return func(_ context.Context, _ loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		for _, c := range chunks {
			if !yield(c, nil) {
				return
			}
		}
		if err != nil {
			yield(stream.Chunk{}, err)
		}
	}
}

func TestModelFailures(t *testing.T) {
	t.Parallel()
	const unknown = "the model call failed; the worker's log has the cause"
	refused := &loop.ModelError{Status: 429, Code: "rate_limit", Message: "too many requests", Err: errors.New("secret header")}
	orphan := stream.Chunk{Kind: stream.KindDelta, Lane: stream.LaneToolArguments, BlockID: "7", Text: "{"}
	for name, c := range map[string]struct {
		model  looptest.Model
		reason event.FailReason
		text   string // the error that is stored
		shown  string
	}{
		"before any output":       {fails(refused), event.FailModel, "too many requests", ""},
		"after some output":       {fails(refused, looptest.Text("once "), looptest.Text("upon")), event.FailModel, "too many requests", "once upon"},
		"wrapped by an adapter":   {fails(fmt.Errorf("secret prefix: %w", refused)), event.FailModel, "too many requests", ""},
		"of unknown kind":         {fails(errors.New("secret of the connection"), looptest.Text("a")), event.FailModel, unknown, "a"},
		"cut off after output":    {fails(nil, looptest.Text("once")), event.FailIncomplete, "ended in the middle", "once"},
		"cut off before output":   {fails(nil), event.FailIncomplete, "ended in the middle", ""},
		"cut off in a call":       {fails(nil, looptest.ToolCall("a", "look", "{}")...), event.FailIncomplete, "ended in the middle", ""},
		"a call that never began": {fails(nil, looptest.Text("a"), orphan, looptest.Text("b")), event.FailModel, "arguments for a call that it had not opened", "a"},
		"an odd error text":       {fails(&loop.ModelError{Message: "a\x00b\xff"}), event.FailModel, "a\uFFFDb\uFFFD", ""},
		"a long error text":       {fails(&loop.ModelError{Message: strings.Repeat("long ", 1000)}), event.FailModel, "long long", ""},
		"a panic": {func(_ context.Context, _ loop.ModelRequest, yield func(stream.Chunk, error) bool) {
			yield(looptest.Text("a"), nil)
			panic("secret of the adapter")
		}, event.FailModel, unknown, "a"},
		"a panic at once": {func(context.Context, loop.ModelRequest, func(stream.Chunk, error) bool) {
			panic("secret of the adapter")
		}, event.FailModel, unknown, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := looptest.NewBench(looptest.NewLog(), c.model)
			j := b.Start(t, b.Session(t), "hi")
			run := b.Advance(t, j)
			if run.Status != loop.RunFailed || run.Reason != string(c.reason) || !strings.Contains(run.Error, c.text) || len(run.Error) > 2000 {
				t.Errorf("run %+v; want it failed: %s, %q", run, c.reason, c.text)
			}
			events, s := checked(t, b, j.SessionID)
			stop := only[event.AssistantStopped](t, events)
			if stop.Reason != string(c.reason) || (stop.MessageID != "") != (c.shown != "") {
				t.Errorf("stopped %+v", stop)
			}
			if c.shown == "" && len(s.Messages) != 1 || c.shown != "" && (s.Messages[1].Text() != c.shown || !s.Messages[1].Partial) {
				t.Errorf("messages %+v; want the user's and a partial %q", s.Messages, c.shown)
			}
			for _, e := range events {
				if strings.Contains(string(e.Payload), "secret") {
					t.Errorf("%s tells a secret: %s", e.Type, e.Payload)
				}
			}
			goesOn(t, b, j.SessionID)
		})
	}
}

func TestModelTextThatIsNotTextIsMarked(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]error{"completed": nil, "failed": &loop.ModelError{Message: "no\x00"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			chunks := []stream.Chunk{looptest.Text("caf\xe9"), looptest.Text("\x00"), looptest.Reasoning("fine")}
			if last == nil {
				chunks = append(chunks, looptest.Finish(stream.FinishStop))
			}
			b := looptest.NewBench(looptest.NewLog(), fails(last, chunks...))
			j := b.Start(t, b.Session(t), "hi")
			b.Advance(t, j)
			events, s := checked(t, b, j.SessionID)
			if got := s.Messages[1].Text(); got != "caf\uFFFD\uFFFD" {
				t.Errorf("message %q", got)
			}
			for _, d := range payloads[event.AssistantDelta](t, events) {
				if d.Sanitized != (d.Lane == stream.LaneText) {
					t.Errorf("delta %+v; want the mark on the text and not on the reasoning", d)
				}
			}
			if last == nil {
				if !only[event.AssistantCompleted](t, events).Sanitized {
					t.Error("the answer is not marked")
				}
				return
			}
			if !only[event.AssistantStopped](t, events).Sanitized || !only[event.RunFailed](t, events).Sanitized {
				t.Error("the stopped answer or the failure is not marked")
			}
		})
	}
}

func TestCancelledTextThatIsNotTextIsMarked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := looptest.NewBench(looptest.NewLog(), paced(stalls(nil, looptest.Text("a\xff"), looptest.Text("b"))))
		j := b.Start(t, b.Session(t), "hi")
		w := work(t, b, j)
		pause(t.Context(), time.Second)
		events, _ := cancelledNow(t, b, j, w, 0)
		if got := only[event.AssistantStopped](t, events); !got.Sanitized || got.Parts[0].Text != "a\uFFFDb" {
			t.Errorf("stopped %+v; want the mark", got)
		}
	})
}

// TestSlowLogMergesText: what arrives while an append is under way goes into
// the next one.
func TestSlowLogMergesText(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var chunks []any
		var want strings.Builder
		for i := range 500 {
			fmt.Fprintf(&want, "%d ", i)
			chunks = append(chunks, looptest.Text(fmt.Sprintf("%d ", i)))
		}
		model := looptest.Answers(looptest.Answer(append(chunks, looptest.Finish(stream.FinishStop))...))
		b := looptest.NewBench(looptest.NewLog(), paced(model))
		hooked(b, func(a loop.Append) {
			if a.Deltas {
				pause(context.WithoutCancel(t.Context()), 100*time.Millisecond)
			}
		})
		j := b.Start(t, b.Session(t), "hi")
		b.Advance(t, j)
		events, s := checked(t, b, j.SessionID)
		if n := len(payloads[event.AssistantDelta](t, events)); n < 3 || n > 8 {
			t.Errorf("%d deltas for 500 chunks in 500 ms and 100 ms per append; want about 6", n)
		}
		if got := s.Messages[1].Text(); got != want.String() {
			t.Errorf("text of %d bytes; want %d", len(got), want.Len())
		}
	})
}

func TestFirstTextIsDurableAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := looptest.NewBench(looptest.NewLog(), stalls(nil, looptest.Text("h")))
		var flagged []bool
		hooked(b, func(a loop.Append) { flagged = append(flagged, a.Deltas) })
		j := b.Start(t, b.Session(t), "hi")
		w := work(t, b, j)
		synctest.Wait()
		if got := only[event.AssistantDelta](t, b.Events(t, j.SessionID)); got.Text != "h" || got.Attempt != 1 || got.BlockID != "0" {
			t.Errorf("delta %+v", got)
		}
		if !reflect.DeepEqual(flagged, []bool{false, true}) {
			t.Errorf("appends flagged as deltas only: %v; want the second", flagged)
		}
		w.kill()
		_ = w.wait(t)
	})
}

// TestModelIsNotReadWhileTheLogIsBehind: at most about a megabyte of an answer
// is in memory and not durable.
func TestModelIsNotReadWhileTheLogIsBehind(t *testing.T) {
	t.Parallel()
	const piece, pieces = 64 << 10, 64
	synctest.Test(t, func(t *testing.T) {
		var read atomic.Int64
		model := looptest.Model(func(_ context.Context, _ loop.ModelRequest, yield func(stream.Chunk, error) bool) {
			for range pieces {
				if !yield(looptest.Text(strings.Repeat("x", piece)), nil) {
					return
				}
				read.Add(piece)
			}
			yield(looptest.Finish(stream.FinishStop), nil)
		})
		b := looptest.NewBench(looptest.NewLog(), model)
		open := make(chan struct{})
		hooked(b, func(a loop.Append) {
			if a.Deltas {
				<-open
			}
		})
		j := b.Start(t, b.Session(t), "hi")
		w := work(t, b, j)
		synctest.Wait()
		if n := read.Load(); n < 1<<20 || n > 2<<20+2*piece {
			t.Errorf("%d bytes were read while the log stood still; want about a megabyte", n)
		}
		// What is durable makes room, again and again.
		for range 3 {
			before := read.Load()
			open <- struct{}{}
			synctest.Wait()
			if n := read.Load() - before; n < 1<<19 && read.Load() < piece*pieces {
				t.Errorf("%d bytes were read once an append went through; want about a megabyte", n)
			}
		}
		close(open)
		if err := w.wait(t); err != nil {
			t.Fatal(err)
		}
		_, s := checked(t, b, j.SessionID)
		if got := len(s.Messages[1].Text()); got != piece*pieces {
			t.Errorf("%d bytes in the message; want %d", got, piece*pieces)
		}
	})
}

func TestModelThatWaitsForRoomStopsWithTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		left := make(chan struct{})
		model := looptest.Model(func(_ context.Context, _ loop.ModelRequest, yield func(stream.Chunk, error) bool) {
			defer close(left)
			for yield(looptest.Text(strings.Repeat("x", 1<<20)), nil) {
			}
		})
		log := looptest.NewLog()
		b := looptest.NewBench(log, model)
		log.FailAppends(func(a loop.Append) error {
			if a.Deltas {
				return loop.ErrUnavailable
			}
			return nil
		})
		j := b.Start(t, b.Session(t), "hi")
		w := work(t, b, j)
		pause(t.Context(), time.Minute)
		w.kill()
		if err := w.wait(t); !errors.Is(err, context.Canceled) {
			t.Errorf("the killed worker returned %v", err)
		}
		<-left
	})
}

// TestModelIsReleasedBeforeTheEngineGoesOn: whatever ends the reading early,
// the adapter's own clean-up has run when Advance returns.
func TestModelIsReleasedBeforeTheEngineGoesOn(t *testing.T) {
	t.Parallel()
	orphan := stream.Chunk{Kind: stream.KindDelta, Lane: stream.LaneToolArguments, BlockID: "7", Text: "{"}
	for name, c := range map[string]struct {
		chunk stream.Chunk
		stop  func(t *testing.T, b *looptest.Bench, j loop.Job, w *working)
	}{
		"senseless chunk": {orphan, func(*testing.T, *looptest.Bench, loop.Job, *working) {}},
		"cancel": {looptest.Text("a"), func(t *testing.T, b *looptest.Bench, j loop.Job, _ *working) {
			if err := cancel(t, b, j); err != nil {
				t.Error(err)
			}
		}},
		"interrupt":  {looptest.Text("a"), func(_ *testing.T, _ *looptest.Bench, _ loop.Job, w *working) { close(w.interrupt) }},
		"death":      {looptest.Text("a"), func(_ *testing.T, _ *looptest.Bench, _ loop.Job, w *working) { w.kill() }},
		"lost lease": {looptest.Text("a"), func(t *testing.T, b *looptest.Bench, j loop.Job, w *working) { buried(t, b, j, w.id) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var released atomic.Bool
				model := looptest.Model(func(ctx context.Context, _ loop.ModelRequest, yield func(stream.Chunk, error) bool) {
					defer released.Store(true)
					if yield(c.chunk, nil) {
						<-ctx.Done()
						pause(t.Context(), 100*time.Millisecond)
					}
				})
				b := looptest.NewBench(looptest.NewLog(), model)
				j := b.Start(t, b.Session(t), "hi")
				w := work(t, b, j)
				synctest.Wait()
				c.stop(t, b, j, w)
				_ = w.wait(t)
				if !released.Load() {
					t.Error("the engine went on while the adapter held its connection")
				}
				checked(t, b, j.SessionID)
			})
		})
	}
}
