package audit

import (
	"fmt"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// stoppedBy: an observer's stop says what follows, which is something that there
// is, and whether the model is told.
func (a *Auditor) stoppedBy(before loop.State, e event.Event, p event.AssistantStopped) {
	if p.Observer == "" {
		return
	}
	asksAgain := p.Policy == stream.StopRetry || p.Policy == stream.StopFallback
	switch {
	case p.Reason != event.StoppedByObserver:
		a.find(RuleStop, e, "its reason is another")
	case !asksAgain && p.Policy != stream.StopEndTurn && p.Policy != stream.StopFail:
		a.find(RuleStop, e, "it does not say what follows")
	case asksAgain != (p.Notice != nil):
		a.find(RuleStop, e, fmt.Sprintf("the policy is %s, and the model is told: %t", p.Policy, p.Notice != nil))
	}
	r, _ := before.Run(e.RunID)
	for _, t := range r.Turns {
		if t.Stop != nil && t.Stop.Policy == stream.StopRetry && p.Policy == stream.StopRetry {
			a.find(RuleStop, e, "the model was asked again before")
		}
	}
}

// completes: a run whose last answer was stopped is completed where that is the
// policy, and says so.
func (a *Auditor) completes(before loop.State, e event.Event, p event.RunCompleted) {
	r, _ := before.Run(e.RunID)
	t, _ := r.Turn()
	if says := p.Reason == event.StoppedByObserver; says != (t.Stop != nil) || says && t.Stop.Policy != stream.StopEndTurn {
		a.find(RuleStop, e, "it is not what was to follow the last answer")
	}
}
