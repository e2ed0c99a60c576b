package loop

import (
	"context"
)

// RunView is what a run has, as its model is told it.
type RunView struct {
	// System is the system prompt, "" for none.
	System string
	// Tools are the names of those that it may call, in their order.
	Tools []string
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
	for _, t := range present(run.tools(agent)) {
		v.Tools = append(v.Tools, t.Spec().Name)
	}
	return v, nil
}
