package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/store"
)

type verifyCmd struct {
	databaseFlags

	Strict bool `help:"Ask of each log, besides, what the transition table cannot see: who wrote what under which lease, what was joined, run and answered, and whether decisions stand with their effects."`
}

// Run compares the log of every session with the tables.
func (cmd verifyCmd) Run(ctx context.Context, streams *std) error {
	return cmd.withDatabase(ctx, func(ctx context.Context, pool *pgxpool.Pool) error {
		verify := store.Verify
		if cmd.Strict {
			verify = store.VerifyStrict
		}
		report, err := verify(ctx, pool)
		if err != nil {
			return err
		}
		for _, d := range report.Differences {
			fmt.Fprintln(streams.out, printable(d.String()))
		}
		if report.Omitted > 0 {
			fmt.Fprintf(streams.out, "and %d more\n", report.Omitted)
		}
		differences := int64(len(report.Differences)) + report.Omitted
		fmt.Fprintf(streams.out, "%s, %s, %s, %s, %s, %s: %s\n",
			count(report.Sessions, "session"), count(report.Runs, "run"), count(report.ToolCalls, "tool call"),
			count(report.Events, "event"), count(report.Approvals, "approval"), count(report.Decisions, "decision"),
			count(differences, "difference"))
		if differences > 0 {
			return &exitError{code: exitFailure}
		}
		return nil
	})
}

func count(n int64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// withDatabase calls do with a pool on the database, which has this binary's
// schema.
func (f databaseFlags) withDatabase(ctx context.Context, do func(context.Context, *pgxpool.Pool) error) error {
	database, err := f.urlOrDev()
	if err != nil {
		return err
	}
	return untilSignal(ctx, func(ctx context.Context) error {
		pool, err := openVerifyPool(ctx, database)
		if err != nil {
			return err
		}
		defer pool.Close()
		if err := store.CheckSchema(ctx, pool); err != nil {
			return err
		}
		return do(ctx, pool)
	})
}

// openVerifyPool lifts the limits that are made for the short transactions of a
// serving process.
func openVerifyPool(ctx context.Context, database string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(database)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	config.MinConns, config.MinIdleConns, config.MaxConns = 0, 0, 1
	config.ConnConfig.RuntimeParams["application_name"] = "agentd verify"
	pooled, err := store.Pooled(ctx, config.ConnConfig)
	if err != nil {
		return nil, err
	}
	if pooled {
		// What is set there would be set for whoever comes next.
		store.Adapt(config.ConnConfig, hasExecMode(database))
		return pgxpool.NewWithConfig(ctx, config)
	}
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0`)
		return err
	}
	return pgxpool.NewWithConfig(ctx, config)
}
