package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/store"
)

// connection is how a process reaches its database.
type connection struct {
	pool *pgxpool.Pool
	// pooled says that the pool goes through a pooler in transaction mode.
	pooled bool
	// direct is the way past it; nil if there is none, or no pooler.
	direct *pgx.ConnConfig
}

// reach opens the pool of a process that serves, and finds out whether there
// is a pooler on the way. direct is "" if there is no other way.
func reach(ctx context.Context, database, direct string, log *slog.Logger) (c connection, err error) {
	config, err := poolConfig(database)
	if err != nil {
		return c, err
	}
	limits := store.Limits{Acquire: acquireLimit, Answer: statementTimeout + acquireLimit}
	store.Guard(config, limits)
	if c.pooled, err = store.Pooled(ctx, config.ConnConfig); err != nil {
		return c, err
	}
	if c.pooled {
		store.Adapt(config.ConnConfig, hasExecMode(database))
		if c.direct, err = directConfig(ctx, direct, limits); err != nil {
			return c, err
		}
		sayPooled(ctx, log, c.direct != nil)
	}
	c.pool, err = pgxpool.NewWithConfig(ctx, config)
	return c, err
}

// directConfig returns nil for "".
func directConfig(ctx context.Context, direct string, limits store.Limits) (*pgx.ConnConfig, error) {
	if direct == "" {
		return nil, nil //nolint:nilnil // there is no such way, and that is no error
	}
	config, err := poolConfig(direct)
	if err != nil {
		return nil, err
	}
	store.Guard(config, limits)
	pooled, err := store.Pooled(ctx, config.ConnConfig)
	if err == nil && pooled {
		err = errors.New("AGENTD_DIRECT_DATABASE_URL leads through a pooler in transaction mode as well: give the address of Postgres itself, or leave it out")
	}
	if err != nil {
		return nil, err
	}
	return config.ConnConfig, nil
}

func sayPooled(ctx context.Context, log *slog.Logger, direct bool) {
	if direct {
		log.InfoContext(ctx, "there is a pooler in transaction mode before the database: notifications and heartbeats go past it, new runs are found by polling")
		return
	}
	log.WarnContext(ctx, "there is a pooler in transaction mode before the database, where LISTEN hears nothing: events, cancels and new runs are found by polling; AGENTD_DIRECT_DATABASE_URL is the way past it")
}

func poolConfig(database string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(database)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	if !hasPoolSize(database) {
		config.MaxConns = defaultConns
	}
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "agentd"
	}
	return config, nil
}

// hasPoolSize reports whether a URL says how large the pool is.
func hasPoolSize(database string) bool { return strings.Contains(database, "pool_max_conns=") }

// hasExecMode reports whether a URL says how statements are sent.
func hasExecMode(database string) bool { return strings.Contains(database, "default_query_exec_mode=") }
