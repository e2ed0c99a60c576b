package store

import "github.com/seed-2ca4966b/agentd/loop"

// finishQueue looks for runs that nobody will ever begin: the end of the active
// run is what begins the next one.
func (h *history) finishQueue() {
	if h.state.Deleted {
		return
	}
	for _, r := range h.state.Runs {
		if r.Status.Active() {
			return
		}
	}
	for _, r := range h.state.Runs {
		if r.Status == loop.RunEnqueued {
			h.report.add(Difference{
				Table: "runs", Row: r.ID, Column: "status", Got: "an enqueued run and no active run", Want: "an active run, or the next one queued",
			})
		}
	}
}
