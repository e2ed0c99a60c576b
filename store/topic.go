package store

import (
	"sync"
	"time"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

// topic is what this process knows of a session that somebody watches.
type topic struct {
	// refs and idleSince belong to the hub, under its lock.
	refs      int
	idleSince time.Time

	mu sync.Mutex
	// tenantID is the owner, "" until a read or a commit has told.
	tenantID string
	deleted  bool
	// head is the highest seq that is known to be committed, 0 for none.
	head int64
	// tail is kept while somebody reads, since a watch alone needs no events.
	tail     tail
	readers  int
	lastRead time.Time
	// filling says that one reader is bringing the tail up to the head; the
	// others wait for it instead of asking the database the same.
	filling  bool
	changed  chan struct{} // closed at the next change; nil if nobody waits
	watchers map[chan int64]struct{}
}

// step is what a reader at a cursor does next: return, wait, or read.
type step struct {
	events  []event.Event
	deleted bool
	wait    <-chan struct{}
	// fill is a read for everybody, above after.
	fill  bool
	after int64
	// head is what was known when the fill began.
	head int64
}

// next decides for a reader that has seen everything up to after.
func (t *topic) next(tenantID string, after int64, limit int) step {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.tenantID != tenantID || !t.tail.known:
		return step{after: after}
	case t.deleted:
		return step{deleted: true}
	case t.tail.covers(after):
		return step{events: t.tail.page(after, limit)}
	case after < t.tail.from:
		return step{after: after}
	case t.head <= t.tail.to || t.filling:
		if t.changed == nil {
			t.changed = make(chan struct{})
		}
		return step{wait: t.changed}
	default:
		t.filling = true
		return step{fill: true, after: t.tail.to, head: t.head}
	}
}

// found is what a read of everything above after found.
type found struct {
	after  int64
	events []event.Event
	// head is the session's last seq in the same snapshot.
	head int64
	// whole says that there is nothing between the last event and head.
	whole bool
}

// to is the seq up to which the read was complete.
func (f found) to() int64 {
	if f.whole {
		return f.head
	}
	return f.events[len(f.events)-1].Seq
}

// read takes in what a reader of that tenant found.
func (t *topic) read(tenantID string, f found) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tenantID = tenantID
	wasHead, wasTo := t.head, t.tail.to
	t.head = max(t.head, f.head)
	if !t.tail.known && f.whole {
		t.tail.start(min(f.after, f.head))
	}
	t.tail.extend(f.after, f.events, f.to())
	if t.head > wasHead || t.tail.to > wasTo {
		t.wake()
	}
}

// filled ends a fill, whatever came of it, so that another reader may begin.
// When the fill reached the end of the log and nobody has said more since it
// began, then that is the head: a signal that promised more was wrong, and
// believing it would mean to read for ever.
func (t *topic) filled(s step, f found) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.filling = false
	if f.whole && t.head == s.head {
		t.head = t.tail.to
	}
	t.wake()
}

// commit takes in what this process committed.
func (t *topic) commit(c committed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tenantID == "" {
		t.tenantID = c.tenantID
	}
	before, last := c.events[0].Seq-1, c.events[len(c.events)-1].Seq
	for _, e := range c.events {
		t.deleted = t.deleted || e.Type == event.TypeSessionDeleted
	}
	t.head = max(t.head, last)
	if t.readers > 0 && !t.tail.known {
		t.tail.start(before)
	}
	t.tail.extend(before, c.events, last)
	t.wake()
}

// at returns the head.
func (t *topic) at() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.head
}

// lose forgets everything: the database has less than was once committed, as
// after a fail-over to a replica that lagged, and the readers must ask it.
func (t *topic) lose() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tail, t.head = tail{}, 0
	t.wake()
}

// saw takes in where the database, or a notification, says that the session
// stands.
func (t *topic) saw(head int64, deleted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if head <= t.head && deleted == t.deleted {
		return
	}
	t.head = max(t.head, head)
	t.deleted = t.deleted || deleted
	t.wake()
}

// wake is called under the lock.
func (t *topic) wake() {
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
	for w := range t.watchers {
		tell(w, t.head)
	}
}

// tell leaves value in w, where it stands for the one before. An order to look,
// which is 0, is not taken back.
func tell(w chan int64, value int64) {
	select {
	case before := <-w:
		if before == 0 {
			value = 0
		}
	default:
	}
	w <- value // nobody else sends, so there is room
}

func (t *topic) enter(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.readers++
	t.lastRead = now
}

func (t *topic) leave(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.readers--
	t.lastRead = now
}

// forget drops a tail that nobody has read for a while.
func (t *topic) forget(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.readers == 0 && now.Sub(t.lastRead) >= linger {
		t.tail = tail{}
	}
}
