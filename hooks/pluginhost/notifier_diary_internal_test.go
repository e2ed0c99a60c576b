package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
)

// diary is what has happened, and who was told how much of it. Cursors are numbers.
type diary struct {
	mu     sync.Mutex
	list   []hooks.Notification
	at     int  // the cursor
	held   bool // by the notifier
	others bool // by another process
	calls  int
	purged int64
	failed []string
	// fail has the next call of a method fail, behind what it does if done.
	fail map[string]failing
	// unsettled is how often there is something that may not be told yet.
	unsettled int
	signals   chan struct{}
	watchers  int
}

type failing struct{ done bool }

var errBroken = errors.New("the database is gone")

func newDiary(n int) *diary {
	d := &diary{fail: map[string]failing{}, signals: make(chan struct{}, 1)}
	d.add(n)
	return d
}

// add has n turns end.
func (d *diary) add(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for range n {
		seq := int64(len(d.list) + 1)
		d.list = append(d.list, hooks.Notification{Seq: seq, At: time.Unix(seq, 0), TurnEnd: &hooks.TurnEnd{RunRef: hooks.RunRef{SessionID: "s"}, Turn: int(seq)}})
	}
	select {
	case d.signals <- struct{}{}:
	default:
	}
}

// called counts a call, does it and breaks it if it has to.
func (d *diary) called(name string, do func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	f, broken := d.fail[name]
	delete(d.fail, name)
	if !broken || f.done {
		do()
	}
	if broken {
		return errBroken
	}
	return nil
}

func (d *diary) Hold(context.Context, string, time.Duration) (cursor string, purged int64, held bool, err error) {
	err = d.called("Hold", func() {
		d.held = !d.others
		cursor, purged, held = strconv.Itoa(d.at), d.purged, d.held
	})
	return cursor, purged, held, err
}

func (d *diary) After(_ context.Context, cursor string, atMost int) (page hooks.NotificationPage, err error) {
	err = d.called("After", func() {
		if page.Cursor = cursor; d.unsettled > 0 {
			d.unsettled--
			page.Unsettled = true
			return
		}
		from, _ := strconv.Atoi(cursor)
		to := min(from+atMost, len(d.list))
		page = hooks.NotificationPage{List: d.list[from:to], Cursor: strconv.Itoa(to), More: to == from+atMost}
	})
	return page, err
}

func (d *diary) Told(_ context.Context, _, from, to string, _ time.Duration) (moved bool, err error) {
	err = d.called("Told", func() {
		if moved = d.held && strconv.Itoa(d.at) == from; moved {
			d.at, _ = strconv.Atoi(to)
		}
	})
	return moved, err
}

func (d *diary) Failed(_ context.Context, _, said string) error {
	return d.called("Failed", func() { d.held, d.failed = false, append(d.failed, said) })
}

func (d *diary) Release(context.Context, string) error {
	return d.called("Release", func() { d.held = false })
}

func (d *diary) Watch() (<-chan struct{}, func()) {
	d.set(func() { d.watchers++ })
	return d.signals, func() { d.set(func() { d.watchers-- }) }
}

func (d *diary) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// noted is why the plugin was not told.
func (d *diary) noted() (out []string) {
	d.set(func() { out = slices.Clone(d.failed) })
	return out
}

// await waits until the diary is as it should be, of which there is no signal.
func (d *diary) await(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline, tick := time.After(time.Minute), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		var yes bool
		d.set(func() { yes = is() })
		if yes {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("it has not happened: %s", what)
		case <-tick.C:
		}
	}
}

// audience is a plugin that listens, in a host that there is not.
type audience struct {
	host *Host
	log  *lockedText
	// batches are what it was told.
	batches chan *pluginv1.NotifyRequest
	// answers are what it says to the next ones; else it takes them.
	answers chan func(context.Context) error
}

type lockedText struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// refusing is an answer that is an error.
func refusing(code codes.Code, text string) func(context.Context) error {
	return func(context.Context) error { return status.Error(code, text) }
}

func newAudience(t *testing.T, wants ...pluginv1.NotificationType) *audience {
	t.Helper()
	a := &audience{host: &Host{}, log: &lockedText{}, batches: make(chan *pluginv1.NotifyRequest, 100), answers: make(chan func(context.Context) error, 100)}
	a.load(t, true, wants...)
	return a
}

// load puts another generation in force.
func (a *audience) load(t *testing.T, isUp bool, wants ...pluginv1.NotificationType) {
	t.Helper()
	f := &fake{notify: func(ctx context.Context, q *pluginv1.NotifyRequest) (*pluginv1.NotifyResponse, error) {
		a.batches <- q
		select {
		case answer := <-a.answers:
			return &pluginv1.NotifyResponse{}, answer(ctx)
		default:
			return &pluginv1.NotifyResponse{}, nil
		}
	}}
	p := up(f.serve(t, policyManifest), &pluginv1.BootstrapResponse{Notifications: wants})
	if !isUp {
		p.process = nil
	}
	a.put(p)
}

func (a *audience) put(plugins ...*Plugin) {
	a.host.mu.Lock()
	defer a.host.mu.Unlock()
	a.host.current = &Generation{plugins: plugins, host: a.host, idle: make(chan struct{})}
}

const turnEnds = pluginv1.NotificationType_NOTIFICATION_TYPE_TURN_END

// notify has it be told what is in the diary.
func (a *audience) notify(t *testing.T, d *diary) *Notifier {
	t.Helper()
	return a.notifyWithin(t, d, time.Minute)
}

func (a *audience) notifyWithin(t *testing.T, d *diary, call time.Duration) *Notifier {
	t.Helper()
	n := NewNotifier(NotifierConfig{
		Notices: d, Acquire: a.host.Acquire, Log: slog.New(slog.NewTextHandler(a.log, nil)),
		Limits: NotifyLimits{
			Batch: 4, Gap: time.Millisecond, Poll: 5 * time.Millisecond, Backoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond,
			Call: call, Lease: time.Hour,
		},
	})
	t.Cleanup(n.Stop)
	n.Look()
	return n
}

// batch is the next one: its cursor and its seqs.
func (a *audience) batch(t *testing.T) string {
	t.Helper()
	select {
	case q := <-a.batches:
		out := q.GetCursor() + ":"
		for _, n := range q.GetNotifications() {
			out += fmt.Sprintf(" %d", n.GetSeq())
			if int64(n.GetTurnEnd().GetTurn()) != n.GetSeq() || n.GetRun().GetSessionId() != "s" || n.GetAt().AsTime() != time.Unix(n.GetSeq(), 0).UTC() {
				t.Errorf("told %v", n)
			}
		}
		return out
	case <-time.After(time.Minute):
		t.Fatal("nothing is told")
		return ""
	}
}

func (a *audience) want(t *testing.T, batches ...string) {
	t.Helper()
	for _, want := range batches {
		if got := a.batch(t); got != want {
			t.Errorf("told %q, want %q", got, want)
		}
	}
}
