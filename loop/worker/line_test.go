package worker_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// throughLine returns a pool whose connections can be cut.
func throughLine(t *testing.T, databaseURL string) (*pgxpool.Pool, *storetest.Line) {
	t.Helper()
	line := storetest.NewLine(t, databaseURL)
	pool, err := pgxpool.New(t.Context(), line.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool, line
}
