package loop_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }

// at is the time of events that a test writes by hand.
var at = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// fact is an event of session "s", run "run".
func fact(t testing.TB, turn int, p event.Payload) event.Event {
	t.Helper()
	e, err := event.New(event.Scope{SessionID: "s", RunID: "run", Turn: turn, At: at, Actor: looptest.Tester}, p)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// payloads decodes all events of type P.
func payloads[P event.Payload](t testing.TB, events []event.Event) []P {
	t.Helper()
	var out []P
	for _, e := range events {
		p, err := event.Decode(e)
		if err != nil {
			t.Fatal(err)
		}
		if q, ok := p.(P); ok {
			out = append(out, q)
		}
	}
	return out
}

// only returns the one event of type P.
func only[P event.Payload](t testing.TB, events []event.Event) P {
	t.Helper()
	all := payloads[P](t, events)
	if len(all) != 1 {
		t.Fatalf("%d events of type %T in %v; want one", len(all), *new(P), looptest.Types(events))
	}
	return all[0]
}

// pause waits d of a bubble's time, so that everybody else gets done what can
// be done by then.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// paced plays like m and lets the engine make each chunk durable before the
// next. Inside a bubble only.
func paced(m looptest.Model) looptest.Model {
	return func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		m(ctx, req, func(c stream.Chunk, err error) bool {
			pause(ctx, time.Millisecond)
			return yield(c, err)
		})
	}
}

// strict fails the test on a request that a strict provider would refuse.
func strict(t *testing.T, m looptest.Model) looptest.Model {
	return func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		if err := looptest.CheckRequest(req); err != nil {
			t.Errorf("request of turn %d attempt %d: %v", req.Turn, req.Attempt, err)
		}
		m(ctx, req, yield)
	}
}

// says is a model that answers every request with text.
func says(text string) looptest.Model {
	return looptest.Answers(looptest.Answer(looptest.Text(text), looptest.Finish(stream.FinishStop)))
}

// calls is a model that asks for the tools in its first answer and says done
// in its second.
func calls(names ...string) looptest.Model {
	first := []any{}
	for _, n := range names {
		first = append(first, looptest.ToolCall("p-"+n, n, `{}`))
	}
	return looptest.Answers(
		looptest.Answer(append(first, looptest.Finish(stream.FinishToolCalls))...),
		looptest.Answer(looptest.Text("done"), looptest.Finish(stream.FinishStop)),
	)
}

// checked loads the session's log, checks it and returns it with its state.
func checked(t testing.TB, b *looptest.Bench, sessionID string) ([]event.Event, loop.State) {
	t.Helper()
	events := b.Events(t, sessionID)
	if err := looptest.CheckLog(events); err != nil {
		t.Errorf("log: %v\n%v", err, looptest.Types(events))
	}
	if err := looptest.CheckLedger(events, ledger(b, sessionID)); err != nil {
		t.Errorf("ledger: %v", err)
	}
	return events, loop.FoldAll(loop.State{}, events)
}

// ledger is what was decided in a session.
func ledger(b *looptest.Bench, sessionID string) []loop.LedgerRow {
	return b.Log.(interface {
		Ledger(sessionID string) []loop.LedgerRow
	}).Ledger(sessionID)
}

// rows lists a ledger: gate, hook, action, and what else is worth a word.
func rows(all []loop.LedgerRow) []string {
	var out []string
	for _, r := range all {
		line := fmt.Sprintf("%s %s %s", r.Gate, r.HookID, r.Action)
		if r.Outcome != hooks.OutcomeOK {
			line += " " + string(r.Outcome)
		}
		if !r.Effective {
			line += " void"
		}
		out = append(out, line)
	}
	return out
}

// results lists what the tool messages of a state say.
func results(s loop.State) []hooks.ToolResult {
	var out []hooks.ToolResult
	for _, m := range s.Messages {
		if m.Role == hooks.RoleTool {
			out = append(out, *m.Parts[0].ToolResult)
		}
	}
	return out
}
