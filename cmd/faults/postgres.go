package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/pgembed"
)

const (
	databaseName   = "faults"
	serverPatience = time.Minute
)

// postgres is a private server that can be restarted on its port. It is safe
// for concurrent use.
type postgres struct {
	cfg pgembed.Config
	url string // of the database

	mu     sync.Mutex
	server *pgembed.Server
	// downs are when it was away.
	downs []span
}

// span is a time; the end of one that goes on is zero.
type span struct{ from, to time.Time }

// startPostgres makes a cluster in dir with a migrated database.
func startPostgres(ctx context.Context, dir string) (_ *postgres, err error) {
	p := &postgres{cfg: pgembed.Config{DataDir: filepath.Join(dir, "pg"), Settings: map[string]string{"max_connections": "300"}}}
	if p.server, err = pgembed.Start(ctx, p.cfg); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.stop())
		}
	}()
	p.cfg.Port, p.url = p.server.Port(), p.server.URL(databaseName)
	conn, err := pgx.Connect(ctx, p.server.URL("postgres"))
	if err != nil {
		return nil, fmt.Errorf("connect to the private Postgres: %w", err)
	}
	_, err = conn.Exec(ctx, `CREATE DATABASE `+databaseName+` TEMPLATE template0 ENCODING 'UTF8'`)
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		return nil, fmt.Errorf("make a database: %w", err)
	}
	if err := store.Migrate(ctx, p.url, slog.New(slog.DiscardHandler)); err != nil {
		return nil, err
	}
	return p, nil
}

// bounce takes the server away, with all that it has not yet written if it
// crashes, and brings it back after so long.
func (p *postgres) bounce(ctx context.Context, crash bool, away time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.downs = append(p.downs, span{from: time.Now()})
	if crash {
		// Its children end by themselves once they notice.
		if err := syscall.Kill(p.server.PID(), syscall.SIGKILL); err != nil {
			return fmt.Errorf("kill Postgres %d: %w", p.server.PID(), err)
		}
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), serverPatience)
	defer cancel()
	if err := p.server.Stop(stopping); err != nil && !crash {
		return fmt.Errorf("stop Postgres: %w", err)
	}
	if err := pause(ctx, away); err != nil {
		return err
	}
	server, err := pgembed.Start(ctx, p.cfg)
	if err != nil {
		return fmt.Errorf("start Postgres again on port %d: %w", p.cfg.Port, err)
	}
	p.server = server
	p.downs[len(p.downs)-1].to = time.Now()
	return nil
}

// away are the times at which there was no server.
func (p *postgres) away() []span {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]span(nil), p.downs...)
}

func (p *postgres) stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), serverPatience)
	defer cancel()
	return p.server.Stop(ctx)
}

// pause waits, or returns why ctx ended.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
