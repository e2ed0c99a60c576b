package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/store"
)

type exportCmd struct {
	databaseFlags

	Session string `arg:"" help:"The id of the session."`
}

// Run writes a session as lines of JSON. What it counted goes to standard error.
func (cmd exportCmd) Run(ctx context.Context, streams *std) error {
	return cmd.withDatabase(ctx, func(ctx context.Context, pool *pgxpool.Pool) error {
		seen, err := store.ExportSession(ctx, pool, cmd.Session, streams.out)
		if err != nil {
			return namingSession(err, cmd.Session)
		}
		fmt.Fprintf(streams.err, "%s, %s, %s, %s\n", sessionsOf(seen.LedgerCount),
			count(seen.Events, "event"), count(seen.Messages, "message"), count(seen.Decisions, "decision"))
		return nil
	})
}
