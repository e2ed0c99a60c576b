// Command embed is a Go program of somebody else that has agentd in it: a help
// desk whose agent refunds orders, with a tool and a policy of its own. There
// is no other process and no front door; what is said goes through the same log,
// gates and ledger as everything that `agentd serve` does.
//
//	go run ./examples/embed "refund 20 for order 4711" "refund 900 for order 4711"
//
// It needs a Postgres that AGENTD_DATABASE_URL names.
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/model/scripted"
	"github.com/seed-2ca4966b/agentd/loop/worker"
	"github.com/seed-2ca4966b/agentd/store"
)

const (
	tenant = "default"
	agent  = "helpdesk"
	// leaving is how long the program takes to end at most.
	leaving = 10 * time.Second
)

// script is what the model plays. A real one is openai.New or anthropic.New.
//
//go:embed script.json
var script []byte

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv("AGENTD_DATABASE_URL"), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "embed:", err)
		os.Exit(1) //nolint:gocritic // the signals that stop would give back go with the process
	}
}

// run says each text in one session and prints what becomes of it.
func run(ctx context.Context, database string, texts []string, out io.Writer) (err error) {
	if database == "" {
		return errors.New("AGENTD_DATABASE_URL is not set: give it the URL of a Postgres")
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if err := store.Migrate(ctx, database, log); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return fmt.Errorf("database: %w", err)
	}
	defer pool.Close()

	// The log in Postgres, and the queue of its jobs.
	runs := store.New(pool, store.Options{Queue: worker.NewQueue(), Logger: log})
	if err := runs.Start(ctx); err != nil {
		return err
	}
	defer atEnd(&err, runs.Stop)

	// The gates. The set is stored with who put it in force, so that the ledger's
	// rows can be read by it, and agentd.hook_changes tells what is new in it.
	gates := policy()
	load := store.HookSetLoad{Set: gates.Set(), Cause: store.LoadStart, Process: store.Process{ID: newID(), PID: os.Getpid(), Version: "embed"}}
	if err := runs.PutHookSetLoad(ctx, load); err != nil {
		return err
	}
	asker := &hooks.Asker{HookSet: load.Set.Digest}

	// What is asked of agentd (start, cancel, approve …), and what goes on with it.
	plays, err := scripted.Parse(script)
	if err != nil {
		return err
	}
	desk := loop.Agent{
		Name: agent, Model: scripted.New(plays, scripted.Options{}), ModelName: "scripted", System: "You are a help desk.",
		Tools: []loop.Tool{newRefunds()},
	}
	commands := &loop.Commands{
		Log: runs, Agents: []string{agent}, Tools: map[string][]loop.Tool{agent: desk.Tools}, Hooks: gates, Asker: asker,
		NewID: newID, Now: time.Now, Logger: log,
	}
	engine := &loop.Engine{
		Log: runs, Agents: map[string]loop.Agent{agent: desk}, Hooks: gates, Asker: asker, NewID: newID, Now: time.Now, Logger: log,
	}
	works, err := worker.New(worker.Config{
		Pool: pool, Engine: engine, Commands: commands, Leases: store.NewLeases(runs), NewID: newID, Logger: log, Grace: time.Second,
	})
	if err != nil {
		return err
	}
	if err := works.Start(ctx); err != nil {
		return err
	}
	defer atEnd(&err, works.Stop)

	caller := event.Actor{Kind: event.ActorPrincipal, ID: "embed"}
	session, err := commands.CreateSession(ctx, loop.CreateSession{TenantID: tenant, Actor: caller})
	if err != nil {
		return err
	}
	for _, text := range texts {
		started, err := commands.StartRun(ctx, loop.StartRun{TenantID: tenant, SessionID: session.SessionID, Text: text, Actor: caller})
		if err != nil {
			return err
		}
		fmt.Fprintln(out, ">", text)
		if err := await(ctx, runs, session.SessionID, started.RunID); err != nil {
			return err
		}
		if err := tell(ctx, runs, session.SessionID, started, out); err != nil {
			return err
		}
	}
	return nil
}

// await returns when the run has ended, whoever ended it.
func await(ctx context.Context, runs *store.Store, sessionID, runID string) error {
	wake, unwatch := runs.Watch(sessionID)
	defer unwatch()
	for {
		run, err := runs.GetRun(ctx, tenant, runID)
		if err != nil || run.Status.Terminal() {
			return err
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tell prints the answers of a run, and what the hooks decided in it.
func tell(ctx context.Context, runs *store.Store, sessionID string, started loop.StartedRun, out io.Writer) error {
	messages, err := runs.ListMessages(ctx, tenant, sessionID, loop.MessageFilter{}, loop.Page{After: started.MessageID})
	if err != nil {
		return err
	}
	for _, m := range messages {
		if m.Role == hooks.RoleAssistant {
			fmt.Fprintln(out, m.Text())
		}
	}
	decisions, err := runs.ListDecisions(ctx, tenant, loop.DecisionFilter{RunID: started.RunID}, loop.Page{})
	if err != nil {
		return err
	}
	for _, d := range decisions {
		fmt.Fprintf(out, "  %s %s: %s %s\n", d.Gate, d.HookID, d.Action, d.ReasonCode)
	}
	return nil
}

// atEnd calls stop, also when ctx of the caller has ended.
func atEnd(err *error, stop func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), leaving)
	defer cancel()
	*err = errors.Join(*err, stop(ctx))
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }
