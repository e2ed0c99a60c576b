package audit

import (
	"slices"
	"strings"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// taken reports whether a tool was taken from a run in a turn before that one.
func (a *Auditor) taken(runID string, turn int, tool string) bool {
	if tool == "ping" || strings.HasPrefix(tool, "memory_") {
		return false
	}
	return slices.ContainsFunc(a.narrowings, func(n narrowing) bool {
		return n.event.RunID == runID && n.event.Turn < turn && !slices.Contains(n.left.Tools, tool)
	})
}

// offered: a model is told of no tool that was taken from its run in an earlier turn.
func (a *Auditor) offered(e event.Event, p event.ModelRequested) {
	if slices.ContainsFunc(p.Tools, func(tool string) bool { return a.taken(e.RunID, e.Turn, tool) }) {
		a.find(RuleTools, e, "the model is told of a tool that was taken from the run before")
	}
}

// startable: nor is one started.
func (a *Auditor) startable(before loop.State, e event.Event, p event.ToolStarted) {
	if a.taken(e.RunID, e.Turn, find(before, e.RunID, p.CallID).Name) {
		a.find(RuleTools, e, "call "+p.CallID+" starts a tool that was taken from the run before")
	}
}

// narrowed: somebody has decided it, or a call of the turn has led to it.
func (a *Auditor) narrowed(before loop.State, e event.Event, p event.ToolsNarrowed) {
	switch {
	case (p.DecisionID == "") == (p.CallID == ""):
		a.find(RuleTools, e, "it is not said whether a hook or a tool has narrowed the tools")
	case p.CallID != "" && find(before, e.RunID, p.CallID).Status != loop.CallExecuted:
		a.find(RuleTools, e, "call "+p.CallID+" has narrowed the tools, and was not executed")
	}
	a.narrowings = append(a.narrowings, narrowing{e, p})
}

// narrowing is what somebody has left of a run's tools.
type narrowing struct {
	event event.Event
	left  event.ToolsNarrowed
}

// undecided finds decisions that have narrowed tools and are not recorded, if any are
// there at all.
func (a *Auditor) undecided() {
	for _, n := range a.narrowings {
		if id := n.left.DecisionID; id != "" && len(a.decided) > 0 && !a.decided[id] {
			a.find(RuleTools, n.event, "decision "+id+" has narrowed the tools, and is not recorded")
		}
	}
}
