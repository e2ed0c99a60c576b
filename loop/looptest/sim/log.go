package sim

import (
	"context"
	"fmt"
	"reflect"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// proxy is the log as one actor sees it: each call waits for its turn and may go
// wrong.
type proxy struct {
	w *world
	a *actor
	n int
}

var _ loop.Log = (*proxy)(nil)

// call waits for the turn of a call.
func (p *proxy) call(ctx context.Context, what string, a *loop.Append) (fault, error) {
	if err := ctx.Err(); err != nil {
		return lost, err
	}
	p.n++
	p.a.retrying.Store(false)
	at := &point{actor: p.a, what: fmt.Sprintf("%s #%d", what, p.n), log: true, append: a}
	if !p.w.pause(ctx, at) {
		return lost, context.Canceled
	}
	if at.fault != works {
		p.a.retrying.Store(p.a.worker != "")
		return at.fault, loop.ErrUnavailable
	}
	return works, nil
}

// Append implements loop.Log.
func (p *proxy) Append(ctx context.Context, a loop.Append) (loop.Appended, error) {
	p.w.before(a)
	f, err := p.call(ctx, "append "+told(a.Events), &a)
	if f == lost {
		return loop.Appended{}, err
	}
	out, did := p.w.append(p.a, a)
	p.a.held = p.w.holds(p.a)
	if f == unacknowledged {
		return loop.Appended{}, err
	}
	return out, did
}

// Head implements loop.Log.
func (p *proxy) Head(ctx context.Context, tenantID, sessionID string) (loop.Head, error) {
	if _, err := p.call(ctx, "head", nil); err != nil {
		return loop.Head{}, err
	}
	h, err := p.w.log.Head(ctx, tenantID, sessionID)
	p.a.known = max(p.a.known, h.LastSeq)
	p.a.held = p.w.holds(p.a)
	return h, err
}

// HeadByExternalID implements loop.Log.
func (p *proxy) HeadByExternalID(ctx context.Context, tenantID, externalID string) (loop.Head, error) {
	if _, err := p.call(ctx, "head by external id", nil); err != nil {
		return loop.Head{}, err
	}
	return p.w.log.HeadByExternalID(ctx, tenantID, externalID)
}

// Request implements loop.Log.
func (p *proxy) Request(ctx context.Context, tenantID, sessionID, key string) (loop.Request, bool, error) {
	if _, err := p.call(ctx, "request", nil); err != nil {
		return loop.Request{}, false, err
	}
	if p.w.mutant == NoKeys {
		return loop.Request{}, false, nil
	}
	return p.w.log.Request(ctx, tenantID, sessionID, key)
}

// Tail implements loop.Log.
func (p *proxy) Tail(ctx context.Context, tenantID, sessionID, messageID string) (loop.Tail, error) {
	if _, err := p.call(ctx, "tail", nil); err != nil {
		return loop.Tail{}, err
	}
	return p.w.log.Tail(ctx, tenantID, sessionID, messageID)
}

// Load implements loop.Log. It folds the run from its own events, as a store
// does, and compares that with the state that all events led to.
func (p *proxy) Load(ctx context.Context, tenantID, sessionID, runID string) (loop.State, error) {
	if _, err := p.call(ctx, "load", nil); err != nil {
		return loop.State{}, err
	}
	s, err := p.w.log.Load(ctx, tenantID, sessionID, runID)
	if err != nil {
		return s, err
	}
	p.a.known = max(p.a.known, s.LastSeq)
	p.w.compareFolds(s, runID)
	return s, nil
}

// Approval implements loop.Log.
func (p *proxy) Approval(ctx context.Context, tenantID, approvalID string) (sessionID, runID string, err error) {
	if _, err := p.call(ctx, "approval", nil); err != nil {
		return "", "", err
	}
	return p.w.log.Approval(ctx, tenantID, approvalID)
}

// Events implements loop.Log.
func (p *proxy) Events(ctx context.Context, tenantID, sessionID string, after int64, limit int) ([]event.Event, error) {
	if _, err := p.call(ctx, "events", nil); err != nil {
		return nil, err
	}
	events, err := p.w.log.Events(ctx, tenantID, sessionID, after, limit)
	if n := len(events); n > 0 {
		p.a.known = max(p.a.known, events[n-1].Seq)
	}
	return events, err
}

// Watch implements loop.Log.
func (p *proxy) Watch(string) (<-chan int64, func()) {
	return p.a.wake, func() {}
}

// holds says that a has its run in the log.
func (w *world) holds(a *actor) bool {
	r := w.runOf(a.job.SessionID, a.job.RunID)
	return r.Status == loop.RunRunning && r.WorkerID == a.worker
}

// compareFolds says whether a run that is folded from its own events, without the
// deltas of answers that have come, is the one that the whole log leads to.
func (w *world) compareFolds(whole loop.State, runID string) {
	want, _ := whole.Run(runID)
	var own []event.Event
	first := len(w.sessions[whole.SessionID].events)
	for i, e := range w.sessions[whole.SessionID].events {
		if e.RunID == runID && e.Type == event.TypeModelRequested {
			first = i
		}
	}
	for i, e := range w.sessions[whole.SessionID].events {
		if e.RunID == runID && (e.Type != event.TypeAssistantDelta || i > first) {
			own = append(own, e)
		}
	}
	s, err := loop.FoldRun(loop.State{SessionID: whole.SessionID, TenantID: whole.TenantID}, own)
	got, _ := s.Run(runID)
	if err != nil || !reflect.DeepEqual(got, want) {
		w.violated("fold", "run %s folded from its own events is %+v (%v), from all %+v", runID, got, err, want)
	}
}

// told is events in a few words.
func told(events []event.Event) string {
	s := ""
	for i, e := range events {
		if i > 0 {
			s += "+"
		}
		s += string(e.Type)
	}
	return s
}
