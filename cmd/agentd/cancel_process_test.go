package main

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/model/openai/openaitest"
)

// cancelFleet is a fleet whose model is a provider that answers each message as
// its test says. People ask one process for a cancel, and others do the work.
type cancelFleet struct {
	*fleet
	front    *server
	provider *openaitest.Provider
	notified func() int

	mu      sync.Mutex
	answers map[string]openaitest.Answer
}

// newCancelFleet starts the process that people ask, and workers. In a deaf one
// nobody is notified of anything.
func newCancelFleet(t *testing.T, deaf bool, workers int) *cancelFleet {
	t.Helper()
	f := &cancelFleet{fleet: newFleet(t), provider: openaitest.New(t), answers: map[string]openaitest.Answer{}}
	f.provider.Respond(func(r openaitest.Request) openaitest.Answer {
		f.mu.Lock()
		defer f.mu.Unlock()
		if a, ok := f.answers[lastUser(r.Chat)]; ok {
			return a
		}
		return openaitest.Text("Here again.")
	})
	f.env = append(slices.DeleteFunc(f.env, func(v string) bool { return strings.HasPrefix(v, "AGENTD_SCRIPT=") }),
		"OPENAI_BASE_URL="+f.provider.URL, "AGENTD_TOOL_PERMISSIONS="+toolPay+"=ask")
	if deaf {
		execute(t, f.db, mute)
		u, err := url.Parse(f.db.URL)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		q.Set("search_path", "mute,pg_catalog")
		u.RawQuery = q.Encode()
		f.env = append(f.env, "AGENTD_DATABASE_URL="+u.String()) // the last one counts
	}
	f.notified = ear(t, f.db)
	f.spawn(t, "--roles", "api")
	for range workers {
		f.spawn(t, "--roles", "worker")
	}
	f.ready(t)
	f.front = f.alive[0]
	return f
}

// cancelled is a run on its way to its cancel.
type cancelled struct {
	*cancelFleet
	say, session, run string
	want              cancelEnd
}

// cancelEnd is what is left of a cancelled run.
type cancelEnd struct {
	// partial begins what is kept of the answer, "" if nothing is. In a stream
	// that goes on it may be longer.
	partial string
	calls   []hooks.ResultReason
	// effects is how often tools took effect, at the cancel and at the end.
	effects int
	// asked says that the provider was asked, and is left.
	asked bool
	// outside says that the message never was in the conversation.
	outside bool
}

// begin starts the run, which the provider answers so.
func (f *cancelFleet) begin(t *testing.T, say string, a openaitest.Answer, want cancelEnd) *cancelled {
	t.Helper()
	f.mu.Lock()
	f.answers[say] = a
	f.mu.Unlock()
	c := &cancelled{cancelFleet: f, say: say, session: newSession(t, f.front), want: want}
	c.run, _ = startRun(t, f.front, c.session, say)
	return c
}

// awaitSQL waits for a row; $run stands for the run.
func (c *cancelled) awaitSQL(t *testing.T, condition string) {
	t.Helper()
	awaitRow(t, c.db, `SELECT 'x' WHERE EXISTS (`+strings.ReplaceAll(condition, "$run", "'"+c.run+"'")+`)`)
}

// awaitAsked returns the n-th request that the provider got for this run.
func (c *cancelled) awaitAsked(t *testing.T, n int) openaitest.Request {
	t.Helper()
	for seen := 1; ; seen++ {
		r := c.provider.Await(t, seen)
		if lastUser(r.Chat) == c.say {
			if n--; n == 0 {
				return r
			}
		}
	}
}

