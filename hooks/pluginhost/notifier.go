package pluginhost

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// Notices are what has happened, for all processes of a cluster, and how far each plugin
// has been told it. It is safe for concurrent use.
type Notices interface {
	// Hold takes a plugin for this process, or keeps it, and returns where its cursor is;
	// held is false if another process has it. What is new is told from now on. Purged is
	// how many notifications it will never get because they are gone, so many at most.
	Hold(ctx context.Context, plugin string, lease time.Duration) (cursor string, purged int64, held bool, err error)
	// After returns what has happened behind a cursor, of at most so many events.
	After(ctx context.Context, cursor string, atMost int) (hooks.NotificationPage, error)
	// Told moves the cursor of a plugin that this process holds, and keeps it; false says
	// that it does not hold it any more.
	Told(ctx context.Context, plugin, from, to string, lease time.Duration) (moved bool, err error)
	// Failed says why a plugin was not told, and lets go of it.
	Failed(ctx context.Context, plugin, said string) error
	// Release lets go of a plugin.
	Release(ctx context.Context, plugin string) error
	// Watch returns a channel on which something is when there may be news, and what ends
	// the watch. Some news may come without.
	Watch() (signals <-chan struct{}, stop func())
}

// NotifierConfig is what a notifier needs.
type NotifierConfig struct {
	Notices Notices
	// Acquire is that of the host.
	Acquire func() *Generation
	Log     *slog.Logger
	// Limits are limits. The zero value is [DefaultNotifyLimits].
	Limits NotifyLimits
}

// NotifyLimits are how much and how often plugins are told. A zero field is that of
// [DefaultNotifyLimits].
type NotifyLimits struct {
	// Lease is how long after its last sign of life a process keeps a plugin from others.
	// It is longer than Call.
	Lease time.Duration
	// Call is how long a plugin may take for a batch, and how long the database may.
	Call time.Duration
	// Batch is how many events are looked at for one.
	Batch int
	// Gap is how long is waited for company, Poll how long for a signal.
	Gap  time.Duration
	Poll time.Duration
	// Backoff is how long is waited after a failure, about; it doubles with each, up to
	// MaxBackoff.
	Backoff    time.Duration
	MaxBackoff time.Duration
}

// DefaultNotifyLimits are those for services.
func DefaultNotifyLimits() NotifyLimits {
	return NotifyLimits{
		Lease: 15 * time.Second, Call: 10 * time.Second, Batch: 256,
		Gap: 100 * time.Millisecond, Poll: time.Second, Backoff: 250 * time.Millisecond, MaxBackoff: 30 * time.Second,
	}
}

func (l NotifyLimits) orDefault() NotifyLimits {
	d := DefaultNotifyLimits()
	return NotifyLimits{
		Lease: cmp.Or(l.Lease, d.Lease), Call: cmp.Or(l.Call, d.Call), Batch: cmp.Or(l.Batch, d.Batch),
		Gap: cmp.Or(l.Gap, d.Gap), Poll: cmp.Or(l.Poll, d.Poll), Backoff: cmp.Or(l.Backoff, d.Backoff), MaxBackoff: cmp.Or(l.MaxBackoff, d.MaxBackoff),
	}
}

// Notifier tells plugins what has happened: those that this process holds, each by one
// goroutine, its notifications one batch after the other. What a plugin has not taken
// comes again. Where no plugin listens there is nothing but the notifier itself. It is
// safe for concurrent use.
type Notifier struct {
	config  NotifierConfig
	running sync.WaitGroup

	mu      sync.Mutex
	stopped bool
	// tellers are those of plugins that listen, leaving the last ones of those that do
	// not any more; by id.
	tellers, leaving map[string]*teller
}

// NewNotifier makes one that tells nobody until it has looked.
func NewNotifier(c NotifierConfig) *Notifier {
	c.Limits = c.Limits.orDefault()
	return &Notifier{config: c, tellers: map[string]*teller{}, leaving: map[string]*teller{}}
}

// Look has the plugins be told that listen in the generation that is in force, and no
// others. It is called when plugins were loaded, or have changed; it does not wait for
// anything.
func (n *Notifier) Look() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopped {
		return
	}
	listens := map[string]bool{}
	if g := n.config.Acquire(); g != nil {
		for _, p := range g.Plugins() {
			listens[p.ID()] = len(p.Answer().GetNotifications()) > 0
		}
		g.Release()
	}
	for id, t := range n.tellers {
		if !listens[id] {
			t.cancel()
			delete(n.tellers, id)
			n.leaving[id] = t
		}
	}
	for id, does := range listens {
		if does && n.tellers[id] == nil {
			n.tellers[id] = n.start(id)
		}
	}
}

// start tells a plugin in the background, once whoever did so before has ended.
func (n *Notifier) start(id string) *teller {
	ctx, cancel := context.WithCancel(context.Background())
	t := &teller{config: &n.config, id: id, log: n.config.Log.With("plugin", id), atMost: n.config.Limits.Batch, cancel: cancel, done: make(chan struct{})}
	before := n.leaving[id]
	delete(n.leaving, id)
	n.running.Go(func() {
		defer close(t.done)
		if before != nil {
			<-before.done
		}
		t.run(ctx)
	})
	return t
}

// Stop ends what is under way, and returns when nobody is told any more. It may be
// called twice; nothing is told afterwards.
func (n *Notifier) Stop() {
	n.mu.Lock()
	n.stopped = true
	for _, t := range n.tellers {
		t.cancel()
	}
	n.mu.Unlock()
	n.running.Wait()
}
