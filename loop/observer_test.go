package loop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// watches is an observer whose state is that of one attempt.
func watches(id string, fresh func() looptest.Observer) stream.Registration {
	return looptest.Watches(id, fresh)
}

// ofText asks about the deltas of the text and lets everything else pass.
func ofText(see func(c stream.Chunk) stream.Verdict) func() looptest.Observer {
	return func() looptest.Observer {
		return func(c stream.Chunk) stream.Verdict {
			if c.Kind != stream.KindDelta || c.Lane != stream.LaneText {
				return stream.Continue()
			}
			return see(c)
		}
	}
}

func amended(c stream.Chunk, text string) stream.Verdict {
	c.Kind, c.Text = stream.KindDelta, text
	return stream.Amend(c)
}

var (
	// numbers hides a number.
	numbers = watches("numbers", ofText(func(c stream.Chunk) stream.Verdict {
		return amended(c, strings.ReplaceAll(c.Text, "forty-two", "[n]"))
	}))
	// drops empties what says "is".
	drops = watches("drops", ofText(func(c stream.Chunk) stream.Verdict {
		if strings.Contains(c.Text, "is") {
			return amended(c, "")
		}
		return stream.Continue()
	}))
	// mutes leaves nothing.
	mutes = watches("mutes", ofText(func(c stream.Chunk) stream.Verdict { return amended(c, "") }))
	// halts stops before the number.
	halts = watches("halts", ofText(func(c stream.Chunk) stream.Verdict {
		if strings.Contains(c.Text, "forty-two") {
			return stream.Stop("numbers are not to be said")
		}
		return stream.Continue()
	}))
	// adds has something to say at the end of the text.
	adds = watches("adds", func() looptest.Observer {
		said := false
		return func(c stream.Chunk) stream.Verdict {
			if c.Kind == stream.KindEnd && c.Lane == stream.LaneText && !said {
				said = true
				return amended(c, " (checked)")
			}
			return stream.Continue()
		}
	})
	// holds gives all of the text back at its end.
	holds = watches("holds", func() looptest.Observer {
		held := ""
		return func(c stream.Chunk) stream.Verdict {
			switch {
			case c.Lane != stream.LaneText || c.Kind == stream.KindEnd && held == "":
				return stream.Continue()
			case c.Kind == stream.KindEnd:
				text := held
				held = ""
				return amended(c, text)
			}
			held += c.Text
			return stream.Hold()
		}
	})
	slows = watches("slows", ofText(func(stream.Chunk) stream.Verdict { return stream.Throttle(10 * time.Millisecond) }))
	// counts says with each piece of text how long it is.
	counts = watches("counts", ofText(func(c stream.Chunk) stream.Verdict {
		return stream.Emit("lengths", fmt.Appendf(nil, `{ "bytes": %d }`, len(c.Text)))
	}))
)

// answers42 says a number.
var answers42 = looptest.Answers(looptest.Answer(
	looptest.Reasoning("let me think"), looptest.Text("the answer "), looptest.Text("is "), looptest.Text("forty-two"), looptest.Text(", they say"),
	looptest.Finish(stream.FinishStop),
))

