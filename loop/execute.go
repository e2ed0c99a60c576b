package loop

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"runtime/debug"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// maxOutput bounds what is stored of a tool's output; the digest and the size
// on tool.executed are those of the whole.
const maxOutput = 1 << 20

var errBrokeOff = errors.New("the tool broke off: internal error")

// execution is how one entered tool ended.
type execution struct {
	call Call
	out  ToolOutput
	err  error
	// cut says that the tool had been told to stop by then: an error may mean
	// no more than that.
	cut bool
	// left are the tools that it leaves the run, if it has narrowed them.
	left     []string
	narrowed bool
}

// runTools runs the calls side by side and makes each outcome durable as it
// comes. If the run must stop, a tool that was interrupted may have taken
// effect: its call stays without an outcome.
func (r *runner) runTools(ctx context.Context, cleared []clearance) error {
	t, _ := r.run().Turn()
	toolCtx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan execution, len(cleared))
	r.returns, r.open, r.news = ended, len(cleared), make(chan struct{}, 1)
	defer func() { r.returns, r.unreviewed = nil, nil }()
	defer r.untold()
	for _, cl := range cleared {
		c := cl.call
		if h := r.asks.Hooks.OnToolExecutionStart; h != nil {
			r.notify("OnToolExecutionStart", func() {
				h(ctx, hooks.ToolExecutionStart{RunRef: r.ref(), Turn: t.No, Attempt: c.Attempt, Call: c.ToolCall})
			})
		}
		callCtx, says := r.telling(toolCtx, c)
		go func() {
			// What stands if the tool ends this goroutine instead of returning.
			x := execution{call: c, err: errBrokeOff}
			defer func() { ended <- x }()
			x = r.dispatch(callCtx, cl, says)
		}()
	}
	err := r.followTools(ctx)
	stop()
	r.joinTools(ctx, &err)
	for err == nil && len(r.unreviewed) > 0 {
		// Without an answer about it, the output is lost.
		if err = r.reviewNext(ctx); errors.Is(err, errVoid) {
			err = nil
		}
	}
	return err
}

// followTools makes outcomes durable until there are no more or the run must
// stop.
func (r *runner) followTools(ctx context.Context) error {
	for !r.stopping() {
		var err error
		switch {
		case len(r.unreviewed) > 0:
			err = r.reviewNext(ctx)
		case r.open == 0:
			return nil // the last outcome goes with the step that follows from it
		default:
			err = r.hear(ctx)
			if err == nil && len(r.unreviewed) > 0 {
				continue // heard saw to it that hooks may be asked
			}
		}
		if err == nil && (r.open > 0 || len(r.unreviewed) > 0) {
			err = r.record(ctx)
		}
		if errors.Is(err, errVoid) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hear waits for a tool to end, or for news of the run.
func (r *runner) hear(ctx context.Context) error {
	select {
	case x := <-r.returns:
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return r.heard(ctx, x)
	case <-r.news:
		r.told()
		return nil
	case reached := <-r.wake:
		return r.woken(ctx, reached)
	case <-r.recheck:
		return r.catchCancel(ctx)
	case <-r.expiry:
		r.expired = true
		return nil
	case <-r.holder.Interrupt:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// joinTools waits for tools that were told to stop, and takes in how those that
// did have ended, unless there is an error already.
func (r *runner) joinTools(ctx context.Context, err *error) {
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	for r.open > 0 {
		select {
		case x := <-r.returns:
			if *err == nil && (x.err == nil || !x.cut) {
				*err = r.heard(ctx, x)
			} else {
				r.open--
			}
		case <-grace.C:
			r.log.Error("left behind: it does not stop when told to", "what", "tools", "count", r.open, "epoch", r.epoch, "after", stopGrace)
			return
		}
	}
}

// outcome is how a tool ended, and the result that its call gets unless hooks
// want another.
type outcome struct {
	call Call
	res  event.ToolResult
}

// heard turns an ended execution into facts: that it ran, and the result that
// the model is shown. Hooks that are not pure are asked about the output only
// once it is durable that the tool ran.
func (r *runner) heard(ctx context.Context, x execution) error {
	r.open--
	r.lastOf(x.call)
	ran, res := r.executed(x)
	r.facts = append(r.facts, ran)
	if x.err == nil && x.narrowed {
		if p, changes := r.left(r.run(), x.left); changes {
			p.By, p.CallID = x.call.Name, x.call.ID
			r.facts = append(r.facts, p)
		}
	}
	if r.asks.Hooks.AfterToolCall == nil {
		r.facts = append(r.facts, r.noted(res))
		return nil
	}
	r.unreviewed = append(r.unreviewed, outcome{x.call, res})
	if hooks.IsPureAbout(r.asks.Hooks.AfterToolCall, r.ref(), x.call.Name) {
		return nil
	}
	return r.record(ctx)
}

// reviewNext asks the hooks about the output that has waited longest.
func (r *runner) reviewNext(ctx context.Context) error {
	o := r.unreviewed[0]
	r.unreviewed = r.unreviewed[1:]
	if err := r.review(ctx, o.call, &o.res); err != nil {
		return err
	}
	r.facts = append(r.facts, r.noted(o.res))
	return nil
}

// dispatch is the only place that enters a tool.
func (r *runner) dispatch(ctx context.Context, cl clearance, says *telling) (x execution) {
	c, tool := cl.call, cl.tool
	x.call = c
	defer func() {
		if v := recover(); v != nil {
			r.log.Error("tool panicked", "tool", c.Name, "call", c.ID, "panic", v, "stack", string(debug.Stack()))
			x.err = errBrokeOff
		}
	}()
	crash(PointToolExecuting)
	x.out, x.err = tool.Call(ctx, ToolInput{
		CallID: c.ID, Attempt: c.Attempt, TenantID: r.job.TenantID, SessionID: r.job.SessionID, RunID: r.job.RunID,
		Agent: cl.agent, Arguments: json.RawMessage(c.Arguments), Progress: says.say,
	})
	x.cut = ctx.Err() != nil
	x.left, x.narrowed = says.left.Take()
	return x
}

func (r *runner) executed(x execution) (event.ToolExecuted, event.ToolResult) {
	raw := x.out.Content
	success := x.err == nil && !x.out.IsError
	if x.err != nil {
		raw = x.err.Error()
	}
	sum := sha256.Sum256([]byte(raw))
	content, sanitized := event.CleanText(raw)
	res := event.ToolResult{
		CallID: x.call.ID, MessageID: r.engine.NewID(), Name: x.call.Name,
		Content: event.Shorten(content, maxOutput), IsError: !success, Sanitized: sanitized,
	}
	if !success {
		res.Reason = hooks.ReasonToolError
	}
	return event.ToolExecuted{
		CallID: x.call.ID, Attempt: x.call.Attempt, Success: success,
		SHA256: hex.EncodeToString(sum[:]), Bytes: int64(len(raw)),
	}, res
}
