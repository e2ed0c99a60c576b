package loop

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// maxOutput bounds what is stored of a tool's output; the digest and the size
// on tool.executed are those of the whole.
const maxOutput = 1 << 20

// execution is how one entered tool ended.
type execution struct {
	call Call
	out  ToolOutput
	err  error
}

// runTools runs the calls side by side and makes each outcome durable as it
// comes. If the run must stop, calls that do not end well at once stay
// without an outcome.
func (r *runner) runTools(ctx context.Context, ids []string) error {
	t, _ := r.run().Turn()
	agent := r.engine.Agents[r.run().Agent]
	toolCtx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan execution, len(ids))
	for _, id := range ids {
		c := t.Calls[t.callIndex(id)]
		tool, _ := agent.tool(c.Name)
		if h := r.engine.Hooks.OnToolExecutionStart; h != nil {
			r.notify("OnToolExecutionStart", func() {
				h(ctx, hooks.ToolExecutionStart{RunRef: r.ref(), Turn: t.No, Attempt: c.Attempt, Call: c.ToolCall})
			})
		}
		go func() { ended <- r.execute(toolCtx, tool, c) }()
	}
	for open := len(ids); open > 0; {
		select {
		case x := <-ended:
			open--
			r.facts = append(r.facts, r.executed(x)...)
			if err := r.record(ctx); err != nil {
				return err
			}
		case <-r.wake:
			if _, err := r.cancelled(ctx); err != nil {
				return err
			}
		case <-r.holder.Interrupt:
			return r.stopTools(ctx, stop, ended, open)
		case <-ctx.Done():
			return ctx.Err()
		}
		if open > 0 && r.run().CancelRequested {
			return r.stopTools(ctx, stop, ended, open)
		}
	}
	return nil
}

// stopTools tells the open tools to stop and keeps the outcomes of those that
// had finished. A tool that was interrupted may have taken effect: it gets no
// outcome here.
func (r *runner) stopTools(ctx context.Context, stop func(), ended <-chan execution, open int) error {
	stop()
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	for ; open > 0; open-- {
		select {
		case x := <-ended:
			if x.err == nil {
				r.facts = append(r.facts, r.executed(x)...)
			}
		case <-grace.C:
			r.log.Error("left behind: it does not stop when told to", "what", "tools", "count", open, "epoch", r.epoch, "after", stopGrace)
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (r *runner) execute(ctx context.Context, tool Tool, c Call) (x execution) {
	x.call = c
	defer func() {
		if v := recover(); v != nil {
			r.log.Error("tool panicked", "tool", c.Name, "call", c.ID, "panic", v, "stack", string(debug.Stack()))
			x.err = fmt.Errorf("the tool broke off: internal error")
		}
	}()
	crash(PointToolExecuting)
	x.out, x.err = tool.Call(ctx, ToolInput{
		CallID: c.ID, Attempt: c.Attempt, TenantID: r.job.TenantID, SessionID: r.job.SessionID, RunID: r.job.RunID,
		Arguments: json.RawMessage(c.Arguments),
	})
	return x
}

// executed turns an ended execution into its facts: that it ran, and the
// result that the model is shown.
func (r *runner) executed(x execution) []event.Payload {
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
	return []event.Payload{
		event.ToolExecuted{
			CallID: x.call.ID, Attempt: x.call.Attempt, Success: success,
			SHA256: hex.EncodeToString(sum[:]), Bytes: int64(len(raw)),
		},
		res,
	}
}