// cancel asks for the cancel, waits for the end and holds what there is to hold.
func (c *cancelled) cancel(t *testing.T) {
	t.Helper()
	cancelRun(t, c.front, c.run)
	if status := c.awaitEnd(t, c.run); status != "cancelled" {
		t.Fatalf("the run is %s", status)
	}
	facts := ofRun(checkSession(t, c.fleet, c.session), c.run)
	checkEnd(t, facts, event.TypeRunCancelled)
	if p := only[event.RunCancelled](t, facts); p.Reason != "no longer wanted" {
		t.Errorf("cancelled for %q", p.Reason)
	}
	c.checkKept(t, facts)
	var reasons []hooks.ResultReason
	for _, p := range decoded[event.ToolResult](t, facts) {
		reasons = append(reasons, p.Reason)
	}
	if !slices.Equal(reasons, c.want.calls) {
		t.Errorf("the calls' results are %q, want %q", reasons, c.want.calls)
	}
	if n := scalar[int](t, c.db, `
		SELECT (SELECT count(*) FROM agentd.tool_calls WHERE run_id = $1 AND result_message_id IS NULL)
			+ (SELECT count(*) FROM agentd.approvals WHERE run_id = $1 AND status = 'pending')`, c.run); n != 0 {
		t.Errorf("%d calls and approvals are left open", n)
	}
	if c.want.asked {
		c.awaitLeft(t)
	}
}

// awaitLeft returns when the provider's answers to the run have ended: it closed
// the connection, since they would go on for ever.
func (c *cancelled) awaitLeft(t *testing.T) {
	t.Helper()
	asked := 0
	for _, r := range c.provider.Requests() {
		if lastUser(r.Chat) != c.say {
			continue
		}
		asked++
		select {
		case <-r.Ended():
		case <-time.After(patience):
			t.Error("the provider is still connected")
		}
	}
	if asked == 0 {
		t.Error("the provider was not asked")
	}
}

// checkKept: the one answer that was cut off is kept as it was shown, and
// marked.
func (c *cancelled) checkKept(t *testing.T, facts []fact) {
	t.Helper()
	shown := ""
	for _, p := range decoded[event.Payload](t, facts) {
		switch p := p.(type) {
		case event.AssistantDiscarded:
			shown = ""
		case event.AssistantDelta:
			if p.Lane == stream.LaneText {
				shown += p.Text
			}
		}
	}
	kept := scalar[string](t, c.db, `
		SELECT coalesce(string_agg(part ->> 'text', ''), '') FROM agentd.messages AS m, json_array_elements(m.parts) AS part
		WHERE m.run_id = $1 AND m.role = 'assistant' AND m.partial AND m.replaced_seq IS NULL`, c.run)
	if kept != shown || !strings.HasPrefix(kept, c.want.partial) || (kept == "") != (c.want.partial == "") {
		t.Errorf("kept is %q and shown was %q, want it to begin with %q", kept, shown, c.want.partial)
	}
}

// goesOn: the session takes another message, whose request the provider does not
// refuse; and nothing is done again.
func (c *cancelled) goesOn(t *testing.T) {
	t.Helper()
	next := "next after " + c.say
	run, _ := startRun(t, c.front, c.session, next)
	if status := c.awaitEnd(t, run); status != "completed" {
		t.Errorf("the next run is %s", status)
	}
	var last openaitest.Request
	for _, r := range c.provider.Requests() {
		if lastUser(r.Chat) == next {
			last = r
		}
	}
	told := ""
	for _, m := range last.Chat.Messages {
		told += m.Role + ": " + m.Text() + "\n"
	}
	if strings.Contains(told, "user: "+c.say+"\n") == c.want.outside || !strings.Contains(told, c.want.partial) ||
		len(pairs(last.Chat)) != len(c.want.calls) {
		t.Errorf("the next message is sent behind\n%swith %d calls", told, len(pairs(last.Chat)))
	}
	took := 0
	for _, e := range effects(t, c.effects, c.run) {
		if e.what == noteEffect {
			took++
		}
	}
	if took != c.want.effects {
		t.Errorf("tools took effect %d times, want %d", took, c.want.effects)
	}
	checkEnd(t, ofRun(checkSession(t, c.fleet, c.session), c.run), event.TypeRunCancelled)
}

// call is an answer that asks for one tool.
func call(name, hold string) openaitest.Answer {
	return openaitest.Calls(openaitest.Call{ID: "call_1", Name: name, Arguments: fmt.Sprintf(`{"hold":%q}`, hold)})
}

// fallsSilent is an answer that says so much and then nothing more.
func fallsSilent() openaitest.Answer {
	return openaitest.Fixture("stall").Hold(openaitest.AtEnd, openaitest.NewHold())
}
