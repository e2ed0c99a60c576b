package store_test

import (
	"context"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// announced is what a notification may say: who says it, and heads of sessions,
// or that there are too many.
var announced = regexp.MustCompile(`^\S+( [0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:\d+)+$|^\S+ \*$`)

// overhear listens to what processes tell each other. The function that it
// returns ends that and gives what was said.
func overhear(t *testing.T, db *storetest.DB) (heard func() []string) {
	t.Helper()
	const end = "that was all"
	conn := connect(t, db.URL)
	if _, err := conn.Exec(t.Context(), `LISTEN agentd_events`); err != nil {
		t.Fatal(err)
	}
	return func() []string {
		t.Helper()
		if _, err := db.Pool.Exec(t.Context(), `SELECT pg_notify('agentd_events', $1)`, end); err != nil {
			t.Fatal(err)
		}
		var said []string
		for {
			n, err := conn.WaitForNotification(limit(t))
			switch {
			case err != nil:
				t.Fatal(err)
			case n.Payload == end:
				return said
			case !announced.MatchString(n.Payload) || len(n.Payload) >= 8000:
				t.Errorf("a notification of %d bytes says more than ids: %.200q", len(n.Payload), n.Payload)
			}
			said = append(said, n.Payload)
		}
	}
}

// ofSize is an event whose payload has so many bytes, or as few as it can have.
func ofSize(t *testing.T, sessionID string, size int) event.Event {
	t.Helper()
	said := event.MessageCreated{MessageID: looptest.NewID(), Role: hooks.RoleUser, Parts: []hooks.Part{{Type: hooks.PartText, Text: "x"}}}
	if least := len(encode(t, sessionID, "", 0, said).Payload); size > least {
		said.Parts[0].Text += strings.Repeat("x", size-least)
	}
	return encode(t, sessionID, "", 0, said)
}

func TestEventsOfAnySizeArriveAndNotificationsSayIDsOnly(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	heard := overhear(t, db)
	here, there := startStore(t, db, store.Options{PollEvery: never}), startStore(t, db, store.Options{PollEvery: never})
	bench := looptest.NewBench(here, nil)
	for _, external := range []string{strings.Repeat("e", 63), strings.Repeat("e", 64)} {
		ref, err := bench.Commands.CreateSession(t.Context(), loop.CreateSession{TenantID: looptest.Tenant, ExternalID: external, Actor: looptest.Tester})
		if err != nil {
			t.Fatal(err)
		}
		if h, err := there.HeadByExternalID(t.Context(), looptest.Tenant, external); err != nil || h.SessionID != ref.SessionID {
			t.Errorf("the session of %d characters is %+v, %v", len(external), h, err)
		}
		mustFollow(t, there, ref.SessionID, 0, 1)
		for i, size := range []int{1, 7999, 8000, 1 << 20} {
			seq := int64(i + 1)
			e := ofSize(t, ref.SessionID, size)
			if size > 1 && len(e.Payload) != size {
				t.Fatalf("the payload has %d bytes, want %d", len(e.Payload), size)
			}
			mustAppend(t, here, appendOf(ref.SessionID, seq, e))
			got, err := there.Next(limit(t), looptest.Tenant, ref.SessionID, seq, 10)
			if err != nil || len(got) != 1 || string(got[0].Payload) != string(e.Payload) {
				t.Errorf("%d bytes: %d events, %v", size, len(got), err)
			}
		}
	}
	if err := here.Stop(limit(t)); err != nil {
		t.Fatal(err)
	}
	if n := len(heard()); n == 0 || n > 10 {
		t.Errorf("%d notifications for 10 appends", n)
	}
}

// commits counts the groups that a pool writes: each inserts its events at once.
type commits struct{ n atomic.Int64 }

func (c *commits) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (c *commits) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *commits) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (c *commits) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	if strings.Contains(data.SQL, "INSERT INTO agentd.events") {
		c.n.Add(1)
	}
}

func (c *commits) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func TestManySessionsAtOnceAreDeliveredWithANotificationPerCommit(t *testing.T) {
	t.Parallel()
	const sessions, appends = 500, 4
	db := storetest.New(t)
	heard := overhear(t, db)
	config, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	groups := &commits{}
	config.ConnConfig.Tracer = groups
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	here := store.New(pool, store.Options{PollEvery: never})
	if err := here.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = here.Stop(context.Background()) })
	there := startStore(t, db, store.Options{PollEvery: never})
	ctx := limit(t)
	var all sync.WaitGroup
	for range sessions {
		all.Go(func() {
			ref, err := looptest.NewBench(here, nil).Commands.CreateSession(ctx, loop.CreateSession{TenantID: looptest.Tenant, Actor: looptest.Tester})
			for seq := int64(1); seq <= appends && err == nil; seq++ {
				_, err = here.Append(ctx, say(t, ref.SessionID, seq))
			}
			if err == nil {
				err = follow(ctx, there, ref.SessionID, 0, 1+appends, 10)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := here.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	said := int64(len(heard()))
	if said == 0 || said > groups.n.Load() {
		t.Errorf("%d notifications for %d commits", said, groups.n.Load())
	}
	var stored int
	if err := db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM agentd.events`).Scan(&stored); err != nil || stored != sessions*(1+appends) {
		t.Errorf("%d events are stored, %v", stored, err)
	}
	t.Logf("%d appends, %d commits, %d notifications", sessions*(1+appends), groups.n.Load(), said)
}
