package loop

import (
	"context"
	"errors"
	"slices"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// MaxEnqueued is the most runs of a session that wait behind its active one.
// Every place that takes messages keeps to it.
const MaxEnqueued = 64

// begun is the state as the run of a run.queued begins: it stands behind those
// that began before it, and its message, if that was enqueued, at the end of the
// conversation.
func (s State) begun(e event.Event) State {
	i := s.runIndex(e.RunID)
	if i < 0 || s.Runs[i].Status != RunEnqueued {
		return s
	}
	if first := s.nextIndex(); first != i {
		r := s.Runs[i]
		s.Runs = slices.Insert(slices.Delete(slices.Clone(s.Runs), i, i+1), first, r)
		i = first
	}
	if at := s.enqueuedIndex(s.Runs[i].MessageID); at >= 0 {
		m := s.Enqueued[at]
		m.Position = e.Seq
		s = s.withoutEnqueued(at).withMessage(m)
	}
	return s
}

func (s State) withoutEnqueued(at int) State {
	if s.Enqueued = slices.Delete(slices.Clone(s.Enqueued), at, at+1); len(s.Enqueued) == 0 {
		s.Enqueued = nil
	}
	return s
}

// neverBegins reports whether p takes the message of an enqueued run, and no
// other, out of the queue.
func (s State) neverBegins(p event.MessagesReplaced) bool {
	return len(p.MessageIDs) == 1 && p.MessageIDs[0] == p.FromMessageID && s.enqueuedIndex(p.FromMessageID) >= 0
}

// withdrawn is what must be written before r may end if its message is enqueued:
// that leaves the queue.
func (s State) withdrawn(r Run) []event.Payload {
	if s.enqueuedIndex(r.MessageID) < 0 {
		return nil
	}
	return []event.Payload{event.MessagesReplaced{FromMessageID: r.MessageID, MessageIDs: []string{r.MessageID}}}
}

// withoutTail is the state without the messages that p names: the last ones, or
// an enqueued one. allows has asked.
func (s State) withoutTail(p event.MessagesReplaced) State {
	if at := s.enqueuedIndex(p.FromMessageID); at >= 0 {
		return s.withoutEnqueued(at)
	}
	at := s.messageIndex(p.FromMessageID)
	if s.Messages = s.Messages[:at:at]; at == 0 {
		s.Messages = nil
	}
	return s
}

func (s State) nextIndex() int {
	return slices.IndexFunc(s.Runs, func(r Run) bool { return r.Status == RunEnqueued })
}

// enqueued counts the runs that wait for the active one.
func (s State) enqueued() (n int) {
	for _, r := range s.Runs {
		if r.Status == RunEnqueued {
			n++
		}
	}
	return n
}

// NextRuns are runs that have yet to begin, as those of [Log.Load] are: enqueued
// has their messages, the next one first. Only who they are and what they
// answer is known of them.
func NextRuns(enqueued []hooks.Message) []Run {
	var out []Run
	for _, m := range enqueued {
		out = append(out, Run{ID: m.RunID, Status: RunEnqueued, MessageID: m.ID})
	}
	return out
}

// handOver lets the next run begin where the active one ends, in the same
// append: in between, nobody would know that it is its turn. What was rolled
// back is out of the conversation by then.
func (d *draft) handOver() {
	was, busy := d.base.active()
	ended, _ := d.state.Run(was.ID)
	if _, another := d.state.active(); !busy || another || !ended.Status.Terminal() {
		return
	}
	scope := d.scope
	defer func() { d.scope = scope }()
	if at := d.state.messageIndex(ended.MessageID); ended.RolledBack && at >= 0 {
		gone := event.MessagesReplaced{FromMessageID: ended.MessageID}
		for _, m := range d.state.Messages[at:] {
			gone.MessageIDs = append(gone.MessageIDs, m.ID)
		}
		d.scope.RunID = ended.ID
		d.add(gone)
	}
	d.beginNext()
}

// beginNext queues the enqueued run whose turn it is, and reports whether there
// is one.
func (d *draft) beginNext() bool {
	i := d.state.nextIndex()
	if i >= 0 {
		d.scope.RunID = d.state.Runs[i].ID
		d.add(event.RunQueued{Ticket: 1, Cause: event.QueuedNext})
		d.job(1)
	}
	return i >= 0
}

// BeginNext begins the next enqueued run of a session in which none is active,
// which j is one of. Whoever ends a run begins the next one in the same append;
// this is for what a version that does not has left behind, which nobody else
// would ever take up. It returns false if there was nothing to do.
func (c *Commands) BeginNext(ctx context.Context, j Job, actor event.Actor) (bool, error) {
	for {
		// The state does not tell which run is active, so where both stand is
		// compared, and the append holds only there.
		h, err := c.Log.Head(ctx, j.TenantID, j.SessionID)
		if err != nil {
			return false, err
		}
		if h.Deleted || h.ActiveRunID != "" {
			return false, nil
		}
		s, err := c.Log.Load(ctx, j.TenantID, j.SessionID, j.RunID)
		if err != nil && !errors.Is(err, ErrBadState) {
			return false, err // of a broken one the tables say whose turn it is
		}
		if s.LastSeq != h.LastSeq {
			continue
		}
		d := newDraft(c.NewID, s, event.Scope{SessionID: j.SessionID, At: c.Now(), Actor: actor})
		if !d.beginNext() {
			return false, nil
		}
		a, err := d.done()
		if err != nil {
			return false, err
		}
		if _, err = c.Log.Append(ctx, a); !errors.Is(err, ErrConflict) {
			return err == nil, err
		}
	}
}