// TestWhatObserversMakeOfAnAnswerIsAllThatThereIs: what is shown live, what is
// replayed, the conversation and the next request of the model are the same.
func TestWhatObserversMakeOfAnAnswerIsAllThatThereIs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		observers []stream.Registration
		want      string
		gone      string // what is nowhere
		row       string
	}{
		"amends":            {[]stream.Registration{numbers}, "the answer is [n], they say", "forty-two", "OnEnd numbers transform [text]"},
		"empties a chunk":   {[]stream.Registration{drops}, "the answer forty-two, they say", "is ", "OnEnd drops transform [text]"},
		"empties all":       {[]stream.Registration{mutes}, "", "answer", "OnEnd mutes transform [text]"},
		"stops":             {[]stream.Registration{halts}, "the answer is ", "forty-two", "OnEnd halts continue [],OnChunk halts stop []"},
		"adds":              {[]stream.Registration{adds}, "the answer is forty-two, they say (checked)", "", "OnEnd adds transform [text]"},
		"holds":             {[]stream.Registration{holds}, "the answer is forty-two, they say", "", "OnEnd holds transform [text]"},
		"throttles":         {[]stream.Registration{slows}, "the answer is forty-two, they say", "", "OnEnd slows continue []"},
		"emits":             {[]stream.Registration{counts}, "the answer is forty-two, they say", "", "OnEnd counts continue []"},
		"one after another": {[]stream.Registration{numbers, holds, adds, halts}, "the answer is [n], they say (checked)", "forty-two", "OnEnd numbers transform [text],OnEnd holds transform [text],OnEnd adds transform [text],OnEnd halts continue []"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var requests []loop.ModelRequest
				var logged bytes.Buffer
				b := looptest.NewBench(looptest.NewLog(), paced(strict(t, func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
					mu.Lock()
					requests = append(requests, req)
					mu.Unlock()
					answers42(ctx, req, yield)
				})))
				b.Engine.Logger = slog.New(slog.NewTextHandler(&logged, nil))
				b.Observe(t, c.observers...)
				id := b.Session(t)
				if run := b.Advance(t, b.Start(t, id, "hi")); run.Status != loop.RunCompleted {
					t.Fatalf("the run is %+v", run)
				}
				events, s := checked(t, b, id)
				if got := textOf(shownLive(t, events), stream.LaneText); got != c.want {
					t.Errorf("live: %q; want %q", got, c.want)
				}
				if got := textOf(shownLive(t, events), stream.LaneReasoning); got != "let me think" {
					t.Errorf("live reasoning: %q", got)
				}
				if got := s.Messages[len(s.Messages)-1].Text(); got != c.want {
					t.Errorf("history: %q; want %q", got, c.want)
				}
				if got := strings.Join(summaries(ledger(b, id)), ","); got != c.row {
					t.Errorf("the ledger says %q; want %q", got, c.row)
				}
				b.Advance(t, b.Start(t, id, "and then?"))
				said := ""
				for _, m := range requests[1].Messages {
					if m.Role == hooks.RoleAssistant {
						said += m.Text()
					}
				}
				if said != c.want {
					t.Errorf("the next request has %q; want %q", said, c.want)
				}
				nowhere(t, b, id, logged.String(), c.gone)
			})
		})
	}
}

// shownLive is what a client that follows is shown of all answers.
func shownLive(t *testing.T, events []event.Event) []loop.PartialBlock {
	t.Helper()
	var out []loop.PartialBlock
	for _, d := range payloads[event.AssistantDelta](t, events) {
		out = append(out, loop.PartialBlock{Lane: d.Lane, Text: d.Text})
	}
	return out
}

func textOf(blocks []loop.PartialBlock, lane stream.Lane) string {
	text := ""
	for _, b := range blocks {
		if b.Lane == lane {
			text += b.Text
		}
	}
	return text
}

// summaries are the rows of observers, with the lanes in which they changed
// something.
func summaries(rows []loop.LedgerRow) []string {
	var out []string
	for _, r := range rows {
		if r.HookKind == hooks.KindObserver {
			out = append(out, fmt.Sprintf("%s %s %s %v", r.Gate, r.HookID, r.Action, r.FieldsChanged))
		}
	}
	return out
}

// nowhere looks for a text in all that is kept: events, the ledger and the log of
// the worker.
func nowhere(t *testing.T, b *looptest.Bench, id, logged, text string) {
	t.Helper()
	if text == "" {
		return
	}
	kept := logged
	for _, e := range b.Events(t, id) {
		if e.Type == event.TypeAssistantDelta || e.Type == event.TypeAssistantCompleted || e.Type == event.TypeAssistantStopped {
			kept += string(e.Payload) + "\n"
		}
	}
	for _, r := range ledger(b, id) {
		kept += fmt.Sprintf("%s %s %s %s\n", r.Payload.Reason, r.Payload.Patch, r.Payload.Annotations, r.ReasonCode)
	}
	if strings.Contains(kept, text) {
		t.Errorf("%q is in what is kept:\n%s", text, kept)
	}
}

