package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/store"
)

type drainCmd struct {
	databaseFlags

	All    bool   `help:"Every worker that is alive now; those that start later take runs."`
	Worker string `arg:"" optional:"" help:"The worker's id. Without one, and without --all, the workers are listed."`
}

// Run asks the workers, and lists them.
func (cmd drainCmd) Run(ctx context.Context, streams *std) error {
	if cmd.All && cmd.Worker != "" {
		return &exitError{code: exitUsage, err: errors.New("--all is every worker: give it, or one worker's id")}
	}
	return cmd.withStore(ctx, func(ctx context.Context, s *store.Store) error {
		if !cmd.All && cmd.Worker == "" {
			list, err := s.Workers(ctx)
			if err != nil {
				return err
			}
			return printWorkers(streams.out, list)
		}
		list, err := s.Drain(ctx, cmd.Worker, operator())
		switch {
		case errors.Is(err, loop.ErrNotFound), err == nil && len(list) == 0 && cmd.Worker != "":
			return fmt.Errorf("no worker %q is alive (`agentd drain` lists those that are)", printable(cmd.Worker))
		case err != nil:
			return err
		}
		if err := printWorkers(streams.out, list); err != nil || len(list) == 0 {
			return err
		}
		_, err = fmt.Fprintln(streams.out, "they hand back their runs after the current step and take no more until their processes are started anew")
		return err
	})
}

func printWorkers(out io.Writer, list []store.WorkerRow) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(out, "no worker is alive")
		return err
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "WORKER\tHOST\tVERSION\tSTARTED\tRUNS\tDRAINED BY")
	for _, w := range list {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\n", w.ID, orElse(oneLine(w.Host, 80), "-"), orElse(oneLine(w.Version, 40), "-"),
			w.StartedAt.Local().Format(time.DateTime), w.Runs, orElse(oneLine(w.DrainedBy, 80), "-"))
	}
	return t.Flush()
}
