package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

const (
	// concurrency is how many questions of a plugin's hooks are under way at once, and
	// queue how many more wait for that. What is beyond fails at once.
	concurrency = 64
	queue       = 1024
	// queueTime is how long a question may wait for its turn, beside the time limit of
	// its hook. It is given up lateTime before, so that it says why itself.
	queueTime = time.Second
	lateTime  = 100 * time.Millisecond
)

// The codes of failures. They are stored: a value is never renamed.
const (
	// CodeTimeout: no answer within the time limit.
	CodeTimeout = "host.timeout"
	// CodeCrash: the process ended before it answered.
	CodeCrash = "host.crash"
	// CodeUnavailable: there is no process that could be asked, or nobody reaches it.
	CodeUnavailable = "host.unavailable"
	// CodeOversize: the answer, or the question, is longer than it may be.
	CodeOversize = "host.oversize"
	// CodeMalformed: the answer is none.
	CodeMalformed = "host.malformed"
	// CodeQueueFull: too many questions wait already, or this one has waited too long.
	CodeQueueFull = "host.queue_full"
)

// unknown is the answer for a plugin of which nobody knew what it would be asked, also
// once it is up.
func (p *called) unknown(context.Context, *pluginv1.EvaluateRequest, int) (*pluginv1.EvaluateResponse, error) {
	if _, err := p.Process(); err != nil {
		return nil, err
	}
	return nil, &hooks.Failure{
		Outcome: hooks.OutcomeUnavailable, Code: CodeUnavailable,
		Err: fmt.Errorf("plugin %s was not up yet when the hooks that are asked were loaded", p.ID()),
	}
}

// evaluate asks the process that is up.
func (p *called) evaluate(ctx context.Context, q *pluginv1.EvaluateRequest, limit int) (*pluginv1.EvaluateResponse, error) {
	left := hooks.DefaultTimeLimit
	if end, ok := ctx.Deadline(); ok {
		left = time.Until(end) - queueTime
	}
	if err := p.slots.take(ctx); err != nil {
		return nil, err
	}
	defer p.slots.give()
	process, err := p.Process()
	if err != nil {
		return nil, err
	}
	token, done := p.service.tokens.issue(ctx, process.Number(), runOf(q))
	defer done()
	callCtx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	q.DeadlineMs = max(left.Milliseconds(), 1)
	codec := &watched{CodecV2: wire.Bounded()}
	p.asked.Add(1)
	a, err := pluginv1.NewPluginServiceClient(process.Conn()).Evaluate(
		metadata.AppendToOutgoingContext(callCtx, wire.TokenKey, token), q,
		grpc.ForceCodecV2(codec), grpc.MaxCallRecvMsgSize(limit),
	)
	switch {
	case err == nil:
		return a, nil
	case ctx.Err() != nil:
		return nil, ctx.Err() // the run was cancelled, or the gate has not waited
	case codec.broken != nil:
		return nil, &hooks.Failure{Outcome: hooks.OutcomeMalformed, Code: CodeMalformed, Err: errors.New("the answer cannot be read")}
	}
	return nil, process.Failure(err)
}

// watched remembers that a message could not be read: gRPC does not tell that from an
// error that the plugin has answered. It is for one call.
type watched struct {
	encoding.CodecV2
	broken error
}

// Unmarshal implements encoding.CodecV2.
func (w *watched) Unmarshal(data mem.BufferSlice, v any) error {
	w.broken = w.CodecV2.Unmarshal(data, v)
	return w.broken
}

// own makes of a failure that the plugin has answered, or of an answer that is none,
// what the ledger says. A code that begins with host. is the host's to give.
func own(err error) error {
	var f *hooks.Failure
	switch {
	case !errors.As(err, &f):
		return err
	case f.Outcome == hooks.OutcomeMalformed:
		return &hooks.Failure{Outcome: f.Outcome, Code: CodeMalformed, Err: f.Err}
	case strings.HasPrefix(f.Code, "host."):
		return &hooks.Failure{Outcome: f.Outcome, Err: f.Err}
	}
	return f
}

// runOf is the run that a question is about. A message that is no run's yet has no id
// of one.
func runOf(q *pluginv1.EvaluateRequest) hooks.RunRef {
	if in := q.GetBeforeInput(); in != nil {
		return hooks.RunRef{TenantID: in.GetTenantId(), SessionID: in.GetSessionId(), Agent: in.GetAgent()}
	}
	var about interface{ GetRun() *pluginv1.RunRef }
	switch in := q.GetInput().(type) {
	case *pluginv1.EvaluateRequest_BeforeRunStart:
		about = in.BeforeRunStart
	case *pluginv1.EvaluateRequest_TransformContext:
		about = in.TransformContext
	case *pluginv1.EvaluateRequest_BeforeProviderHeaders:
		about = in.BeforeProviderHeaders
	case *pluginv1.EvaluateRequest_BeforeProviderRequest:
		about = in.BeforeProviderRequest
	case *pluginv1.EvaluateRequest_AfterProviderResponse:
		about = in.AfterProviderResponse
	case *pluginv1.EvaluateRequest_BeforeToolCall:
		about = in.BeforeToolCall
	case *pluginv1.EvaluateRequest_BeforeExecute:
		about = in.BeforeExecute
	case *pluginv1.EvaluateRequest_AfterToolCall:
		about = in.AfterToolCall
	default:
		return hooks.RunRef{}
	}
	return refOf(about.GetRun())
}

func refOf(r *pluginv1.RunRef) hooks.RunRef {
	return hooks.RunRef{TenantID: r.GetTenantId(), SessionID: r.GetSessionId(), RunID: r.GetRunId(), Agent: r.GetAgent()}
}

func refTo(r hooks.RunRef) *pluginv1.RunRef {
	return &pluginv1.RunRef{
		TenantId: wire.Text(r.TenantID), SessionId: wire.Text(r.SessionID), RunId: wire.Text(r.RunID), Agent: wire.Text(r.Agent),
	}
}

// deadline is how long it is until end, in milliseconds and at least one: 0 would be
// no limit.
func deadline(end time.Time) int64 { return max(time.Until(end).Milliseconds(), 1) }

// slots let only so many through at once, and only so many wait, and those not long.
type slots struct {
	taken   chan struct{}
	waiting atomic.Int64
	queue   int
	wait    time.Duration
}

func newSlots(concurrency, queue int, wait time.Duration) *slots {
	return &slots{taken: make(chan struct{}, concurrency), queue: queue, wait: wait}
}

// take waits for a slot, and tells the decision so. Without an error the slot is given
// back once.
func (s *slots) take(ctx context.Context) error {
	select {
	case s.taken <- struct{}{}:
		return nil
	default:
	}
	defer s.waiting.Add(-1)
	if n := s.waiting.Add(1); n > int64(s.queue) {
		return &hooks.Failure{Outcome: hooks.OutcomeUnavailable, Code: CodeQueueFull, Err: fmt.Errorf("%d questions are under way and %d wait", cap(s.taken), s.queue)}
	}
	defer hooks.Queued(ctx)()
	late := time.NewTimer(s.wait)
	defer late.Stop()
	select {
	case s.taken <- struct{}{}:
		return nil
	case <-late.C:
		return &hooks.Failure{Outcome: hooks.OutcomeUnavailable, Code: CodeQueueFull, Err: fmt.Errorf("%d questions are under way, and this one has waited for %s", cap(s.taken), s.wait)}
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *slots) give() { <-s.taken }
