package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/store"
)

type ledgerExportCmd struct {
	ledgerFlags
}

// Run writes ledgers as lines of JSON. What it counted goes to standard error.
func (cmd ledgerExportCmd) Run(ctx context.Context, streams *std) error {
	scope, err := cmd.scope()
	if err != nil {
		return err
	}
	return cmd.withDatabase(ctx, func(ctx context.Context, pool *pgxpool.Pool) error {
		seen, err := store.ExportLedger(ctx, pool, scope, streams.out)
		if err != nil {
			return namingSession(err, cmd.Session)
		}
		fmt.Fprintf(streams.err, "%s, %s\n", sessionsOf(seen), count(seen.Decisions, "decision"))
		return nil
	})
}