// TestEmissionsAreCommittedWithTheirChunk, behind it, and keep their numbers.
func TestEmissionsAreCommittedWithTheirChunk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := looptest.NewLog()
		var appends []loop.Append
		log.FailAppends(func(a loop.Append) error {
			appends = append(appends, a)
			return nil
		})
		b := looptest.NewBench(log, paced(looptest.Answers(looptest.Answer(
			looptest.Text("one"), looptest.Reasoning("hm"), looptest.Text("three"), looptest.Text(""), looptest.Finish(stream.FinishStop),
		))))
		b.Observe(t, counts)
		j := b.Start(t, b.Session(t), "hi")
		b.Advance(t, j)
		var got []string
		for _, a := range appends {
			line := ""
			for _, e := range a.Events {
				p, _ := event.Decode(e)
				switch p := p.(type) {
				case event.AssistantDelta:
					line += p.Text + " "
				case event.Emission:
					line += fmt.Sprintf("%d.%s/%s#%d%s ", p.Attempt, p.Observer, p.Channel, p.Chunk, p.Envelope)
				case event.AssistantCompleted:
					line += "end"
				}
			}
			if line != "" {
				got = append(got, line)
			}
		}
		want := []string{`one 1.counts/lengths#1{"bytes":3} `, "hm ", `three 1.counts/lengths#3{"bytes":5} `, `1.counts/lengths#4{"bytes":0} `, "end"}
		if !slices.Equal(got, want) {
			t.Errorf("appended %q; want %q", got, want)
		}
		checked(t, b, j.SessionID)
	})
}

// TestTextThatBecomesAToolCallIsOne: the call is run, and its arguments begin with
// the text of the chunk that opens it.
func TestTextThatBecomesAToolCallIsOne(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), looptest.Answers(
		looptest.Answer(looptest.Text("look: "), looptest.Text("<look/>"), looptest.Finish(stream.FinishStop)),
		looptest.Answer(looptest.Text("done"), looptest.Finish(stream.FinishStop)),
	), looptest.Says("look", "seen"))
	b.Observe(t, watches("dialect", ofText(func(c stream.Chunk) stream.Verdict {
		if c.Text != "<look/>" {
			return stream.Continue()
		}
		return stream.Amend(stream.Chunk{Kind: stream.KindToolCall, BlockID: "mine", Text: `{"n":9007199254740993}`, Call: stream.CallStart{Name: "look"}})
	})))
	j := b.Start(t, b.Session(t), "hi")
	if run := b.Advance(t, j); run.Status != loop.RunCompleted || len(run.Turns) != 2 {
		t.Fatalf("the run is %+v", run)
	}
	events, s := checked(t, b, j.SessionID)
	if p := only[event.ToolProposed](t, events); p.Name != "look" || p.Arguments != `{"n":9007199254740993}` {
		t.Errorf("proposed %+v", p)
	}
	if got := results(s); len(got) != 1 || got[0].Content != "seen" {
		t.Errorf("results %+v", got)
	}
}

// TestACallOfWhichAllIsHeldHasShownNothing: when it fails it is made again, with
// observers that know nothing of the first attempt.
func TestACallOfWhichAllIsHeldHasShownNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failed := false
		b := looptest.NewBench(looptest.NewLog(), paced(func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
			if failed {
				says("again")(ctx, req, yield)
				return
			}
			failed = true
			fails(&loop.ModelError{Message: "busy", Retryable: true}, looptest.Text("first"))(ctx, req, yield)
		}))
		agent := b.Engine.Agents["demo"]
		agent.Retry.Attempts = 2
		b.Engine.Agents["demo"] = agent
		b.Observe(t, holds)
		j := b.Start(t, b.Session(t), "hi")
		b.Advance(t, j)
		events, s := checked(t, b, j.SessionID)
		if got := s.Messages[1].Text(); got != "again" {
			t.Errorf("the answer is %q", got)
		}
		only[event.AssistantDiscarded](t, events)
		all := ledger(b, j.SessionID)
		if got := summaries(all); !slices.Equal(got, []string{"OnEnd holds transform [text]", "OnEnd holds transform [text]"}) || all[0].Attempt != 1 || all[1].Attempt != 2 || all[0].ID == all[1].ID {
			t.Errorf("the ledger has %q", got)
		}
	})
}

