package main

import (
	"context"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/seed-2ca4966b/agentd/store"
)

type stuckCmd struct {
	databaseFlags

	Limit int `default:"100" help:"List at most so many."`
}

// Run prints what does not go on, and what to do about it.
func (cmd stuckCmd) Run(ctx context.Context, streams *std) error {
	if err := checkLimit(cmd.Limit); err != nil {
		return err
	}
	return cmd.withStore(ctx, func(ctx context.Context, s *store.Store) error {
		list, err := s.Stuck(ctx, cmd.Limit)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			_, err := fmt.Fprintln(streams.out, "nothing is stuck")
			return err
		}
		t := tabwriter.NewWriter(streams.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "RUN\tAGENT\tSTATUS\tFOR\tREASON\tWHY")
		var reasons []string
		for _, r := range list {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", r.RunID, oneLine(r.Agent, 40), r.Status, r.For.Round(time.Second), r.Reason, oneLine(r.Why, longestField))
			if !slices.Contains(reasons, r.Reason) {
				reasons = append(reasons, r.Reason)
			}
		}
		if err := t.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(streams.out)
		for _, reason := range reasons {
			fmt.Fprintf(streams.out, "%s: %s\n", reason, remedies[reason])
		}
		return nil
	})
}

// remedies say for each reason of the view what to do. docs/operations.md has
// the same words.
var remedies = map[string]string{
	"paused":               "no fault: `agentd pause --list` says by whom and why, `agentd resume` ends it",
	"drained":              "restart a drained process, or start another worker: `agentd serve --roles worker`",
	"no_worker":            "start a worker: `agentd serve --roles worker`",
	"not_claimed":          "the workers have no room or hang: `agentd drain` lists them with their runs; start more",
	"job_lost":             "workers queue it again within 10 s; if it stays, their logs say why a sweep fails, and `agentd runs cancel RUN` gives it up",
	"poisoned_soon":        "`agentd explain RUN` says what it does when its workers die; `agentd runs fail RUN --reason TEXT` spares the next one",
	"not_promoted":         "workers begin it within 3 s; if it stays, their logs say why a sweep fails, and `agentd runs cancel RUN` gives it up",
	"worker_gone":          "a living worker takes it over within its lease: start one if none is; `agentd runs fail RUN --reason TEXT` ends it at once",
	"model_silent":         "the provider's timeouts end it; `agentd runs cancel RUN` does so now and keeps what was shown",
	"tool_silent":          "`agentd runs cancel RUN` stops the tool; whether it took effect is then not known",
	"no_progress":          "`agentd runs cancel RUN`; if its worker does not hear, `agentd runs fail RUN --reason TEXT`, then `agentd drain WORKER`",
	"waiting_for_approval": "`agentd approvals` lists the questions: approve or deny; `agentd runs cancel RUN` gives it up",
	"not_queued":           "`agentd runs fail RUN --reason TEXT`, then `agentd runs retry RUN`",
}
