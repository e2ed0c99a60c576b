package loop

import (
	"context"
)

// RunView is what a run has, as its model is told it.
type RunView struct {
	// System is the system prompt, "" for none.
	System string
	// Tools are the names of those that it may call from its next turn on, as far as
	// that is known now, in their order.
	Tools []string
	// Away are those that it might call if they were not away: see [Available].
	Away []string
	// Kept are those of both that stay, whatever is left of its tools: see
	// [hooks.NarrowTools].
	Kept []string
}

// View returns what an active run has now. It asks no hook. A run that there is not,
// or whose agent is none of the engine's, is [ErrNotFound], and so is one that has
// ended.
func (e *Engine) View(ctx context.Context, tenantID, sessionID, runID string) (RunView, error) {
	state, err := e.Log.Load(ctx, tenantID, sessionID, runID)
	if err != nil {
		return RunView{}, err
	}
	run, ok := state.Run(runID)
	agent, known := e.Agents[run.Agent]
	if !ok || !known || state.Deleted || run.Status.Terminal() {
		return RunView{}, ErrNotFound
	}
	asks, done := e.inForce()
	defer done()
	agent.Tools = asks.tools(agent.Tools)
	var v RunView
	v.System, _ = modelContext(agent, state, run)
	for _, t := range allowed(agent.Tools, run.mayCallNext) {
		name := t.Spec().Name
		if away(t) {
			v.Away = append(v.Away, name)
		} else {
			v.Tools = append(v.Tools, name)
		}
		if keeps(name) {
			v.Kept = append(v.Kept, name)
		}
	}
	return v, nil
}
