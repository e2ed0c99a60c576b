package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/store"
)

// ledgerFlags say whose ledgers are meant.
type ledgerFlags struct {
	databaseFlags

	Session string `arg:"" optional:"" help:"The id of a session."`
	All     bool   `help:"All sessions."`
	Tenant  string `placeholder:"ID" help:"All sessions of a tenant."`
}

func (f ledgerFlags) scope() (store.LedgerScope, error) {
	named := 0
	for _, is := range []bool{f.Session != "", f.All, f.Tenant != ""} {
		if is {
			named++
		}
	}
	if named != 1 {
		return store.LedgerScope{}, &exitError{code: exitUsage, err: errors.New("whose ledger? Name a session, or --all, or --tenant")}
	}
	return store.LedgerScope{SessionID: f.Session, TenantID: f.Tenant}, nil
}

type ledgerVerifyCmd struct {
	ledgerFlags
	Against string `type:"existingfile" placeholder:"FILE" help:"An earlier export, or its lines of sessions: their heads must still stand."`
}

// Run computes the hashes again, prints what is wrong, a line each, and fails
// if anything is.
func (cmd ledgerVerifyCmd) Run(ctx context.Context, streams *std) error {
	scope, err := cmd.scope()
	if err != nil {
		return err
	}
	return cmd.withDatabase(ctx, func(ctx context.Context, pool *pgxpool.Pool) error {
		problems := int64(0)
		report := func(p store.LedgerProblem) error {
			problems++
			_, err := fmt.Fprintln(streams.out, printable(p.String()))
			return err
		}
		seen, err := store.VerifyLedger(ctx, pool, scope, report)
		if err != nil {
			return namingSession(err, cmd.Session)
		}
		compared := ""
		if cmd.Against != "" {
			n, err := compareWith(ctx, pool, cmd.Against, report)
			if err != nil {
				return err
			}
			compared = ", " + count(n, "ledger") + " compared with the export"
		}
		fmt.Fprintf(streams.out, "%s, %s%s: %s\n", sessionsOf(seen), count(seen.Decisions, "decision"), compared, count(problems, "problem"))
		if problems > 0 {
			return &exitError{code: exitFailure}
		}
		return nil
	})
}

func compareWith(ctx context.Context, pool *pgxpool.Pool, file string, report func(store.LedgerProblem) error) (int64, error) {
	export, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer func() { _ = export.Close() }() // it was only read
	n, err := store.CompareLedger(ctx, pool, export, report)
	if err != nil {
		return n, fmt.Errorf("%s: %w", file, err)
	}
	return n, nil
}

// sessionsOf names those that were purged only if there are some.
func sessionsOf(seen store.LedgerCount) string {
	text := count(seen.Sessions, "session")
	if seen.Tombstones > 0 {
		text += ", " + count(seen.Tombstones, "purged session")
	}
	return text
}

// namingSession says which session there is not.
func namingSession(err error, session string) error {
	if errors.Is(err, loop.ErrNotFound) {
		return fmt.Errorf("there is no session %s", session)
	}
	return err
}