// TestRunsShareNoStateOfObservers: many runs at a time, each of whose observers
// counts for itself.
func TestRunsShareNoStateOfObservers(t *testing.T) {
	t.Parallel()
	rounds := 50
	if os.Getenv("AGENTD_FULL_SIZE") != "" {
		rounds = 1_000
	}
	b := looptest.NewBench(looptest.NewLog(), looptest.Answers(looptest.Answer(
		looptest.Text("a"), looptest.Text("b"), looptest.Text("c"), looptest.Finish(stream.FinishStop),
	)))
	b.Observe(t, watches("numbered", func() looptest.Observer {
		n := 0
		return func(c stream.Chunk) stream.Verdict {
			if c.Kind != stream.KindDelta {
				return stream.Continue()
			}
			n++
			return amended(c, fmt.Sprintf("%s%d", c.Text, n))
		}
	}))
	for range rounds {
		jobs := []loop.Job{b.Start(t, b.Session(t), "hi"), b.Start(t, b.Session(t), "hi")}
		var wg sync.WaitGroup
		for _, j := range jobs {
			wg.Go(func() {
				if err := b.Engine.Advance(t.Context(), j, loop.Holder{WorkerID: looptest.NewID()}); err != nil {
					t.Errorf("advance: %v", err)
				}
			})
		}
		wg.Wait()
		for _, j := range jobs {
			s, err := b.Log.Load(t.Context(), looptest.Tenant, j.SessionID, j.RunID)
			if err != nil || s.Messages[1].Text() != "a1b2c3" {
				t.Fatalf("the answer is %+v, %v", s.Messages, err)
			}
		}
	}
}

// TestARowOfAnObserverHasCountsOnly and is bound to what was committed with it.
func TestARowOfAnObserverHasCountsOnly(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), answers42)
	b.Observe(t, numbers, halts)
	j := b.Start(t, b.Session(t), "hi")
	b.Advance(t, j)
	events, _ := checked(t, b, j.SessionID)
	all := ledger(b, j.SessionID)
	if len(all) != 2 {
		t.Fatalf("%d rows", len(all))
	}
	var did map[string]any
	if err := json.Unmarshal([]byte(all[0].Payload.Annotations), &did); err != nil {
		t.Fatal(err)
	}
	for k, want := range map[string]any{"chunks": 6.0, "bytes": 45.0, "bytes_out": 39.0, "amended": 4.0, "emitted": 0.0, "held": 0.0, "throttled": 0.0, "paused_ms": 0.0} {
		if did[k] != want {
			t.Errorf("%s is %v; want %v in %s", k, did[k], want, all[0].Payload.Annotations)
		}
	}
	r := all[0]
	if r.Gate != hooks.GateOnEnd || r.HookVersion != "1" || r.Phase != hooks.PhaseMutate || r.Index != 1 || r.ChainLength != 2 || r.Turn != 1 || r.Subject != "1" || r.Attempt != 1 ||
		r.HookSetDigest != b.Engine.Asker.HookSet || r.FailurePolicy != hooks.FailOpen || r.FailedOpen || !r.Effective || r.InputBytes != 45 || r.OutputBytes != 39 {
		t.Errorf("the row is %+v", r)
	}
	if started := only[event.RunStarted](t, events); started.HookSet != r.HookSetDigest {
		t.Errorf("the claim pins %q", started.HookSet)
	}
	if at := events[r.EventSeq-1].Type; at != event.TypeAssistantCompleted {
		t.Errorf("the row is committed with %s", at)
	}
}
