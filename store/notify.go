package store

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	eventsChannel = "agentd_events"
	// River's producers listen here, and take the queue's name from the JSON.
	jobsChannel = "agentd.river_insert"
	jobsPayload = `{"queue": "runs"}`

	// payloadLimit is below the 8,000 bytes that Postgres takes.
	payloadLimit  = 7900
	notifyTimeout = 2 * time.Second
	// notifyEvery is the shortest time between two notifications that bring no
	// job. A run alone commits more often than that, and each notification is a
	// round trip on the cores that its next commit waits for.
	notifyEvery = 5 * time.Millisecond
	// everything in place of a list means: look yourself.
	everything = "*"
)

// notifier tells other processes which sessions have moved. What was committed
// while the last notification was under way goes into the next one. A
// notification that fails is not repeated: the polls of the others find out.
// The first after a pause goes at once, as do those of jobs.
type notifier struct {
	pool   *pgxpool.Pool
	self   string
	logger *slog.Logger
	wake   chan struct{}
	hurry  chan struct{} // there are jobs

	mu      sync.Mutex
	pending announcement
}

// announcement is what one notification says.
type announcement struct {
	heads map[string]int64
	// bytes is the length of the list of heads, at most.
	bytes int
	jobs  bool
}

func newNotifier(pool *pgxpool.Pool, self string, logger *slog.Logger) *notifier {
	return &notifier{pool: pool, self: self, logger: logger, wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1)}
}

// add does not block.
func (n *notifier) add(batch []committed) {
	n.mu.Lock()
	for _, c := range batch {
		n.pending.add(c)
	}
	jobs := n.pending.jobs
	n.mu.Unlock()
	nudge(n.wake)
	if jobs {
		nudge(n.hurry)
	}
}

// run sends until ctx ends, and then what is left.
func (n *notifier) run(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for n.await(ctx, pause.C) {
		n.send(ctx)
		pause.Reset(notifyEvery)
	}
	n.send(context.WithoutCancel(ctx))
}

// await returns when it is time to send, or false when ctx has ended.
func (n *notifier) await(ctx context.Context, paused <-chan time.Time) bool {
	select {
	case <-n.wake:
	case <-ctx.Done():
	}
	select {
	case <-paused:
	case <-n.hurry:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

func (n *notifier) send(ctx context.Context) {
	n.mu.Lock()
	a := n.pending
	n.pending = announcement{}
	n.mu.Unlock()
	if len(a.heads) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	// Commits with notifications take turns on a lock of the whole server.
	// There is nothing to lose in this one, so it does not hold the lock while
	// the disk is slow.
	query, args := `SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)`, []any{eventsChannel, a.payload(n.self)}
	if a.jobs {
		query += `, pg_notify($3, $4)`
		args = append(args, jobsChannel, jobsPayload)
	}
	if _, err := n.pool.Exec(ctx, query, args...); err != nil {
		n.logger.WarnContext(ctx, "notification not sent: other processes find out by polling", "error", err)
	}
}

func (a *announcement) add(c committed) {
	if a.heads == nil {
		a.heads = map[string]int64{}
	}
	a.jobs = a.jobs || len(c.jobs) > 0
	if a.bytes > payloadLimit {
		return // it says everything already
	}
	if _, ok := a.heads[c.sessionID]; !ok {
		a.bytes += len(" :") + len(c.sessionID) + len("9223372036854775807")
	}
	a.heads[c.sessionID] = c.events[len(c.events)-1].Seq
}

// payload is who speaks and then, separated by blanks, either session:head
// pairs or everything.
func (a *announcement) payload(self string) string {
	if len(self)+a.bytes > payloadLimit {
		return self + " " + everything
	}
	var b strings.Builder
	b.WriteString(self)
	for id, head := range a.heads {
		b.WriteByte(' ')
		b.WriteString(id)
		b.WriteByte(':')
		b.WriteString(strconv.FormatInt(head, 10))
	}
	return b.String()
}
