package looptest

import (
	"context"
	"slices"
	"time"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// Request implements loop.Log.
func (l *Log) Request(_ context.Context, tenantID, sessionID, key string) (loop.Request, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err := l.session(tenantID, sessionID)
	if err != nil {
		return loop.Request{}, false, err
	}
	for _, e := range slices.Backward(s.events) {
		q, used, err := s.use(e)
		if err != nil {
			return loop.Request{}, false, err
		}
		if used != key || key == "" {
			continue
		}
		if l.now().Sub(e.At) > 24*time.Hour {
			break
		}
		return q, true, nil
	}
	return loop.Request{}, false, nil
}

// use is what e made of a request, and the request's key.
func (s *session) use(e event.Event) (q loop.Request, key string, err error) {
	p, err := event.Decode(e)
	q.Seq = e.Seq - 1
	switch p := p.(type) {
	case event.RunCreated:
		q.RunID, q.MessageID, q.AssistantMessageID, q.RequestSHA256 = e.RunID, p.MessageID, p.AssistantMessageID, p.RequestSHA256
		r, _ := s.state.Run(e.RunID)
		q.Enqueued = r.Status == loop.RunEnqueued
		q.Seq = s.events[slices.IndexFunc(s.events, func(o event.Event) bool { return o.RunID == e.RunID })].Seq - 1
		return q, p.IdempotencyKey, err
	case event.InputHandled:
		q.Handled, q.Reply, q.RequestSHA256 = true, p.Reply, p.RequestSHA256
		return q, p.IdempotencyKey, err
	case event.InputBlocked:
		q.Blocked, q.RequestSHA256 = &loop.BlockedError{ReasonCode: p.ReasonCode, Reason: p.Reason}, p.RequestSHA256
		return q, p.IdempotencyKey, err
	case event.InputRejected:
		q.Rejected, q.RequestSHA256 = loop.Busy(p), p.RequestSHA256
		return q, p.IdempotencyKey, err
	}
	return loop.Request{}, "", err
}
