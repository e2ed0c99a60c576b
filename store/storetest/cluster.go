package storetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/pgembed"
)

const (
	startLimit = 2 * time.Minute // two cores, and every package starts one
	template   = "agentd_template"
)

// cluster is the Postgres of this binary, started when it is first needed.
type cluster struct {
	databases atomic.Int64 // that were verified
	toolCalls atomic.Int64 // in them

	// interrupt ends a start that is under way.
	interrupt atomic.Pointer[context.CancelFunc]
	over      atomic.Bool

	mu     sync.Mutex
	server *pgembed.Server
	err    error // of the start: it is not tried again

	// copying is held while a database is made: a template must not be in use.
	copying   sync.Mutex
	templated bool
}

var shared = &cluster{}

var errOver = errors.New("the tests are over")

// start returns the running server.
func (c *cluster) start() (*pgembed.Server, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server != nil || c.err != nil {
		return c.server, c.err
	}
	ctx, cancel := withLimit(startLimit)
	defer cancel()
	c.interrupt.Store(&cancel)
	if c.over.Load() {
		return nil, errOver
	}
	c.server, c.err = pgembed.Start(ctx, pgembed.Config{
		Throwaway: true,
		Settings: map[string]string{
			"max_connections": "400",
			// Tests of deadlocks should not have to wait.
			"deadlock_timeout": "200ms",
			"autovacuum":       "off",
		},
	})
	if c.err == nil {
		c.err = hastily(ctx, c.server.URL("postgres"))
	}
	return c.server, c.err
}

// create makes a database, empty or a copy of the migrated one, and returns
// its URL.
func (c *cluster) create(ctx context.Context, name string, empty bool) (string, error) {
	server, err := c.start()
	if err != nil {
		return "", fmt.Errorf("start Postgres: %w", err)
	}
	c.copying.Lock()
	defer c.copying.Unlock()
	from := "template0"
	if !empty {
		if err := c.migrateTemplate(ctx, server); err != nil {
			return "", err
		}
		from = template
	}
	// The other strategy writes all of it to the log as well.
	err = admin(ctx, server, fmt.Sprintf(`CREATE DATABASE %s TEMPLATE %s STRATEGY file_copy`, pgx.Identifier{name}.Sanitize(), from))
	if err != nil {
		return "", fmt.Errorf("create database: %w", err)
	}
	return server.URL(name), nil
}

func (c *cluster) migrateTemplate(ctx context.Context, server *pgembed.Server) error {
	if c.templated {
		return nil
	}
	if err := admin(ctx, server, `DROP DATABASE IF EXISTS `+template+` WITH (FORCE)`); err != nil {
		return fmt.Errorf("clear template: %w", err)
	}
	if err := admin(ctx, server, `CREATE DATABASE `+template+` TEMPLATE template0`); err != nil {
		return fmt.Errorf("create template: %w", err)
	}
	if err := store.Migrate(ctx, server.URL(template), slog.New(slog.DiscardHandler)); err != nil {
		return fmt.Errorf("template: %w", err)
	}
	// Its last session may still be ending, and a template must have none.
	if err := admin(ctx, server, `ALTER DATABASE `+template+` ALLOW_CONNECTIONS false`); err != nil {
		return fmt.Errorf("close template: %w", err)
	}
	if err := admin(ctx, server, `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '`+template+`'`); err != nil {
		return fmt.Errorf("close template: %w", err)
	}
	c.templated = true
	return nil
}

// drop ends the sessions that are still there.
func (c *cluster) drop(ctx context.Context, name string) error {
	server, err := c.start()
	if err != nil {
		return err
	}
	if err := admin(ctx, server, `DROP DATABASE `+pgx.Identifier{name}.Sanitize()+` WITH (FORCE)`); err != nil {
		return fmt.Errorf("drop database: %w", err)
	}
	return nil
}

func admin(ctx context.Context, server *pgembed.Server, statement string) error {
	conn, err := pgx.Connect(ctx, server.URL("postgres"))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}

func (c *cluster) seen() seen {
	return seen{databases: c.databases.Load(), toolCalls: c.toolCalls.Load()}
}

// stop ends the server, if there is one.
func (c *cluster) stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := withLimit(stopLimit)
	defer cancel()
	return c.server.Stop(ctx)
}

// abandon is stop for a process that must end at once: it interrupts a start,
// and waits for nothing but the end of the server.
func (c *cluster) abandon() error {
	c.over.Store(true)
	if cancel := c.interrupt.Load(); cancel != nil {
		(*cancel)()
	}
	return c.stop()
}
