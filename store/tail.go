package store

import (
	"slices"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

const (
	tailEvents = 512
	tailBytes  = 256 << 10 // of payloads; one tail per session that is being read
)

// tail holds the newest events of a session: all that exist with a seq above
// from and up to to. The zero value covers nothing. Seqs may have holes where
// retention removed deltas, so it is the range that counts, not the number of
// events.
type tail struct {
	known    bool
	from, to int64
	events   []event.Event
	bytes    int
}

// covers says whether everything above after, of which there is something, is
// in the tail.
func (t *tail) covers(after int64) bool {
	return t.known && after >= t.from && after < t.to
}

// page returns up to limit events above after, which covers allowed. They
// share the tail's memory: it is appended to and never written again.
func (t *tail) page(after int64, limit int) []event.Event {
	i, _ := slices.BinarySearchFunc(t.events, after+1, func(e event.Event, seq int64) int {
		return int(e.Seq - seq)
	})
	n := min(limit, len(t.events)-i)
	return t.events[i : i+n : i+n]
}

// start makes the tail cover what comes after seq at.
func (t *tail) start(at int64) {
	*t = tail{known: true, from: at, to: at}
}

// extend adds events, which are all that exist above after and up to to. It
// does nothing when they would leave a gap, or are there already.
func (t *tail) extend(after int64, events []event.Event, to int64) {
	if !t.known || after > t.to || to <= t.to {
		return
	}
	for _, e := range events {
		if e.Seq > t.to {
			t.events = append(t.events, e)
			t.bytes += len(e.Payload)
		}
	}
	t.to = to
	t.trim()
}

func (t *tail) trim() {
	drop := max(0, len(t.events)-tailEvents)
	for _, e := range t.events[:drop] {
		t.bytes -= len(e.Payload)
	}
	for ; drop < len(t.events) && t.bytes > tailBytes; drop++ {
		t.bytes -= len(t.events[drop].Payload)
	}
	if drop > 0 {
		t.from = t.events[drop-1].Seq
		t.events = t.events[drop:]
	}
}
