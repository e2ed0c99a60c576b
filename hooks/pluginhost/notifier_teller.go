package pluginhost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

// teller tells one plugin. Its fields belong to the goroutine that runs it.
type teller struct {
	config *NotifierConfig
	id     string
	log    *slog.Logger
	cancel context.CancelFunc
	done   chan struct{}

	// until is when the plugin may be another process's, by this one's clock; zero if it
	// is not this one's.
	until time.Time
	// cursor is behind what the plugin has taken.
	cursor string
	// page is what it has not taken yet, nil if nothing was read.
	page *hooks.NotificationPage
	// atMost is how many events are read for the next page.
	atMost int
	// purged is how many were gone when that was last told.
	purged int64

	// failed is how often in a row it went wrong, and why it last did; unsettled how often
	// in a row there was something that may not be told yet.
	failed    int
	said      string
	unsettled int
}

// rest is how long nothing is done: for least in any case, and then until there is a
// signal, or for most.
type rest struct{ least, most time.Duration }

func (t *teller) run(ctx context.Context) {
	signals, stop := t.config.Notices.Watch()
	defer stop()
	defer t.release(ctx)
	for {
		r := t.step(ctx)
		if !sleep(ctx, r.least, nil) || !sleep(ctx, r.most-r.least, signals) {
			return
		}
	}
}

// sleep returns false when ctx ends.
func sleep(ctx context.Context, d time.Duration, signals <-chan struct{}) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-signals:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// step tells the plugin of one page, if there is one.
func (t *teller) step(ctx context.Context) rest {
	l := t.config.Limits
	held, err := t.hold(ctx)
	switch {
	case err != nil:
		return t.wrong(ctx, "how far it was told cannot be read", err)
	case !held:
		wait := l.Poll + rand.N(l.Poll) //nolint:gosec // nothing is to be guessed
		return rest{wait, wait}
	}
	if t.page == nil {
		if err := t.read(ctx); err != nil {
			return t.wrong(ctx, "what it is told cannot be read", err)
		}
	}
	page := *t.page
	if page.Cursor != t.cursor {
		if time.Until(t.until) < l.Call {
			return rest{} // reading has taken long: first it is held again
		}
		err := t.tell(ctx, page)
		switch {
		case errors.Is(err, errNotThere):
			t.release(ctx)
			t.lose()
			return rest{l.Poll, l.Poll}
		case err != nil:
			return t.refused(ctx, err)
		}
		if err := t.move(ctx, page.Cursor); err != nil {
			return t.wrong(ctx, "that it was told cannot be noted", err)
		}
	}
	t.page = nil
	t.well(ctx)
	switch {
	case page.More:
		return rest{}
	case page.Unsettled:
		// The signal has come already.
		t.unsettled++
		wait := min(l.Gap<<min(t.unsettled-1, 10), l.Poll)
		return rest{wait, wait}
	}
	t.unsettled = 0
	return rest{l.Gap, l.Poll}
}

// margin is what must be left of a lease beside the time of a call.
const margin = time.Second

// hold sees to it that no other process tells the plugin, for as long as a call takes.
func (t *teller) hold(ctx context.Context) (bool, error) {
	l := t.config.Limits
	if time.Until(t.until) > l.Call+margin {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.Call)
	defer cancel()
	began := time.Now()
	cursor, purged, held, err := t.config.Notices.Hold(ctx, t.id, l.Lease)
	if err != nil || !held {
		t.lose()
		return false, err
	}
	if t.until.IsZero() {
		t.log.Debug("the plugin is told from here", "cursor", cursor)
	}
	if t.until = began.Add(l.Lease); cursor != t.cursor {
		t.cursor, t.page = cursor, nil
	}
	if purged > t.purged {
		t.log.Warn("a plugin was not told of all that has happened: sessions were purged before", "events_at_most", purged)
	}
	t.purged = purged
	return true, nil
}

// lose is for a plugin that is another process's, or may be.
func (t *teller) lose() { t.until = time.Time{} }

func (t *teller) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.config.Limits.Call)
	defer cancel()
	page, err := t.config.Notices.After(ctx, t.cursor, t.atMost)
	if err == nil {
		t.page = &page
	}
	return err
}

// errNotThere is that there is nobody to be told: the plugins that there are now are
// about to be looked at.
var errNotThere = errors.New("the plugin is not loaded")

// tell returns without an error once the plugin has taken all that it wants of a page.
func (t *teller) tell(ctx context.Context, page hooks.NotificationPage) error {
	g := t.config.Acquire()
	if g == nil {
		return errNotThere
	}
	defer g.Release()
	i := slices.IndexFunc(g.Plugins(), func(p *Plugin) bool { return p.ID() == t.id })
	if i < 0 || g.Plugins()[i].Answer() == nil {
		return errNotThere // nobody knows what it wants
	}
	p := g.Plugins()[i]
	q := &pluginv1.NotifyRequest{Cursor: page.Cursor}
	for _, n := range page.List {
		if kind, m := told(n); slices.Contains(p.Answer().GetNotifications(), kind) {
			m.Seq, m.At = n.Seq, timestamppb.New(n.At)
			q.Notifications = append(q.Notifications, m)
		}
	}
	if len(q.GetNotifications()) == 0 {
		return nil
	}
	process, err := p.Process()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, t.config.Limits.Call)
	defer cancel()
	_, err = pluginv1.NewPluginServiceClient(process.Conn()).Notify(ctx, q, small)
	if err == nil {
		return nil
	}
	return process.Failure(err)
}

