package storetest

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/pgembed"
)

// Server is a Postgres of one test's own, which the test may stop and start
// again. It is safe for concurrent use.
type Server struct {
	config pgembed.Config

	mu sync.Mutex
	pg *pgembed.Server
}

// NewServer starts a Postgres that ends with the test. dir is where its data
// goes, which every user has to be able to reach; "" makes a directory. The
// settings are added to those of all tests.
func NewServer(t testing.TB, dir string, settings map[string]string) *Server {
	t.Helper()
	if dir == "" {
		dir = madeDir(t, serverPrefix)
	}
	s := &Server{config: pgembed.Config{
		DataDir: filepath.Join(dir, "pg"), Port: Port(t),
		// What is killed is the server and not its machine. And nothing of it may
		// be left outside its directory when it is.
		Settings: map[string]string{
			"fsync": "off", "full_page_writes": "off", "shared_buffers": "64MB", "autovacuum": "off", "dynamic_shared_memory_type": "mmap",
		},
	}}
	maps.Copy(s.config.Settings, settings)
	s.Start(t)
	t.Cleanup(func() {
		ctx, cancel := withLimit(stopLimit)
		defer cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := s.pg.Stop(ctx); err != nil {
			t.Errorf("storetest: stop: %v", err)
		}
	})
	return s
}

// Start starts the server where it was, and returns when it takes connections.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	ctx, cancel := withLimit(startLimit)
	defer cancel()
	pg, err := pgembed.Start(ctx, s.config)
	if err != nil {
		t.Fatalf("storetest: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pg == nil { // else it still knows
		if err := hastily(ctx, pg.URL("postgres")); err != nil {
			t.Errorf("storetest: %v", err)
		}
	}
	s.pg = pg
}

// The ways to stop a server.
const (
	// StopFast ends all sessions and writes a checkpoint.
	StopFast = syscall.SIGINT
	// StopImmediate is a crash: the next start replays the log.
	StopImmediate = syscall.SIGQUIT
)

// Stop stops the server and returns when it is gone. It may be gone already.
func (s *Server) Stop(t testing.TB, how syscall.Signal) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = syscall.Kill(s.pg.PID(), how) // it may have gone by itself
	select {
	case <-s.pg.Done():
	case <-time.After(stopLimit):
		t.Fatal("storetest: the server does not stop")
	}
	if err := s.pg.Stop(context.Background()); err != nil {
		t.Fatalf("storetest: stop: %v", err)
	}
}

// Gone returns a channel that is closed once the server has ended, by itself or
// not.
func (s *Server) Gone() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pg.Done()
}

// DB makes a migrated database on the server. It is verified when the test
// ends, as one of [New]'s is; the server has to run then.
func (s *Server) DB(t testing.TB) *DB {
	t.Helper()
	ctx, cancel := withLimit(startLimit)
	defer cancel()
	name := databaseName(t.Name(), counter.Add(1))
	if err := admin(ctx, s.pg, fmt.Sprintf(`CREATE DATABASE %s TEMPLATE template0`, pgx.Identifier{name}.Sanitize())); err != nil {
		t.Fatalf("storetest: create database: %v", err)
	}
	url := s.pg.URL(name)
	if err := store.Migrate(ctx, url, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatalf("storetest: %v", err)
	}
	pool, err := openPool(ctx, url)
	if err != nil {
		t.Fatalf("storetest: open pool: %v", err)
	}
	db := &DB{Name: name, URL: url, Pool: pool}
	t.Cleanup(func() {
		db.verify(t)
		pool.Close()
	})
	return db
}
