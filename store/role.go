package store

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// RoleSettings are limits on what a session of agentd's role may do in its
// database. A zero field leaves that limit as the database has it.
type RoleSettings struct {
	// LockTimeout ends a statement that waits for a lock.
	LockTimeout time.Duration
	// StatementTimeout ends a statement.
	StatementTimeout time.Duration
	// IdleInTransaction ends a session that has a transaction open and says
	// nothing: without it the locks of a worker that was suspended, or cut off
	// from the network, stall its sessions for as long as TCP believes in it.
	IdleInTransaction time.Duration
}

// ConfigureRole stores the limits with the role and the database, so that they
// hold for every session that begins afterwards: call it before the pool opens.
// It also switches just-in-time compilation off. The planner takes the short
// statements of an append for expensive ones, above all while a database has no
// statistics, and compiling them takes a hundred times as long as they do.
// A start-up parameter would be simpler, and poolers refuse it. It overwrites
// what somebody else stored for the same role, and writes nothing that is
// already there. Any number of processes may call it at once.
func ConfigureRole(ctx context.Context, databaseURL string, settings RoleSettings) error {
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return fmt.Errorf("configure role: %w", err)
	}
	conn, err := pgx.ConnectConfig(ctx, plain(config))
	if err != nil {
		return fmt.Errorf("configure role: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := setForRole(ctx, conn, "jit", "off"); err != nil {
		return fmt.Errorf("configure role: jit: %w", err)
	}
	for _, s := range []struct {
		name  string
		value time.Duration
	}{
		{"lock_timeout", settings.LockTimeout},
		{"statement_timeout", settings.StatementTimeout},
		{"idle_in_transaction_session_timeout", settings.IdleInTransaction},
	} {
		if s.value <= 0 {
			continue
		}
		value := strconv.FormatInt(s.value.Milliseconds(), 10) + "ms"
		if err := setForRole(ctx, conn, s.name, value); err != nil {
			return fmt.Errorf("configure role: %s: %w", s.name, err)
		}
	}
	return nil
}

const (
	sharedRowAttempts = 100
	sharedRowPause    = 10 * time.Millisecond // on average
)

// setForRole repeats itself when another process wrote the same row of the
// catalog at the same time, which Postgres does not wait out but refuses.
func setForRole(ctx context.Context, conn *pgx.Conn, name, value string) error {
	for attempt := 1; ; attempt++ {
		stored, err := roleSettings(ctx, conn)
		if err != nil {
			return err
		}
		if slices.Contains(stored, name+"="+value) {
			return nil
		}
		var database string
		if err := conn.QueryRow(ctx, `SELECT current_database()`).Scan(&database); err != nil {
			return err
		}
		_, err = conn.Exec(ctx, fmt.Sprintf(`ALTER ROLE CURRENT_USER IN DATABASE %s SET %s = '%s'`,
			pgx.Identifier{database}.Sanitize(), name, value))
		if err == nil || attempt == sharedRowAttempts || !hasCode(err, codeInternalError, codeUniqueViolation) {
			return err
		}
		select {
		case <-time.After(rand.N(2 * sharedRowPause)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func roleSettings(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	rows, err := conn.Query(ctx, `
		SELECT unnest(s.setconfig)
		FROM pg_catalog.pg_db_role_setting s
		JOIN pg_catalog.pg_database d ON d.oid = s.setdatabase
		JOIN pg_catalog.pg_roles r ON r.oid = s.setrole
		WHERE d.datname = current_database() AND r.rolname = current_user`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

const readerRole = "agentd_reader"

// readable are the tables that hold no secret. A table that is not named here
// is hidden from agentd_reader; views are made for people, and all visible.
var readable = []string{
	"tenants", "sessions", "events", "runs", "turns", "messages", "tool_calls", "workers", "memories",
	"approvals", "hook_decisions", "hook_payloads", "hook_sets", "hook_set_loads", "tombstones", "pauses", "emission_order", "plugin_cursors",
	"goose_db_version", "river_migration", // what a command asks first
}

// grantReader makes the role for people who only look, if it may, and gives it
// its rights in this database. A role belongs to the whole cluster: another
// database's migration may make it at the same moment, and the owner of a
// database may well have no right to. Then it is somebody else's to make, and
// the next Migrate gives it its rights.
func grantReader(ctx context.Context, conn *pgx.Conn, logger *slog.Logger) error {
	exists, err := roleExists(ctx, conn)
	if err != nil {
		return err
	}
	if !exists {
		_, err := conn.Exec(ctx, `CREATE ROLE agentd_reader NOLOGIN`)
		switch {
		case hasCode(err, codeInsufficientPriv):
			logger.WarnContext(ctx, "role agentd_reader does not exist and this user may not make it: have it made, then migrate again", "error", err)
			return nil
		case err != nil && !hasCode(err, codeDuplicateObject, codeUniqueViolation, codeInternalError):
			return err
		}
	}
	rows, err := conn.Query(ctx, `
		SELECT c.relname FROM pg_catalog.pg_class c
		WHERE c.relnamespace = 'agentd'::regnamespace
			AND (c.relkind IN ('v', 'm') OR c.relkind IN ('r', 'p') AND c.relname = ANY($1))
		ORDER BY c.relname`, readable)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	grants := `GRANT USAGE ON SCHEMA agentd TO agentd_reader;`
	for _, name := range names {
		grants += ` GRANT SELECT ON ` + pgx.Identifier{schemaName, name}.Sanitize() + ` TO agentd_reader;`
	}
	_, err = conn.Exec(ctx, grants)
	if hasCode(err, codeUndefinedObject, codeInsufficientPriv) {
		logger.WarnContext(ctx, "role agentd_reader got no rights: migrate again once it exists", "error", err)
		return nil
	}
	return err
}

func roleExists(ctx context.Context, conn *pgx.Conn) (exists bool, err error) {
	err = conn.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = $1)`, readerRole).Scan(&exists)
	return exists, err
}
