package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

func TestReadServer(t *testing.T) {
	t.Parallel()

	t.Run("TellsWhatTheServerIsSetTo", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t, storetest.Empty)
		s, err := store.ReadServer(t.Context(), db.Pool)
		if err != nil {
			t.Fatal(err)
		}
		if s.Version < store.MinServerVersion || s.Encoding != "UTF8" || s.Recovery || s.ReadOnly || s.Fsync != "off" || s.FullPageWrites != "off" {
			t.Errorf("%+v", s)
		}
		if s.Connections < 1 || s.MaxConnections <= s.Connections {
			t.Errorf("%d of %d connections", s.Connections, s.MaxConnections)
		}
		if off := s.Ahead.Abs(); off > time.Minute || s.Trip <= 0 {
			t.Errorf("the same machine is %s ahead after %s", s.Ahead, s.Trip)
		}
	})

	t.Run("SeesWhatIsSetForTheRole", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t, storetest.Empty)
		config, err := pgxpool.ParseConfig(db.URL)
		if err != nil {
			t.Fatal(err)
		}
		config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, `SET default_transaction_read_only = on; SET synchronous_commit = off`)
			return err
		}
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		s, err := store.ReadServer(t.Context(), pool)
		if err != nil || !s.ReadOnly || s.SynchronousCommit != "off" {
			t.Errorf("%+v, %v", s, err)
		}
	})
}
