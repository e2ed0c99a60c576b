package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// client is all people who use the API.
type client struct {
	// left is how much they still want, asked counts what they asked for.
	left, asked int
	messages    []*message
	// again are messages whose answer was lost and which have a key.
	again []*message
	// cancelled are the runs that a cancel was accepted for, with how often each
	// had been taken up again by then.
	cancelled map[string]int
	// forced are runs that somebody asked to be ended by force.
	forced  map[string]bool
	decided map[string]event.ApprovalDecision
}

// message is a StartRun, which may be sent several times.
type message struct {
	loop.StartRun
	name string
	// sent counts how often, answers are those that came.
	sent    int
	answers []loop.StartedRun
}

func (w *world) createSessions() {
	w.client.cancelled, w.client.forced, w.client.decided = map[string]int{}, map[string]bool{}, map[string]event.ApprovalDecision{}
	p := newProcess("setup")
	a := w.newActor("s", p, new(atomic.Int64))
	c := &loop.Commands{Log: w.log, NewID: a.newID, Now: a.now, Logger: w.logger}
	for range w.script.sessions {
		ref, err := c.CreateSession(a.ctx, loop.CreateSession{TenantID: looptest.Tenant, Actor: looptest.Tester})
		if err != nil {
			w.violated("error", "create a session: %v", err)
			continue
		}
		w.ids = append(w.ids, ref.SessionID)
		w.sessions[ref.SessionID] = newSession(ref.SessionID)
		events, _ := w.log.Events(a.ctx, looptest.Tenant, ref.SessionID, 0, 10)
		w.sessions[ref.SessionID].add(events, nil)
		w.sessions[ref.SessionID].cursor = int64(len(events))
	}
	w.client.left = w.script.acts
}

// clientActs is something that a person does.
func (w *world) clientActs() {
	w.client.left--
	s := w.sessions[w.ids[w.src.draw(len(w.ids))]]
	did := false
	switch w.src.oneOf(45, 18, 12, 12, 4) {
	case 1:
		did = w.personDecides(s)
	case 2:
		did = w.clientCancels(s)
	case 3:
		did = w.clientRetries(s)
	case 4:
		did = w.clientForces(s)
	}
	if !did {
		w.clientSays(s)
	}
}

// clientProcess is a server that handles one request of a client.
func (w *world) clientActor(what string) *actor {
	w.client.asked++
	name := fmt.Sprintf("c%d", w.client.asked)
	w.say("%s: %s", name, what)
	return w.newActor(name, newProcess(name), new(atomic.Int64))
}

func (w *world) clientSays(s *session) {
	n := len(w.client.messages)
	if n > 0 && w.src.rarely(15) {
		// Twice the same, perhaps while the first is under way.
		if m := w.client.messages[w.src.draw(n)]; m.IdempotencyKey != "" {
			w.send(m)
			return
		}
	}
	m := &message{name: fmt.Sprintf("m%d", n+1)}
	m.StartRun = loop.StartRun{TenantID: looptest.Tenant, SessionID: s.id, Actor: looptest.Tester, Text: m.name}
	if w.src.draw(2) == 1 {
		m.IdempotencyKey = "key-" + m.name
	}
	m.Policy = []event.Policy{"", event.PolicyEnqueue, event.PolicyInterrupt, event.PolicyRollback}[w.src.oneOf(40, 25, 20, 15)]
	if len(s.state.Messages) > 0 && w.src.rarely(15) {
		old := s.state.Messages[w.src.draw(len(s.state.Messages))]
		m.ReplaceFrom, m.Policy = old.ID, ""
		if old.Role != hooks.RoleUser || w.src.draw(2) == 1 {
			m.Text = ""
		}
	}
	w.client.messages = append(w.client.messages, m)
	w.send(m)
}

func (w *world) send(m *message) {
	m.sent++
	a := w.clientActor(fmt.Sprintf("says %s in %s, key %q, policy %q, replacing %q", m.name, m.SessionID, m.IdempotencyKey, m.Policy, m.ReplaceFrom))
	c := w.commands(a)
	w.command(a, func(ctx context.Context) error {
		out, err := c.StartRun(ctx, m.StartRun)
		w.mu.Lock()
		switch {
		case err == nil:
			m.answers = append(m.answers, out)
		case errors.Is(err, loop.ErrUnavailable) && m.IdempotencyKey != "":
			w.client.again = append(w.client.again, m)
		}
		w.mu.Unlock()
		if err == nil {
			w.accepted(m, out)
		}
		return err
	})
}

func (w *world) clientAsksAgain() {
	m := w.client.again[0]
	w.client.again = w.client.again[1:]
	w.send(m)
}

// accepted: what was accepted is in the log, once, and is what the key stands
// for.
func (w *world) accepted(m *message, out loop.StartedRun) {
	if out.RunID == "" {
		return
	}
	n := 0
	for _, e := range w.sessions[m.SessionID].events {
		if e.Type == event.TypeRunCreated && e.RunID == out.RunID {
			n++
		}
	}
	if n != 1 {
		w.violated("accepted", "message %s was accepted as run %s, which the log has %d times", m.name, out.RunID, n)
	}
	for _, before := range m.answers {
		if m.IdempotencyKey != "" && (before.RunID != out.RunID || before.MessageID != out.MessageID) {
			w.violated("idempotency", "message %s with one key is run %s and run %s", m.name, before.RunID, out.RunID)
		}
	}
}