// told is a notification as plugins get it.
func told(n hooks.Notification) (pluginv1.NotificationType, *pluginv1.Notification) {
	switch {
	case n.RunStart != nil:
		return wire.RunStart.Type, wire.RunStart.Tell(*n.RunStart)
	case n.TurnStart != nil:
		return wire.TurnStart.Type, wire.TurnStart.Tell(*n.TurnStart)
	case n.ToolExecutionStart != nil:
		return wire.ToolExecutionStart.Type, wire.ToolExecutionStart.Tell(*n.ToolExecutionStart)
	case n.TurnEnd != nil:
		return wire.TurnEnd.Type, wire.TurnEnd.Tell(*n.TurnEnd)
	case n.RunEnd != nil:
		return wire.RunEnd.Type, wire.RunEnd.Tell(*n.RunEnd)
	}
	return pluginv1.NotificationType_NOTIFICATION_TYPE_UNSPECIFIED, nil
}

// move notes that the plugin has taken what is before to.
func (t *teller) move(ctx context.Context, to string) error {
	ctx, cancel := context.WithTimeout(ctx, t.config.Limits.Call)
	defer cancel()
	began := time.Now()
	moved, err := t.config.Notices.Told(ctx, t.id, t.cursor, to, t.config.Limits.Lease)
	switch {
	case err != nil:
		t.lose() // it may have moved
		return err
	case !moved:
		t.lose()
		t.log.Info("another process tells the plugin: it may be told the same again")
		return nil
	}
	t.cursor, t.until = to, began.Add(t.config.Limits.Lease)
	return nil
}

// refused is for a plugin that has not taken a page: it comes again, a while later,
// unless another process is faster. What took too long is made shorter.
func (t *teller) refused(ctx context.Context, err error) rest {
	if ctx.Err() != nil {
		return rest{}
	}
	said := describe(err)
	if f := new(hooks.Failure); errors.As(err, &f) && (f.Outcome == hooks.OutcomeTimeout || f.Outcome == hooks.OutcomeOversize) {
		t.atMost, t.page = max(t.atMost/2, 1), nil
	}
	noting, cancel := context.WithTimeout(ctx, t.config.Limits.Call)
	defer cancel()
	t.lose()
	if err := t.config.Notices.Failed(noting, t.id, said); err != nil {
		t.log.Debug("that a plugin was not told was not noted", "error", err)
	}
	return t.later("it does not take it", said)
}

// wrong is for what is not the plugin's fault.
func (t *teller) wrong(ctx context.Context, what string, err error) rest {
	if ctx.Err() != nil {
		return rest{}
	}
	return t.later(what, err.Error())
}

// later counts a failure, tells of it where it is another one than before, and says how
// long to wait.
func (t *teller) later(what, said string) rest {
	l := t.config.Limits
	if t.failed++; said != t.said {
		t.said = said
		t.log.Warn("a plugin cannot be told what has happened: that is tried again", "problem", what, "error", said, "in_a_row", t.failed)
	}
	wait := min(l.Backoff<<min(t.failed-1, 20), l.MaxBackoff)
	wait = wait/2 + rand.N(wait/2+1) //nolint:gosec // nothing is to be guessed
	return rest{wait, wait}
}

func (t *teller) well(ctx context.Context) {
	if t.failed > 0 {
		t.log.InfoContext(ctx, "the plugin is told again", "failures", t.failed)
	}
	t.failed, t.said = 0, ""
	t.atMost = min(2*t.atMost, t.config.Limits.Batch)
}

// maxSaid bounds what is stored of an error, in bytes.
const maxSaid = 1 << 10

// describe is an error for people: what kind, and in whose words.
func describe(err error) string {
	said := err.Error()
	if f := new(hooks.Failure); errors.As(err, &f) {
		said = f.Err.Error()
		if s, ok := status.FromError(f.Err); ok {
			said = fmt.Sprintf("%s: %s", s.Code(), s.Message())
		}
		said = cmp.Or(f.Code, string(f.Outcome)) + ": " + said
	}
	return escape([]byte(said[:min(len(said), maxSaid)]))
}

// releaseTime is how long letting go may take: the lease runs out by itself.
const releaseTime = 2 * time.Second

// release lets others tell the plugin at once.
func (t *teller) release(ctx context.Context) {
	if t.until.IsZero() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	if err := t.config.Notices.Release(ctx, t.id); err != nil {
		t.log.Debug("the plugin is told again when its lease has run out", "error", err)
	}
}
