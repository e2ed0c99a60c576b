package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/seed-2ca4966b/agentd/migrations"
)

const (
	schemaName     = "agentd"
	versionTable   = schemaName + ".goose_db_version"
	migrateLockKey = 0x6167656e7464 // "agentd"
	lockPollEvery  = 50 * time.Millisecond
	// A migration that waits for a table makes everybody else wait behind it.
	migrateLockTimeout = 10 * time.Second
)

// ErrSchemaOld means that the database lacks migrations of this binary.
var ErrSchemaOld = errors.New("schema is older than this binary: run `agentd migrate`")

// Migrate brings a database to this binary's schema, River's tables included,
// and gives agentd_reader its rights. It may be called any number of times, by
// any number of processes at once: they take turns. A schema that is newer
// than this binary is left as it is. What was applied before an error stays
// applied, and the next Migrate goes on from there.
//
// Behind a pooler in transaction mode the lock would protect nothing: there it
// changes nothing and returns an error that wraps [ErrPooled].
func Migrate(ctx context.Context, databaseURL string, logger *slog.Logger) (err error) {
	if err := refusePooler(ctx, databaseURL); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	pool, err := openMigrationPool(ctx, databaseURL)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	defer pool.Close()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("migrate: connect: %w", err)
	}
	defer conn.Release()
	if err := lockMigrations(ctx, conn.Conn()); err != nil {
		return fmt.Errorf("migrate: wait for another migration: %w", err)
	}
	// Closing the pool closes the connection, and that frees the lock.
	if err := createSchema(ctx, conn.Conn()); err != nil {
		return fmt.Errorf("migrate: create schema %s: %w", schemaName, err)
	}
	if err := migrateAgentd(ctx, pool, logger); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if err := migrateRiver(ctx, pool, logger); err != nil {
		return fmt.Errorf("migrate: queue tables: %w", err)
	}
	if err := grantReader(ctx, conn.Conn(), logger); err != nil {
		return fmt.Errorf("migrate: rights of %s: %w", readerRole, err)
	}
	return nil
}

func refusePooler(ctx context.Context, databaseURL string) error {
	cfg, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return err
	}
	pooled, err := Pooled(ctx, cfg.ConnConfig)
	if err == nil && pooled {
		return fmt.Errorf("%w, where two migrations at once would not see each other: give the address of Postgres itself", ErrPooled)
	}
	return err
}

// openMigrationPool has a connection for the lock and one for the migrations.
func openMigrationPool(ctx context.Context, databaseURL string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, err
	}
	cfg.MinConns, cfg.MinIdleConns, cfg.MaxConns = 0, 0, 2
	cfg.ConnConfig.RuntimeParams["application_name"] = "agentd migrate"
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		// The role's own limits are made for the short statements of a
		// serving process; building an index may take hours.
		_, err := conn.Exec(ctx, fmt.Sprintf(
			`SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; SET lock_timeout = %d`,
			migrateLockTimeout.Milliseconds()))
		return err
	}
	return pgxpool.NewWithConfig(ctx, cfg)
}

// lockMigrations polls: a session that waits inside pg_advisory_lock holds a
// snapshot, and CREATE INDEX CONCURRENTLY in the process that has the lock
// would wait for that snapshot, for ever.
func lockMigrations(ctx context.Context, conn *pgx.Conn) error {
	tick := time.NewTicker(lockPollEvery)
	defer tick.Stop()
	for {
		var got bool
		if err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1)`, int64(migrateLockKey)).Scan(&got); err != nil || got {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// createSchema looks first, because IF NOT EXISTS still asks for the right to
// create schemas, which the owner of a schema that was made for it may lack.
func createSchema(ctx context.Context, conn *pgx.Conn) error {
	var exists bool
	err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1)`, schemaName).Scan(&exists)
	if err != nil || exists {
		return err
	}
	_, err = conn.Exec(ctx, `CREATE SCHEMA agentd`)
	return err
}

