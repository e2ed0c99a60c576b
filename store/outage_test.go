package store_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

func TestOutagesAreTold(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	ctx := t.Context()

	_, ended := db.Pool.Exec(ctx, `SELECT pg_terminate_backend(pg_backend_pid())`)
	_, refused := db.Pool.Exec(ctx, `SELECT 1 / 0`)
	left, leave := context.WithCancel(ctx)
	leave()
	_, gone := db.Pool.Exec(left, `SELECT 1`)

	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	nobody, err := pgxpool.New(ctx, "postgres://agentd:x@"+address+"/agentd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nobody.Close)
	_, unreachable := nobody.Exec(ctx, `SELECT 1`)

	for _, c := range []struct {
		name string
		err  error
		want bool
	}{
		{"a session that the server ended", ended, true},
		{"a port that nobody listens on", unreachable, true},
		{"a statement that is wrong", refused, false},
		{"a caller who left", gone, false},
		{"a session that is not there", loop.ErrNotFound, false},
	} {
		if c.err == nil {
			t.Errorf("%s: no error at all", c.name)
			continue
		}
		got := store.Failed("ask", c.err)
		if errors.Is(got, loop.ErrUnavailable) != c.want || !errors.Is(got, c.err) {
			t.Errorf("%s: %v is unavailable %t; want %t, and the cause kept", c.name, got, !c.want, c.want)
		}
	}
}
