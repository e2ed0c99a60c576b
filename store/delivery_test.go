package store_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// never is a poll that no test waits for: what arrives was announced.
const never = time.Hour

// follow reads a session from after to last, and fails at a hole or a repeat.
func follow(ctx context.Context, s *store.Store, id string, after, last int64, limit int) error {
	for after < last {
		events, err := s.Next(ctx, looptest.Tenant, id, after, limit)
		if err != nil {
			return err
		}
		if len(events) == 0 || len(events) > limit {
			return errors.New("wrong number of events")
		}
		for _, e := range events {
			if e.Seq != after+1 || e.SessionID != id {
				return errors.New("a hole, a repeat or a stranger")
			}
			after = e.Seq
		}
	}
	return nil
}

func mustFollow(t *testing.T, s *store.Store, id string, after, last int64) {
	t.Helper()
	if err := follow(limit(t), s, id, after, last, 10); err != nil {
		t.Fatalf("follow from %d to %d: %v", after, last, err)
	}
}

func TestNextDeliversWhatAnotherProcessCommits(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	here, there := startStore(t, db, store.Options{PollEvery: never}), startStore(t, db, store.Options{PollEvery: never})
	id := newSession(t, here)
	mustFollow(t, there, id, 0, 1)
	signals, stop := there.Watch(id)
	t.Cleanup(stop)
	for seq := int64(1); seq < 20; seq++ {
		mustAppend(t, here, say(t, id, seq))
		mustFollow(t, there, id, seq, seq+1)
	}
	select {
	case <-signals:
	case <-limit(t).Done():
		t.Error("the watcher got no signal")
	}
}

// listeners waits until so many sessions of the database listen, none of them
// one of gone, and returns their pids.
func listeners(t *testing.T, db *storetest.DB, want int, gone []int32) []int32 {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		rows, err := db.Pool.Query(t.Context(), `
			SELECT pid FROM pg_stat_activity
			WHERE datname = current_database() AND query = 'LISTEN agentd_events' AND NOT pid = ANY($1)`, gone)
		if err != nil {
			t.Fatal(err)
		}
		pids, err := pgx.CollectRows(rows, pgx.RowTo[int32])
		if err != nil {
			t.Fatal(err)
		}
		if len(pids) == want {
			return pids
		}
		select {
		case <-tick.C:
		case <-limit(t).Done():
			t.Fatalf("%d sessions listen, want %d", len(pids), want)
		}
	}
}