func migrateAgentd(ctx context.Context, pool *pgxpool.Pool, logger *slog.Logger) (err error) {
	db := stdlib.OpenDBFromPool(pool)
	defer func() { err = errors.Join(err, db.Close()) }()
	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations.FS,
		goose.WithTableName(versionTable), goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	applied, err := provider.Up(ctx)
	for _, m := range applied {
		logger.InfoContext(ctx, "migration applied", "migration", m.Source.Path, "duration", m.Duration)
	}
	return err
}

func migrateRiver(ctx context.Context, pool *pgxpool.Pool, logger *slog.Logger) error {
	migrator, err := riverMigrator(pool)
	if err != nil {
		return err
	}
	result, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	if err != nil {
		return err
	}
	for _, m := range result.Versions {
		logger.InfoContext(ctx, "queue migration applied", "version", m.Version, "duration", m.Duration)
	}
	return nil
}

func riverMigrator(pool *pgxpool.Pool) (*rivermigrate.Migrator[pgx.Tx], error) {
	return rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{
		Schema: schemaName,
		Logger: slog.New(slog.DiscardHandler),
	})
}

// SchemaVersion returns the number of the last migration of agentd's own that
// a database has, 0 if it has none.
func SchemaVersion(ctx context.Context, pool *pgxpool.Pool) (int64, error) {
	return versionIn(ctx, pool, `SELECT coalesce(max(version_id), 0) FROM agentd.goose_db_version WHERE is_applied`)
}

// CheckSchema returns an error that wraps [ErrSchemaOld] unless the database
// has every migration of this binary. A newer schema is fine: migrations leave
// the binary of the release before running.
func CheckSchema(ctx context.Context, pool *pgxpool.Pool) error {
	have, err := SchemaVersion(ctx, pool)
	if err != nil {
		return fmt.Errorf("check schema: %w", err)
	}
	want, err := newestMigration()
	if err != nil {
		return fmt.Errorf("check schema: %w", err)
	}
	if have < want {
		return fmt.Errorf("%w (the database is at version %d, this binary needs %d)", ErrSchemaOld, have, want)
	}
	have, err = versionIn(ctx, pool, `SELECT coalesce(max(version), 0) FROM agentd.river_migration WHERE line = 'main'`)
	if err != nil {
		return fmt.Errorf("check schema: queue tables: %w", err)
	}
	migrator, err := riverMigrator(pool)
	if err != nil {
		return fmt.Errorf("check schema: queue tables: %w", err)
	}
	for _, m := range migrator.AllVersions() {
		want = int64(m.Version)
	}
	if have < want {
		return fmt.Errorf("%w (the queue's tables are at version %d, this binary needs %d)", ErrSchemaOld, have, want)
	}
	return nil
}

// versionIn runs a query on a table of versions; without the table it is 0.
func versionIn(ctx context.Context, pool *pgxpool.Pool, query string) (int64, error) {
	var version int64
	err := pool.QueryRow(ctx, query).Scan(&version)
	if hasCode(err, codeUndefinedTable) {
		return 0, nil
	}
	return version, err
}

// newestMigration is the number of the last embedded file, whose names sort in
// the order of their numbers.
func newestMigration() (int64, error) {
	entries, err := migrations.FS.ReadDir(".")
	if err != nil {
		return 0, err
	}
	var newest int64
	for _, e := range entries {
		version, err := goose.NumericComponent(e.Name())
		if err != nil {
			return 0, fmt.Errorf("migration %s: %w", e.Name(), err)
		}
		newest = max(newest, version)
	}
	return newest, nil
}

// SQLSTATE codes that mean something here.
const (
	codeUndefinedTable      = "42P01"
	codeUndefinedObject     = "42704"
	codeDuplicateObject     = "42710"
	codeUniqueViolation     = "23505"
	codeForeignKeyViolation = "23503"
	codeInternalError       = "XX000" // "tuple concurrently updated" has no code of its own
	codeInsufficientPriv    = "42501"
	codeNoDataFound         = "P0002"
	codeObjectInUse         = "55006"
)

func hasCode(err error, codes ...string) bool {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return false
	}
	for _, code := range codes {
		if pgErr.Code == code {
			return true
		}
	}
	return false
}
