package loop

import (
	"fmt"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// Limits end a run that goes on for too long. The run fails, with the limit as
// its reason, before the step for which nothing is left: a tool is never stopped
// in the middle for another limit than RunTime, and an answer that needs nothing
// more stands, whatever it took. What counts is in the log, so a run that is
// taken over or taken up again goes on counting. A limit of 0 is none.
type Limits struct {
	// Turns is how many turns a run may have.
	Turns int
	// RepeatedCalls is in how many turns in a row a model may ask for the same
	// tool with the same arguments, byte for byte.
	RepeatedCalls int
	// RunTime is how long workers may hold a run, all leases together. Neither
	// the queue nor waiting for people counts.
	RunTime time.Duration
	// ToolCalls is how many calls a run may start. A call that is run again
	// counts once, and one that is blocked, denied or refused not at all. Of the
	// calls of one answer the first ones run, in call order, those that wait for
	// people included; the others get [hooks.ReasonLimit] for a result, and once
	// the answer's calls are done the run ends.
	ToolCalls int
	// Tokens is how many tokens a run may take, input and output together, those
	// of failed calls included as far as the provider said. The run ends before
	// the next call of a model or a tool once they are reached, so the last
	// answer may go past it.
	Tokens int64
	// CostMicros is the same for what the tokens cost at [Agent.Prices], in
	// millionths of their unit. Without prices it is never reached.
	CostMicros int64
}

// exceeded says which limit forbids another turn after the last one of r, and
// whether one does.
func (l Limits) exceeded(r Run) (event.RunFailed, bool) {
	turns := 0
	for _, t := range r.Turns {
		if !t.Superseded {
			turns++
		}
	}
	if l.Turns > 0 && turns >= l.Turns {
		why := "while the model still asked for tools"
		if t, _ := r.Turn(); t.Stop != nil {
			why = "and the last answer was stopped by " + t.Stop.Observer
		}
		return event.RunFailed{
			Reason: event.FailTurnLimit,
			Error:  fmt.Sprintf("the run was ended after %d turns, the limit of its agent, %s", turns, why),
		}, true
	}
	if started, refused := r.toolCalls(); l.ToolCalls > 0 && refused > 0 && started+refused > l.ToolCalls {
		return event.RunFailed{
			Reason: event.FailToolCallLimit,
			Error: fmt.Sprintf("the run was ended because the model asked for tool call number %d, and %d is the limit of its agent; %d were started",
				started+refused, l.ToolCalls, started),
		}, true
	}
	if c, ok := repeated(r.Turns, l.RepeatedCalls); ok {
		return event.RunFailed{
			Reason: event.FailRepeatedCalls,
			Error: fmt.Sprintf("the run was ended because the model called %s with the same arguments in %d turns in a row, the limit of its agent",
				event.Shorten(c.Name, 80), l.RepeatedCalls),
		}, true
	}
	return l.spent(r)
}

// toolCalls counts the calls of r that were started, and those of its last turn
// that the limit refused.
func (r Run) toolCalls() (started, refused int) {
	for i, t := range r.Turns {
		for _, c := range t.Calls {
			switch {
			case c.Attempt > 0:
				started++
			case i == len(r.Turns)-1 && c.Reason == hooks.ReasonLimit:
				refused++
			}
		}
	}
	return started, refused
}

// full reports whether c is one call too many to be started. Calls that people
// were asked about have their place already.
func (l Limits) full(r Run, c Call) bool {
	if l.ToolCalls <= 0 || c.Attempt > 0 {
		return false
	}
	taken := 0
	for _, t := range r.Turns {
		for _, k := range t.Calls {
			if k.ID != c.ID && (k.Attempt > 0 || k.Status == CallAwaiting || k.Status == CallApproved || k.Status == CallEdited) {
				taken++
			}
		}
	}
	return taken >= l.ToolCalls
}

// tooMany is the result of a call that is not started for [Limits.ToolCalls].
func (l Limits) tooMany(newID func() string, c Call) event.ToolResult {
	return event.ToolResult{
		CallID: c.ID, MessageID: newID(), Name: c.Name, IsError: true, Reason: hooks.ReasonLimit,
		Content: fmt.Sprintf("This call was not run: the run may start %d tool calls, and none is left.", l.ToolCalls),
	}
}

// spent says whether what r took forbids another step, and why.
func (l Limits) spent(r Run) (event.RunFailed, bool) {
	if l.Tokens <= 0 && l.CostMicros <= 0 {
		return event.RunFailed{}, false
	}
	var tokens, cost int64
	unreported := 0
	for _, t := range r.Turns {
		tokens += t.Usage.InputTokens + t.Usage.OutputTokens
		cost += t.CostMicros
		if t.Unreported && unreported == 0 {
			unreported = t.No
		}
	}
	switch {
	case l.Tokens > 0 && tokens >= l.Tokens:
		return event.RunFailed{
			Reason: event.FailTokenLimit,
			Error:  fmt.Sprintf("the run was ended after %d tokens; %d is the limit of its agent", tokens, l.Tokens),
		}, true
	case l.CostMicros > 0 && cost >= l.CostMicros:
		return event.RunFailed{
			Reason: event.FailCostLimit,
			Error:  fmt.Sprintf("the run was ended after it had cost %s; %s is the limit of its agent", FormatMicros(cost), FormatMicros(l.CostMicros)),
		}, true
	case unreported > 0:
		// Who sets a limit counts on it.
		return event.RunFailed{
			Reason: event.FailUsageUnknown,
			Error: fmt.Sprintf("the run was ended because the provider did not say how many tokens turn %d took, so the limit of its agent (%s) cannot be kept",
				unreported, l.ofUsage()),
		}, true
	}
	return event.RunFailed{}, false
}

func (l Limits) ofUsage() string {
	if l.Tokens > 0 {
		return fmt.Sprintf("%d tokens", l.Tokens)
	}
	return "a cost of " + FormatMicros(l.CostMicros)
}

// limited ends a run that has reached a limit: what was not run is not run any
// more.
func limited(newID func() string, r Run, fail event.RunFailed) []event.Payload {
	out := closing(newID, r, string(fail.Reason))
	for i, p := range out {
		if res, ok := p.(event.ToolResult); ok && res.Reason == hooks.ReasonCancelled {
			res.Reason, res.Content = hooks.ReasonLimit, textLimit
			out[i] = res
		}
	}
	return append(out, fail)
}

// repeated finds a call of the last turn that each of the last n turns has.
func repeated(turns []Turn, n int) (Call, bool) {
	if n <= 0 || len(turns) < n {
		return Call{}, false
	}
	last := turns[len(turns)-1]
	for _, c := range last.Calls {
		everywhere := true
		for _, t := range turns[len(turns)-n:] {
			everywhere = everywhere && t.calls(c.ToolCall)
		}
		if everywhere {
			return c, true
		}
	}
	return Call{}, false
}

func (t Turn) calls(same hooks.ToolCall) bool {
	for _, c := range t.Calls {
		if c.Name == same.Name && c.Arguments == same.Arguments {
			return true
		}
	}
	return false
}

// timedOut ends a run whose time is over.
func timedOut(newID func() string, r Run, l Limits) []event.Payload {
	return limited(newID, r, event.RunFailed{
		Reason: event.FailTimeout,
		Error:  fmt.Sprintf("the run was ended after %s of work, the limit of its agent", l.RunTime),
	})
}

// watchTime lets r.expiry have a value once the run's time is over; the
// function frees the timer.
func (r *runner) watchTime() (stop func()) {
	limit := r.engine.Agents[r.run().Agent].Limits.RunTime
	if limit <= 0 {
		return func() {}
	}
	t := time.NewTimer(limit - r.run().Held)
	r.expiry = t.C
	return func() { t.Stop() }
}

// overdue reports whether the run's time is over.
func (r *runner) overdue() bool {
	select {
	case <-r.expiry:
		r.expired = true
	default:
	}
	return r.expired
}
