package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/user"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/store"
)

// defaultTenant is the one that everybody belongs to.
const defaultTenant = "default"

// scopeFlags say what a pause covers.
type scopeFlags struct {
	All    bool   `help:"All runs of all tenants."`
	Tenant string `placeholder:"NAME" help:"The runs of this tenant."`
	Agent  string `placeholder:"NAME" help:"The runs of this agent, of the tenant default unless --tenant names another."`
}

// pause returns the pause that the flags describe.
func (f scopeFlags) pause() (loop.Pause, error) {
	switch {
	case f.All && (f.Tenant != "" || f.Agent != ""):
		return loop.Pause{}, &exitError{code: exitUsage, err: errors.New("--all covers every tenant and agent: give it alone")}
	case !f.All && f.Tenant == "" && f.Agent == "":
		return loop.Pause{}, &exitError{code: exitUsage, err: errors.New("which runs? Give --all, --tenant NAME or --agent NAME (`agentd pause --list` says what is paused)")}
	case f.Agent != "" && f.Tenant == "":
		f.Tenant = defaultTenant
	}
	return loop.Pause{TenantID: f.Tenant, Agent: f.Agent}, nil
}

type pauseCmd struct {
	databaseFlags
	scopeFlags

	Reason string `placeholder:"TEXT" help:"Why, for people."`
	List   bool   `help:"Say what is paused, and change nothing."`
}

// Run stores the pause, or lists them.
func (cmd pauseCmd) Run(ctx context.Context, streams *std) error {
	if cmd.List {
		return cmd.withStore(ctx, func(ctx context.Context, s *store.Store) error {
			return printPauses(ctx, s, streams.out)
		})
	}
	p, err := cmd.pause()
	if err != nil {
		return err
	}
	p.Reason, p.By = cmd.Reason, operator()
	return cmd.withStore(ctx, func(ctx context.Context, s *store.Store) error {
		p, err := s.Pause(ctx, p)
		if err != nil {
			return aboutTenant(err, p.TenantID, cmd.Tenant)
		}
		n, err := s.Covered(ctx, p)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(streams.out, "paused: %s, since %s\nit covers %d queued, %d running and %d waiting runs; within 2 s no step of them begins\n",
			coverage(p), p.Since.Local().Format(time.DateTime), n.Queued, n.Running, n.Waiting)
		return err
	})
}

type resumeCmd struct {
	databaseFlags
	scopeFlags
}

// Run ends the pause.
func (cmd resumeCmd) Run(ctx context.Context, streams *std) error {
	p, err := cmd.pause()
	if err != nil {
		return err
	}
	return cmd.withStore(ctx, func(ctx context.Context, s *store.Store) error {
		was, err := s.Resume(ctx, p.TenantID, p.Agent)
		if err != nil {
			return err
		}
		if !was {
			if err := printPauses(ctx, s, streams.out); err != nil {
				return err
			}
			return &exitError{code: exitFailure, err: fmt.Errorf("%s: that was not paused", coverage(p))}
		}
		fmt.Fprintf(streams.out, "resumed: %s\n", coverage(p))
		return printPauses(ctx, s, streams.out)
	})
}

// aboutTenant says which tenant there is not.
func aboutTenant(err error, names ...string) error {
	if !errors.Is(err, loop.ErrNotFound) {
		return err
	}
	for _, name := range names {
		if name != "" {
			return fmt.Errorf("there is no tenant %q", printable(name))
		}
	}
	return err
}

func coverage(p loop.Pause) string {
	switch {
	case p.Agent != "":
		return fmt.Sprintf("agent %s of tenant %s", printable(p.Agent), printable(p.TenantID))
	case p.TenantID != "":
		return "tenant " + printable(p.TenantID)
	}
	return "everything"
}

func printPauses(ctx context.Context, s *store.Store, out io.Writer) error {
	list, err := s.ListPauses(ctx, "")
	if err != nil {
		return err
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(out, "nothing is paused")
		return err
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PAUSED\tSINCE\tBY\tREASON")
	for _, p := range list {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", coverage(p), p.Since.Local().Format(time.DateTime), oneLine(p.By.ID, 80), orElse(oneLine(p.Reason, 200), "-"))
	}
	return t.Flush()
}

// operator is the person at the command line.
func operator() event.Actor {
	name := "somebody"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	return event.Actor{Kind: event.ActorPrincipal, ID: name}
}

// withStore calls do with a store that is not started: it reads and writes
// tables, and appends nothing.
func (f databaseFlags) withStore(ctx context.Context, do func(context.Context, *store.Store) error) error {
	return f.withDatabase(ctx, func(ctx context.Context, pool *pgxpool.Pool) error {
		return do(ctx, store.New(pool, store.Options{}))
	})
}
