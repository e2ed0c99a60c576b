package loop

import (
	"fmt"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// byUnknown stands in an approval for who wants to know.
const byUnknown = "on_unknown"

// unknown finds the first call of t of which nobody knows whether it has taken
// effect, and which must not be run twice.
func (t Turn) unknown(agent Agent) (Call, bool) {
	for _, c := range t.Calls {
		if c.Status != CallStarted {
			continue
		}
		if tool, ok := agent.tool(c.Name); !ok || !tool.Spec().Idempotent {
			return c, true
		}
	}
	return Call{}, false
}

// askOutcome asks people whether a call that was interrupted has taken effect.
// The answer is bound to the bytes that were handed to the tool.
func askOutcome(id string, agent Agent, c Call) event.ApprovalRequested {
	return event.ApprovalRequested{
		ApprovalID: id, Kind: event.ApprovalOfOutcome, CallID: c.ID, Name: c.Name,
		Arguments: c.final(), ArgumentsSHA256: digest(c.final()), By: byUnknown, Approvers: agent.Approvers,
		Reason: fmt.Sprintf("attempt %d was interrupted before the tool answered, so it may have taken effect; its idempotency key is %s", c.Attempt, c.ID),
	}
}

// unknownEnds ends the run at a call of unknown outcome: nothing else of the
// turn is run.
func (r *runner) unknownEnds(d *draft, c Call) step {
	run := d.run()
	for _, p := range closing(r.engine.NewID, run, string(event.FailOutcomeUnknown)) {
		if res, ok := p.(event.ToolResult); ok && res.Reason == hooks.ReasonCancelled {
			res.Reason, res.Content = hooks.ReasonNotRun, textEndedFirst
			p = res
		}
		d.add(p)
	}
	name, sanitized := event.CleanText(c.Name)
	d.end(void(r.asked), event.RunFailed{
		Reason: event.FailOutcomeUnknown, Sanitized: sanitized,
		Error: fmt.Sprintf("the run was ended because nobody knows whether %s has taken effect: call %s was started and interrupted",
			event.Shorten(name, 80), c.ID),
	})
	return step{act: actEnd}
}