func TestNextSurvivesTheEndOfTheListeningConnection(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	var log lockedBuffer
	here := startStore(t, db, store.Options{PollEvery: never})
	there := startStore(t, db, store.Options{PollEvery: never, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	id := newSession(t, here)
	mustFollow(t, there, id, 0, 1)
	old := listeners(t, db, 2, []int32{})
	exec(t, db, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'LISTEN agentd_events' AND datname = current_database()`)
	mustAppend(t, here, say(t, id, 1)) // perhaps before anybody listens again
	mustFollow(t, there, id, 1, 2)
	listeners(t, db, 2, old)
	mustAppend(t, here, say(t, id, 2))
	mustFollow(t, there, id, 2, 3)
	if !strings.Contains(log.String(), "not listening") {
		t.Errorf("the log does not tell: %s", log.String())
	}
}

func TestNextFindsOutByItselfWhereNobodyListens(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	cfg, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 1
	var deaf atomic.Bool
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if deaf.Load() {
			return nil, errors.New("no further connection")
		}
		return dial(ctx, network, addr)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := pool.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	deaf.Store(true)
	there := store.New(pool, store.Options{PollEvery: 50 * time.Millisecond})
	if err := there.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = there.Stop(context.Background()) })
	here := startStore(t, db, store.Options{})
	id := newSession(t, here)
	mustFollow(t, there, id, 0, 1)
	mustAppend(t, here, say(t, id, 1))
	mustFollow(t, there, id, 1, 2)
}

func TestAPollFindsTheSessionsThatStandElsewhere(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{})
	pool, err := pgxpool.New(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	there, ahead, behind, deleted, nowhere := newSession(t, s), newSession(t, s), newSession(t, s), newSession(t, s), looptest.NewID()
	mustAppend(t, s, say(t, ahead, 1))
	mustAppend(t, s, appendOf(deleted, 1, encode(t, deleted, "", 0, event.SessionDeleted{})))
	ids, seqs := []string{there, ahead, behind, deleted, nowhere}, []int64{1, 1, 7, 2, 3}
	got, err := store.Moved(t.Context(), pool, ids, seqs)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][3]any{
		ahead: {int64(1), int64(2), false}, behind: {int64(7), int64(1), false}, deleted: {int64(2), int64(2), true},
	}
	if !maps.Equal(got, want) {
		t.Errorf("moved are %v, want %v", got, want)
	}
	pool.Close()
	if _, err := store.Moved(t.Context(), pool, ids, seqs); err == nil {
		t.Error("a database that cannot be asked looks as if nothing had moved")
	}
}

func TestListenerPingsASilentConnection(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	pool, err := pgxpool.New(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s := store.New(pool, store.Options{PollEvery: never})
	store.ListenQuiet(s, time.Millisecond, soon)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop(context.Background()) })
	id := newSession(t, s)
	mustFollow(t, s, id, 0, 1)
	// A ping is the statement of the connection that listened.
	tick := time.NewTicker(10 * time.Millisecond)
	t.Cleanup(tick.Stop)
	for pinged := false; !pinged; {
		err := db.Pool.QueryRow(limit(t), `
			SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND query = '-- ping')`).Scan(&pinged)
		if err != nil {
			t.Fatal(err)
		}
		<-tick.C
	}
	other := startStore(t, db, store.Options{PollEvery: never})
	mustAppend(t, other, say(t, id, 1))
	mustFollow(t, s, id, 1, 2)
}

// TestASilentListenerListensAnewAndReadsWhatItMissed: the packets of its
// connection are dropped, and nothing closes it. Nothing polls.
func TestASilentListenerListensAnewAndReadsWhatItMissed(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	line := storetest.NewLine(t, db.URL)
	direct, err := pgx.ParseConfig(line.URL)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	there := store.New(pool, store.Options{PollEvery: never, Direct: direct})
	store.ListenQuiet(there, 100*time.Millisecond, 500*time.Millisecond)
	if err := there.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = there.Stop(context.Background()) })
	here := startStore(t, db, store.Options{PollEvery: never})
	id := newSession(t, here)
	mustFollow(t, there, id, 0, 1)
	mustAppend(t, here, say(t, id, 1))
	mustFollow(t, there, id, 1, 2)
	line.Silence()
	mustAppend(t, here, say(t, id, 2))
	mustFollow(t, there, id, 2, 3)
	mustAppend(t, here, say(t, id, 3))
	mustFollow(t, there, id, 3, 4)
}

func TestNextReplaysThenGoesOnLive(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{})
	id := newSession(t, s)
	const before, total, clients = 30, 120, 20
	for seq := int64(1); seq < before; seq++ {
		mustAppend(t, s, say(t, id, seq))
	}
	ctx := limit(t)
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			if err := follow(ctx, s, id, int64(i), total, 1+i); err != nil {
				t.Errorf("client %d: %v", i, err)
			}
		})
	}
	for seq := int64(before); seq < total; seq++ {
		mustAppend(t, s, say(t, id, seq))
	}
	all.Wait()
}

// counter counts statements that read events.
type counter struct{ n atomic.Int64 }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, "FROM agentd.events") {
		c.n.Add(1)
	}
	return ctx
}

func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestNextOfAThousandClientsIsNotAThousandQueries(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	cfg, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	reads := &counter{}
	cfg.ConnConfig.Tracer = reads
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	there := store.New(pool, store.Options{})
	if err := there.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = there.Stop(context.Background()) })
	here := startStore(t, db, store.Options{})
	id := newSession(t, here)
	mustFollow(t, there, id, 0, 1)
	const clients, commits = 1000, 10
	ctx := limit(t)
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			if err := follow(ctx, there, id, 1, 1+commits, 100); err != nil {
				t.Error(err)
			}
		})
	}
	for seq := int64(1); seq <= commits; seq++ {
		mustAppend(t, here, say(t, id, seq))
	}
	all.Wait()
	// One by the first reader, one per commit, and some room for those who came
	// before the first had read.
	if n := reads.n.Load(); n == 0 || n > 5*commits {
		t.Errorf("%d clients and %d commits made %d reads", clients, commits, n)
	}
}

func TestNextRefuses(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	exec(t, db, `INSERT INTO agentd.tenants (id, name) VALUES ('another', 'Another')`)
	s := startStore(t, db, store.Options{})
	id, deleted := newSession(t, s), newSession(t, s)
	b := looptest.NewBench(s, nil)
	if err := b.Commands.DeleteSession(t.Context(), looptest.Tenant, deleted, looptest.Tester); err != nil {
		t.Fatal(err)
	}
	for name, q := range map[string][2]string{
		"foreign": {"another", id}, "missing": {looptest.Tenant, looptest.NewID()}, "deleted": {looptest.Tenant, deleted},
		"no id": {looptest.Tenant, "x"}, "no tenant": {"\x00", id},
	} {
		if events, err := s.Next(limit(t), q[0], q[1], 0, 10); !errors.Is(err, loop.ErrNotFound) {
			t.Errorf("%s: %v, %v; want ErrNotFound", name, events, err)
		}
	}
	if _, err := s.Next(limit(t), looptest.Tenant, id, 0, 0); !errors.Is(err, loop.ErrInvalid) {
		t.Errorf("limit 0: %v; want ErrInvalid", err)
	}
	signals, stop := s.Watch("x")
	stop()
	if len(signals) != 0 {
		t.Error("signal for what is no id")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Next(ctx, looptest.Tenant, id, 0, 10); !errors.Is(err, context.Canceled) {
		t.Errorf("ended ctx: %v", err)
	}
}

func TestNextEndsWithTheStore(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{})
	id := newSession(t, s)
	mustFollow(t, s, id, 0, 1)
	ended := make(chan error, 1)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		_, err := s.Next(limit(t), looptest.Tenant, id, 1, 10)
		ended <- err
	})
	if err := s.Stop(limit(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want that the store is closed", err)
	}
	waiting.Wait()
}

func TestNotifyWakesTheQueueAndSaysIDsOnly(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	conn := connect(t, db.URL)
	if _, err := conn.Exec(t.Context(), `LISTEN "agentd.river_insert"; LISTEN agentd_events`); err != nil {
		t.Fatal(err)
	}
	b := looptest.NewBench(s, nil)
	id := b.Session(t)
	b.Start(t, id, "hello")
	var said []string
	for woken, told := false, false; !woken || !told; {
		n, err := conn.WaitForNotification(limit(t))
		if err != nil {
			t.Fatalf("after %q: %v", said, err)
		}
		said = append(said, n.Channel+" "+n.Payload)
		woken = woken || n.Channel == "agentd.river_insert" && n.Payload == `{"queue": "runs"}`
		told = told || n.Channel == "agentd_events" && strings.HasSuffix(n.Payload, " "+id+":4")
		if strings.Contains(n.Payload, "hello") {
			t.Errorf("a notification with content: %q", n.Payload)
		}
	}
}

// lockedBuffer is a log that may be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
