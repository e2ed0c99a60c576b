package sim

import (
	"errors"
	"fmt"
	"slices"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// Mutation is a bug that is put in on purpose, to see that it is found. It sits
// between the loop and the log, or in what the loop is told, so nothing that
// ships knows of it.
type Mutation string

// The mutations.
const (
	// OldEpochs: what is written under an epoch that is over goes through, behind
	// what was written since.
	OldEpochs Mutation = "old epochs"
	// OldPlans: what was planned on an earlier seq goes through, behind what was
	// written since.
	OldPlans Mutation = "old plans"
	// EntryFirst: a tool is entered while its tool.started is still to be written.
	EntryFirst Mutation = "entry first"
	// PushFirst: clients are shown events that are still to be written.
	PushFirst Mutation = "push first"
	// DecisionsApart: decisions are written with the next append, not with what
	// follows from them.
	DecisionsApart Mutation = "decisions apart"
	// Repeats: an append that is sent again is another append.
	Repeats Mutation = "repeats"
	// NoKeys: nobody remembers an idempotency key.
	NoKeys Mutation = "no keys"
	// EveryToolAgain: every tool is taken for idempotent.
	EveryToolAgain Mutation = "every tool again"
)

// Mutations has each with what it stands for.
func Mutations() []struct {
	Mutation
	Like string
} {
	return []struct {
		Mutation
		Like string
	}{
		{OldEpochs, "the fence does not compare the epoch: what a worker writes that lost its run goes behind what was written since"},
		{OldPlans, "the fence does not compare the last seq: what was planned on an older state goes behind what was written since"},
		{EntryFirst, "a tool is entered before its `tool.started` is committed"},
		{PushFirst, "clients are shown events before the commit"},
		{DecisionsApart, "decisions are written in the transaction behind that of their effect"},
		{Repeats, "an append that is sent again, because its answer was lost, is not recognised"},
		{NoKeys, "idempotency keys are not looked up"},
		{EveryToolAgain, "a tool that is not idempotent is run again after a death"},
	}
}

// heldBack is an append that a mutation keeps for later.
type heldBack struct {
	actor *actor
	app   loop.Append
}

// before is called before an append waits for its turn.
func (w *world) before(app loop.Append) {
	if w.mutant != PushFirst {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.sessions[app.SessionID]
	for i, e := range app.Events {
		e.Seq = app.Expected + int64(i) + 1
		s.pushed = append(s.pushed, e)
	}
}

// append writes what a wants to be written, or what a mutation makes of it.
func (w *world) append(a *actor, app loop.Append) (loop.Appended, error) {
	switch w.mutant {
	case OldEpochs, OldPlans:
		return w.appendLate(a, app)
	case EntryFirst:
		w.flush()
		if slices.ContainsFunc(app.Events, func(e event.Event) bool { return e.Type == event.TypeToolStarted }) {
			w.held = append(w.held, &heldBack{a, app})
			return loop.Appended{}, nil
		}
	case DecisionsApart:
		return w.appendApart(a, app)
	case Repeats:
		w.stats.Sent++
		app.ID = fmt.Sprintf("%s/%d", app.ID, w.stats.Sent)
	case PushFirst, NoKeys, EveryToolAgain:
	}
	return w.write(a, app, app)
}

// appendLate writes app behind what others have written.
func (w *world) appendLate(a *actor, app loop.Append) (loop.Appended, error) {
	out, err := w.write(a, app, app)
	if w.mutant == OldEpochs && errors.Is(err, loop.ErrLeaseLost) || w.mutant == OldPlans && errors.Is(err, loop.ErrConflict) {
		return w.write(a, w.moved(app, app.Ledger, 0), app)
	}
	return out, err
}

// moved is app at the end of its session, with ledger for its decisions, as a log
// takes it that asks for nothing.
func (w *world) moved(app loop.Append, ledger []loop.LedgerRow, epoch int64) loop.Append {
	s := w.sessions[app.SessionID].state
	by := s.LastSeq - app.Expected
	app.Expected, app.Epoch, app.Ledger = s.LastSeq, epoch, nil
	head := w.head(app.SessionID)
	for _, r := range ledger {
		r.EventSeq = min(max(r.EventSeq+by, s.LastSeq+1), s.LastSeq+int64(len(app.Events)))
		r.LedgerSeq, r.PrevHash = head.Seq+1, head.Hash
		r.Hash = r.Row.Hash()
		head = loop.LedgerHead{Seq: r.LedgerSeq, Hash: r.Hash}
		app.Ledger = append(app.Ledger, r)
	}
	return app
}

func (w *world) head(sessionID string) loop.LedgerHead {
	rows := w.log.Ledger(sessionID)
	if len(rows) == 0 {
		return loop.LedgerHead{}
	}
	last := rows[len(rows)-1]
	return loop.LedgerHead{Seq: last.LedgerSeq, Hash: last.Hash}
}

// appendApart keeps the decisions for the next append of a.
func (w *world) appendApart(a *actor, app loop.Append) (loop.Appended, error) {
	stored := w.moved(app, a.later, app.Epoch)
	stored.Expected = app.Expected
	out, err := w.write(a, stored, app)
	if err == nil {
		a.later = app.Ledger
	}
	return out, err
}

// flush writes what was held back.
func (w *world) flush() bool {
	held := w.held
	w.held = nil
	for _, h := range held {
		_, _ = w.write(h.actor, h.app, h.app) // whoever sent it believes that it is there
	}
	return len(held) > 0
}
