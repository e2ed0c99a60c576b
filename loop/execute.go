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
}

// runTools runs the calls side by side and makes each outcome durable as it
// comes. If the run must stop, a tool that was interrupted may have taken
// effect: its call stays without an outcome.
func (r *runner) runTools(ctx context.Context, cleared []clearance) error {
	t, _ := r.run().Turn()
	toolCtx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan execution, len(cleared))
	for _, cl := range cleared {
		c := cl.call
		if h := r.engine.Hooks.OnToolExecutionStart; h != nil {
			r.notify("OnToolExecutionStart", func() {
				h(ctx, hooks.ToolExecutionStart{RunRef: r.ref(), Turn: t.No, Attempt: c.Attempt, Call: c.ToolCall})
			})
		}
		go func() {
			// What stands if the tool ends this goroutine instead of returning.
			x := execution{call: c, err: errBrokeOff}
			defer func() { ended <- x }()
			x = r.dispatch(toolCtx, cl)
		}()
	}
	open, err := r.followTools(ctx, ended, len(cleared))
	stop()
	for _, x := range r.joinTools(ended, open) {
		if err == nil && (x.err == nil || !x.cut) {
			// Without an answer about it, the output is lost.
			if err = r.conclude(ctx, x); errors.Is(err, errVoid) {
				err = nil
			}
		}
	}
	return err
}

// followTools makes outcomes durable until there are no more or the run must
// stop, and returns how many tools are still open.
func (r *runner) followTools(ctx context.Context, ended <-chan execution, open int) (int, error) {
	for open > 0 && !r.run().CancelRequested {
		select {
		case x := <-ended:
			open--
			if ctx.Err() != nil {
				return open, ctx.Err()
			}
			if err := r.conclude(ctx, x); errors.Is(err, errVoid) {
				return open, nil
			} else if err != nil {
				return open, err
			}
			if open == 0 {
				break // the last outcome goes with the step that follows from it
			}
			if err := r.record(ctx); err != nil {
				return open, err
			}
		case reached := <-r.wake:
			if err := r.woken(ctx, reached); err != nil {
				return open, err
			}
		case <-r.recheck:
			if err := r.catchCancel(ctx); err != nil {
				return open, err
			}
		case <-r.expiry:
			r.expired = true
			return open, nil
		case <-r.holder.Interrupt:
			return open, nil
		case <-ctx.Done():
			return open, ctx.Err()
		}
	}
	return open, nil
}

// joinTools waits for tools that were told to stop, and returns how those that
// did have ended.
func (r *runner) joinTools(ended <-chan execution, open int) (out []execution) {
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	for ; open > 0; open-- {
		select {
		case x := <-ended:
			out = append(out, x)
		case <-grace.C:
			r.log.Error("left behind: it does not stop when told to", "what", "tools", "count", open, "epoch", r.epoch, "after", stopGrace)
			return out
		}
	}
	return out
}

// conclude turns an ended execution into facts: that it ran, and the result
// that the model is shown. Hooks are asked about the output only once it is
// durable that the tool ran.
func (r *runner) conclude(ctx context.Context, x execution) error {
	ran, res := r.executed(x)
	r.facts = append(r.facts, ran)
	if r.engine.Hooks.AfterToolCall != nil {
		if err := r.record(ctx); err != nil {
			return err
		}
		if err := r.review(ctx, x.call, &res); err != nil {
			return err
		}
	}
	r.facts = append(r.facts, res)
	return nil
}

// dispatch is the only place that enters a tool.
func (r *runner) dispatch(ctx context.Context, cl clearance) (x execution) {
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
		Arguments: json.RawMessage(c.Arguments),
	})
	x.cut = ctx.Err() != nil
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
