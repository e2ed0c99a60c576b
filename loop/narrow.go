package loop

import (
	"slices"
	"strings"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// Narrowing is what hooks and tools had left of a run's tools by the end of a turn: see
// [hooks.NarrowTools]. It counts for the turns behind that.
type Narrowing struct {
	// Turn is 0 before the first.
	Turn int
	// Tools are all that are left, of which those before it had no fewer.
	Tools []string
}

// keeps reports whether a tool stays whatever hooks and tools leave of a run's.
func keeps(tool string) bool { return tool == "ping" || strings.HasPrefix(tool, "memory_") }

// MayCall reports whether a run may call that tool in the turn in which it is, if its
// agent has it: what hooks have left of its tools for the whole run, and those that were
// asked in earlier turns, and tools that ran there.
func (r Run) MayCall(tool string) bool {
	t, _ := r.Turn()
	return r.mayCall(tool, t.No)
}

// mayCallNext is MayCall for the next turn.
func (r Run) mayCallNext(tool string) bool {
	t, _ := r.Turn()
	return r.mayCall(tool, t.No+1)
}

func (r Run) mayCall(tool string, turn int) bool {
	if r.Prepared != nil && r.Prepared.Tools != nil && !slices.Contains(*r.Prepared.Tools, tool) {
		return false
	}
	for _, n := range slices.Backward(r.Narrowed) {
		if n.Turn < turn {
			return keeps(tool) || slices.Contains(n.Tools, tool)
		}
	}
	return true
}

// narrowed is r.Narrowed after these tools were left in that turn. Nothing comes back.
func (r Run) narrowed(turn int, tools []string) []Narrowing {
	left := slices.Clone(tools)
	before := len(r.Narrowed) - 1
	if before >= 0 {
		left = slices.DeleteFunc(left, func(name string) bool { return !slices.Contains(r.Narrowed[before].Tools, name) })
	}
	if before >= 0 && r.Narrowed[before].Turn == turn {
		before--
	}
	return append(slices.Clip(r.Narrowed[:before+1]), Narrowing{Turn: turn, Tools: left})
}

// tools are the agent's tools that the run may call.
func (r Run) tools(agent Agent) []Tool {
	if r.Prepared == nil && len(r.Narrowed) == 0 {
		return agent.Tools
	}
	return allowed(agent.Tools, r.MayCall)
}

func allowed(tools []Tool, may func(name string) bool) []Tool {
	not := func(t Tool) bool { return !may(t.Spec().Name) }
	if !slices.ContainsFunc(tools, not) {
		return tools
	}
	return slices.DeleteFunc(slices.Clone(tools), not)
}

// less is what a run is left of its tools where somebody wants it to have no others than
// these, and whether that changes anything.
func (r Run) less(agent Agent, want []string) (left []string, changes bool) {
	goes := func(name string) bool { return !keeps(name) && !slices.Contains(want, name) }
	if n := len(r.Narrowed); n > 0 {
		before := r.Narrowed[n-1].Tools
		left = slices.DeleteFunc(slices.Clone(before), goes)
		return left, len(left) < len(before)
	}
	left = []string{}
	for _, t := range allowed(agent.Tools, r.mayCallNext) {
		if name := t.Spec().Name; !goes(name) {
			left = append(left, name)
		}
	}
	return left, true
}

// narrow drafts what hooks have left of the run's tools.
func (r *runner) narrow(d *draft, said []hooks.Narrowing) {
	for _, n := range said {
		p, changes := r.left(d.run(), n.Tools)
		if p.By, p.DecisionID = n.HookID, n.DecisionID; changes {
			d.add(p)
		}
	}
}

// left is the event of somebody who wants a run to have no other tools than these.
func (r *runner) left(run Run, want []string) (p event.ToolsNarrowed, changes bool) {
	agent, _ := r.configured()
	p.Required = true
	p.Tools, changes = run.less(agent, want)
	return p, changes
}
