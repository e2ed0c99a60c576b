package sim

import (
	"context"
	"errors"
	"time"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/audit"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

func newSession(id string) *session {
	return &session{id: id, audit: audit.New(), recorded: map[string]int64{}}
}

// add takes in what was appended.
func (s *session) add(events []event.Event, ledger []loop.LedgerRow) {
	for _, r := range ledger {
		s.audit.Decided(audit.DecisionOf(r))
		s.recorded[r.ID] = r.EventSeq
	}
	for _, e := range events {
		s.events = append(s.events, e)
		s.state = s.audit.Add(s.state, e)
	}
}

// write hands app to the log, and takes in what that made of it. meant is what a
// had sent, which is another only for a mutation.
func (w *world) write(a *actor, app, meant loop.Append) (loop.Appended, error) {
	s := w.sessions[app.SessionID]
	was := s.state
	out, err := w.log.Append(context.Background(), app)
	if err != nil {
		if !errors.Is(err, loop.ErrConflict) && !errors.Is(err, loop.ErrLeaseLost) && !errors.Is(err, loop.ErrExpired) {
			w.violated("append", "%s: %v", a.name, err)
		}
		return out, err
	}
	if out.LastSeq <= was.LastSeq {
		return out, nil // it had gone through before
	}
	w.stats.Appends++
	w.stats.Events += len(out.Events)
	w.jobs = append(w.jobs, app.Jobs...)
	s.add(out.Events, app.Ledger)
	for _, e := range out.Events {
		if p, _ := event.Decode(e); e.Type == event.TypeApprovalRequested {
			if q, ok := p.(event.ApprovalRequested); ok && q.TimeoutMS > 0 {
				w.expires[q.ApprovalID] = w.clock().Add(time.Duration(q.TimeoutMS) * time.Millisecond)
			}
		}
	}
	w.checkAppend(a, was, s, app, meant.Epoch, out.Events)
	for _, other := range w.actors {
		if other != a && other.worker != "" && other.job.SessionID == s.id {
			other.pending = out.LastSeq
		}
	}
	s.pushed = append(s.pushed, out.Events...)
	return out, nil
}

// pushes are the sessions from which something is on its way to a client.
func (w *world) pushes() []*session {
	var out []*session
	for _, id := range w.ids {
		if len(w.sessions[id].pushed) > 0 {
			out = append(out, w.sessions[id])
		}
	}
	return out
}

// follow is a client that is shown what was pushed: what it sees is in the log,
// and what it saw before is all that comes before that.
func (w *world) follow(s *session) {
	for _, e := range s.pushed {
		if e.Seq <= s.cursor {
			continue
		}
		if e.Seq > s.cursor+1 {
			w.violated("push", "a client that has seen seq %d is shown seq %d", s.cursor, e.Seq)
			return
		}
		if e.Seq > int64(len(s.events)) || string(s.events[e.Seq-1].Payload) != string(e.Payload) {
			w.violated("push", "a client is shown %s as seq %d of %s, which the log does not have", e.Type, e.Seq, s.id)
			return
		}
		s.cursor = e.Seq
	}
	s.pushed = nil
	w.say("a client that follows %s is shown seq %d", s.id, s.cursor)
}
