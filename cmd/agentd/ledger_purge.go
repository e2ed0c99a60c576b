package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/store"
)

// destroyFlags name a session, and confirm.
type destroyFlags struct {
	databaseFlags

	Session string `arg:"" help:"The id of a session."`
	Yes     bool   `help:"Do it. Without this, it only says what it would do."`
}

// unconfirmed is how a command ends that changed nothing for want of --yes.
func (f destroyFlags) unconfirmed() error {
	if f.Yes {
		return nil
	}
	return &exitError{code: exitFailure, err: fmt.Errorf("nothing was changed: there is no way back, so repeat it with --yes")}
}

type ledgerEraseCmd struct {
	destroyFlags
}

// Run erases what hooks said in a session.
func (cmd ledgerEraseCmd) Run(ctx context.Context, streams *std) error {
	return cmd.withDatabase(ctx, func(ctx context.Context, pool *pgxpool.Pool) error {
		n, err := store.ErasePayloads(ctx, pool, cmd.Session, !cmd.Yes)
		if err != nil {
			return namingSession(err, cmd.Session)
		}
		fmt.Fprintf(streams.out, "session %s: %s erased\n", cmd.Session, count(n, "payload"))
		return cmd.unconfirmed()
	})
}

type ledgerPurgeCmd struct {
	destroyFlags
	Reason string `required:"" help:"Why. It is kept with the tombstone."`
	By     string `placeholder:"NAME" help:"Who wants it; the database user if you do not say. It is kept as well."`
}

// Run deletes everything of a session.
func (cmd ledgerPurgeCmd) Run(ctx context.Context, streams *std) error {
	return cmd.withDatabase(ctx, func(ctx context.Context, pool *pgxpool.Pool) error {
		t, err := store.PurgeSession(ctx, pool, cmd.Session, cmd.By, cmd.Reason, !cmd.Yes)
		if err != nil {
			return namingSession(err, cmd.Session)
		}
		fmt.Fprintf(streams.out, "session %s of tenant %s: %s and %s purged, with all that was said\n",
			t.SessionID, printable(t.TenantID), count(t.Events, "event"), count(t.Decisions, "decision"))
		if t.LedgerHead != "" {
			fmt.Fprintf(streams.out, "its ledger ended with %s\n", t.LedgerHead)
		}
		return cmd.unconfirmed()
	})
}
