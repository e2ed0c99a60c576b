package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// jobs is a queue that keeps nothing.
type jobs struct{}

func (jobs) InsertTx(context.Context, pgx.Tx, []loop.Job) error { return nil }

// startStore returns a started store on a pool of its own, as another process
// would have.
func startStore(t *testing.T, db *storetest.DB, opts store.Options) *store.Store {
	t.Helper()
	return startStoreAt(t, db.URL, opts)
}

func startStoreAt(t *testing.T, url string, opts store.Options) *store.Store {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatalf("open pool: %v", err)
	}
	s := store.New(pool, opts)
	if err := s.Start(t.Context()); err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
		pool.Close()
	})
	return s
}