func (w *world) anyRun(s *session, is func(loop.Run) bool) (loop.Run, bool) {
	var some []loop.Run
	for _, r := range s.state.Runs {
		if is(r) {
			some = append(some, r)
		}
	}
	if len(some) == 0 {
		return loop.Run{}, false
	}
	return some[w.src.draw(len(some))], true
}

func (w *world) clientCancels(s *session) bool {
	r, ok := w.anyRun(s, func(r loop.Run) bool { return !r.Status.Terminal() })
	if !ok {
		return false
	}
	a := w.clientActor("cancels " + r.ID)
	c := w.commands(a)
	w.command(a, func(ctx context.Context) error {
		err := c.CancelRun(ctx, loop.CancelRun{TenantID: looptest.Tenant, SessionID: s.id, RunID: r.ID, Reason: "enough", Actor: looptest.Tester})
		if err == nil {
			w.mu.Lock()
			w.client.cancelled[r.ID] = w.runOf(s.id, r.ID).Retries
			w.mu.Unlock()
		}
		return err
	})
	return true
}

func (w *world) clientRetries(s *session) bool {
	r, ok := w.anyRun(s, func(r loop.Run) bool { return r.Status == loop.RunFailed && r.Reason != string(event.FailBlocked) })
	if !ok {
		return false
	}
	a := w.clientActor("retries " + r.ID)
	c := w.commands(a)
	w.command(a, func(ctx context.Context) error {
		_, err := c.RetryRun(ctx, loop.RetryRun{TenantID: looptest.Tenant, SessionID: s.id, RunID: r.ID, Actor: looptest.Tester})
		return err
	})
	return true
}

func (w *world) clientForces(s *session) bool {
	r, ok := w.anyRun(s, func(r loop.Run) bool { return !r.Status.Terminal() })
	if !ok {
		return false
	}
	w.client.forced[r.ID] = true
	a := w.clientActor("ends by force " + r.ID)
	c := w.commands(a)
	w.command(a, func(ctx context.Context) error {
		return c.FailRun(ctx, loop.FailRun{TenantID: looptest.Tenant, SessionID: s.id, RunID: r.ID, Reason: "it hangs", Actor: looptest.Tester})
	})
	return true
}

// question is an approval as a person sees it.
type question struct {
	sessionID string
	call      loop.Call
}

// questions are all that were asked, or only those that nobody has answered.
func (w *world) questions(s *session, open bool) []question {
	var out []question
	for _, r := range s.state.Runs {
		for _, t := range r.Turns {
			for _, c := range t.Calls {
				if c.ApprovalID != "" && (!open || c.Status == loop.CallAwaiting) {
					out = append(out, question{s.id, c})
				}
			}
		}
	}
	return out
}

// personDecides answers a question, maybe one that has an answer.
func (w *world) personDecides(s *session) bool {
	all := w.questions(s, false)
	if len(all) == 0 {
		return false
	}
	return w.answer(all[w.src.draw(len(all))])
}

// personAnswers answers the first open question that can be answered.
func (w *world) personAnswers() bool {
	for _, id := range w.ids {
		if slices.ContainsFunc(w.questions(w.sessions[id], true), w.answer) {
			return true
		}
	}
	return false
}

// answer is a person who answers. Asked what became of a call, people tell the
// truth, and only when nobody can enter the tool any more.
func (w *world) answer(q question) bool {
	cmd := loop.DecideApproval{
		TenantID: looptest.Tenant, ApprovalID: q.call.ApprovalID, Actor: event.Actor{Kind: event.ActorPrincipal, ID: "p1"},
		Approve: w.src.draw(3) < 2,
	}
	if w.src.rarely(20) {
		cmd.Actor.ID = "p2"
	}
	if q.call.Asked == event.ApprovalOfCall && w.src.rarely(25) {
		edited := []string{`{"edited":1}`, `{"edited":`}[w.src.oneOf(85, 15)]
		cmd.Arguments = &edited
	}
	if w.calm {
		cmd.Actor.ID, cmd.Arguments = "p1", nil
	}
	if q.call.Asked == event.ApprovalOfOutcome {
		switch {
		case w.mayEnter(q.call.ID):
			return false
		case len(w.effects[q.call.ID]) > 0:
			cmd.Outcome = event.DecisionHappened
		default:
			cmd.Outcome = event.DecisionDidNotHappen
		}
	}
	a := w.clientActor(fmt.Sprintf("%s answers %s of call %s: %t %s, with other arguments: %t", cmd.Actor.ID, cmd.ApprovalID, q.call.ID, cmd.Approve, cmd.Outcome, cmd.Arguments != nil))
	c := w.commands(a)
	w.command(a, func(ctx context.Context) error {
		out, err := c.DecideApproval(ctx, cmd)
		if err != nil {
			return err
		}
		w.mu.Lock()
		before, has := w.client.decided[cmd.ApprovalID]
		w.client.decided[cmd.ApprovalID] = out.Decision
		w.mu.Unlock()
		if has && before != out.Decision {
			w.violated("approval", "%s was decided as %s and as %s", cmd.ApprovalID, before, out.Decision)
		}
		return nil
	})
	return true
}

// mayEnter says that a tool waits to be entered for that call.
func (w *world) mayEnter(callID string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.points, func(p *point) bool { return p.what == enters(callID) })
}
