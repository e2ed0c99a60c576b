package store

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

const (
	mine    = "00000000-0000-7000-8000-000000000001"
	tenant  = "default"
	foreign = "another"
)

// fakeLog is a log of one session whose reads are counted.
type fakeLog struct {
	mu      sync.Mutex
	events  []event.Event
	deleted bool
	err     error

	reads, polls atomic.Int64
}

func newFakeLog(n int) *fakeLog {
	f := &fakeLog{}
	f.write(n)
	return f
}

// write appends n events and returns what the committer would hand on.
func (f *fakeLog) write(n int) committed {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.add(n, event.TypeAssistantDelta, "{}")
}

func (f *fakeLog) add(n int, kind event.Type, payload string) committed {
	from := len(f.events)
	for range n {
		f.events = append(f.events, event.Event{SessionID: mine, Seq: int64(len(f.events) + 1), Type: kind, Payload: []byte(payload)})
	}
	return committed{tenantID: tenant, sessionID: mine, events: slices.Clone(f.events[from:])}
}

func (f *fakeLog) readAfter(ctx context.Context, tenantID, sessionID string, after int64, limit int) (found, error) {
	f.reads.Add(1)
	time.Sleep(time.Millisecond) //nolint:forbidigo // fake time: others may ask meanwhile
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return found{}, ctx.Err()
	case f.err != nil:
		return found{}, f.err
	case tenantID != tenant || sessionID != mine || f.deleted:
		return found{}, loop.ErrNotFound
	}
	head := int64(len(f.events))
	page := f.events[min(after, head):min(after+int64(limit), head)]
	return found{after: after, events: slices.Clone(page), head: head, whole: len(page) < limit}, nil
}

func (f *fakeLog) moved(_ context.Context, _ []string, seqs []int64) ([]head, error) {
	f.polls.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, f.err
	}
	h := head{sessionID: mine, knownSeq: seqs[0], lastSeq: int64(len(f.events)), deleted: f.deleted}
	if h.lastSeq == h.knownSeq && !h.deleted {
		return nil, nil
	}
	return []head{h}, nil
}

func (f *fakeLog) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// runHub runs a hub on f in a bubble with fake time.
func runHub(t *testing.T, f *fakeLog, test func(t *testing.T, h *hub)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newHub(f, time.Second, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { h.run(ctx) })
		test(t, h)
		cancel()
		running.Wait()
	})
}

// settle lets everything happen that can happen without the poll.
func settle() {
	time.Sleep(10 * time.Millisecond) //nolint:forbidigo // fake time
	synctest.Wait()
}

type result struct {
	events []event.Event
	err    error
}

// waiters has n clients wait for what comes after a cursor.
func waiters(t *testing.T, h *hub, n int, after int64) <-chan result {
	results := make(chan result, n)
	for range n {
		go func() {
			events, err := h.next(t.Context(), tenant, mine, after, 100)
			results <- result{events, err}
		}()
	}
	settle()
	return results
}

func wantSeqs(t *testing.T, r result, first, last int64) {
	t.Helper()
	if r.err != nil || len(r.events) == 0 || r.events[0].Seq != first || r.events[len(r.events)-1].Seq != last {
		t.Errorf("got %d events, %v; want seqs %d to %d", len(r.events), r.err, first, last)
	}
}

func TestHubServesAThousandClientsFromMemory(t *testing.T) {
	t.Parallel()
	f := newFakeLog(3)
	runHub(t, f, func(t *testing.T, h *hub) {
		results := waiters(t, h, 1000, 3)
		before := f.reads.Load()
		h.handOn([]committed{f.write(2)})
		for range 1000 {
			wantSeqs(t, <-results, 4, 5)
		}
		if n := f.reads.Load() - before; n != 0 {
			t.Errorf("a commit of this process made %d reads", n)
		}
	})
}

func TestHubReadsARemoteCommitOnceForAll(t *testing.T) {
	t.Parallel()
	f := newFakeLog(3)
	runHub(t, f, func(t *testing.T, h *hub) {
		results := waiters(t, h, 1000, 3)
		before := f.reads.Load()
		f.write(2)
		h.announced(mine, 5)
		for range 1000 {
			wantSeqs(t, <-results, 4, 5)
		}
		if n := f.reads.Load() - before; n != 1 {
			t.Errorf("a commit of another process made %d reads, want 1", n)
		}
	})
}

func TestHubPollsWhenNobodyTells(t *testing.T) {
	t.Parallel()
	f := newFakeLog(3)
	runHub(t, f, func(t *testing.T, h *hub) {
		results := waiters(t, h, 3, 3)
		f.write(1)
		start := time.Now()
		for range 3 {
			wantSeqs(t, <-results, 4, 4)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("took %v, want the poll's second at most", took)
		}
	})
}

func TestHubTellsWhyThereIsNothing(t *testing.T) {
	t.Parallel()
	f := newFakeLog(3)
	runHub(t, f, func(t *testing.T, h *hub) {
		for _, q := range [][2]string{{foreign, mine}, {tenant, "00000000-0000-7000-8000-000000000002"}} {
			if _, err := h.next(t.Context(), q[0], q[1], 0, 10); !errors.Is(err, loop.ErrNotFound) {
				t.Errorf("next(%v) = %v, want not found", q, err)
			}
		}
		waiters(t, h, 1, 3) // the session is known now, to its own tenant
		if _, err := h.next(t.Context(), foreign, mine, 0, 10); !errors.Is(err, loop.ErrNotFound) {
			t.Errorf("a foreign tenant: %v, want not found", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := h.next(ctx, tenant, mine, 3, 10); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after its deadline: %v", err)
		}
		h.handOn([]committed{f.write(1)})
	})
}

func TestHubEndsTheWaitsOfADeletedSession(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"Here", "ElsewhereUnheard", "ElsewhereAnnounced"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			f := newFakeLog(3)
			runHub(t, f, func(t *testing.T, h *hub) {
				results := waiters(t, h, 2, 3)
				var c committed
				f.set(func() { c = f.add(1, event.TypeSessionDeleted, "{}"); f.deleted = true })
				switch how {
				case "Here":
					h.handOn([]committed{c})
				case "ElsewhereAnnounced":
					h.announced(mine, 4)
				}
				for range 2 {
					if r := <-results; !errors.Is(r.err, loop.ErrNotFound) {
						t.Errorf("got %v, %v; want not found", r.events, r.err)
					}
				}
				if _, err := h.next(t.Context(), tenant, mine, 0, 10); !errors.Is(err, loop.ErrNotFound) {
					t.Errorf("afterwards: %v, want not found", err)
				}
			})
		})
	}
}

func TestHubEndsTheWaitsWhenItStops(t *testing.T) {
	t.Parallel()
	f := newFakeLog(3)
	var results <-chan result
	runHub(t, f, func(t *testing.T, h *hub) {
		results = waiters(t, h, 2, 3)
		t.Cleanup(func() {
			for range 2 {
				if r := <-results; !errors.Is(r.err, errClosed) {
					t.Errorf("got %v, want %v", r.err, errClosed)
				}
			}
		})
	})
}

func TestHubIsNotLedByAFalseAnnouncement(t *testing.T) {
	t.Parallel()
	f := newFakeLog(3)
	runHub(t, f, func(t *testing.T, h *hub) {
		results := waiters(t, h, 5, 3)
		before := f.reads.Load()
		h.announced(mine, 1_000_000)
		h.announced("nonsense", 1)
		settle()
		if n := f.reads.Load() - before; n != 1 {
			t.Errorf("a false announcement made %d reads, want 1", n)
		}
		h.handOn([]committed{f.write(1)})
		for range 5 {
			wantSeqs(t, <-results, 4, 4)
		}
	})
}

func TestHubJoinsAReadAndACommitThatCross(t *testing.T) {
	t.Parallel()
	f := newFakeLog(3)
	runHub(t, f, func(t *testing.T, h *hub) {
		results := make(chan result, 1)
		go func() {
			events, err := h.next(t.Context(), tenant, mine, 0, 100)
			results <- result{events, err}
		}()
		synctest.Wait() // it reads
		h.handOn([]committed{f.write(2)})
		wantSeqs(t, <-results, 1, 5)
		before := f.reads.Load()
		events, err := h.next(t.Context(), tenant, mine, 3, 100)
		wantSeqs(t, result{events, err}, 4, 5)
		if n := f.reads.Load() - before; n != 0 {
			t.Errorf("what was committed meanwhile was read %d times", n)
		}
	})
}

func TestHubLetsACursorFromTheFutureWait(t *testing.T) {
	t.Parallel()
	f := newFakeLog(3)
	runHub(t, f, func(t *testing.T, h *hub) {
		results := waiters(t, h, 1, 5)
		h.handOn([]committed{f.write(2)})
		settle()
		if len(results) > 0 {
			t.Fatal("returned what the client has seen")
		}
		h.handOn([]committed{f.write(1)})
		wantSeqs(t, <-results, 6, 6)
	})
}

func TestHubFollowsADatabaseThatLostItsTail(t *testing.T) {
	t.Parallel()
	f := newFakeLog(5)
	runHub(t, f, func(t *testing.T, h *hub) {
		results := waiters(t, h, 1, 3) // 4 and 5 are in memory
		wantSeqs(t, <-results, 4, 5)
		results = waiters(t, h, 1, 5)
		f.set(func() { f.events = f.events[:4] })
		time.Sleep(time.Second) //nolint:forbidigo // fake time
		settle()
		f.set(func() { f.add(2, event.TypeAssistantDelta, `"new"`) })
		wantSeqs(t, <-results, 6, 6)
		events, err := h.next(t.Context(), tenant, mine, 4, 10)
		wantSeqs(t, result{events, err}, 5, 6)
		if string(events[0].Payload) != `"new"` {
			t.Errorf("seq 5 is %s, which the database has lost", events[0].Payload)
		}
	})
}

func TestHubGivesAFailedReadToItsReaderOnly(t *testing.T) {
	t.Parallel()
	f := newFakeLog(3)
	runHub(t, f, func(t *testing.T, h *hub) {
		results := waiters(t, h, 1, 3)
		broken := errors.New("broken")
		f.set(func() { f.err = broken })
		f.mu.Lock()
		f.add(1, event.TypeAssistantDelta, "{}")
		f.mu.Unlock()
		h.announced(mine, 4)
		if r := <-results; !errors.Is(r.err, broken) {
			t.Errorf("got %v, want the read's error", r.err)
		}
		if _, err := h.next(t.Context(), tenant, mine, 0, 10); !errors.Is(err, broken) {
			t.Errorf("got %v, want the read's error", err)
		}
		time.Sleep(2 * time.Second) //nolint:forbidigo // fake time: the poll fails too, and goes on
		f.set(func() { f.err = nil })
		wantSeqs(t, <-waiters(t, h, 1, 3), 4, 4)
	})
}

func TestHubKeepsABoundedTail(t *testing.T) {
	t.Parallel()
	f := newFakeLog(1)
	runHub(t, f, func(t *testing.T, h *hub) {
		results := waiters(t, h, 1, 1)
		for range 5 {
			h.handOn([]committed{f.write(tailEvents / 2)})
		}
		<-results
		top := h.find(mine)
		if n := len(top.tail.events); n != tailEvents {
			t.Errorf("%d events in memory, want %d", n, tailEvents)
		}
		var big committed
		f.set(func() { big = f.add(3, event.TypeAssistantDelta, strings.Repeat("x", tailBytes/2)) })
		h.handOn([]committed{big})
		if n := len(top.tail.events); n != 2 || top.tail.bytes > tailBytes {
			t.Errorf("%d events with %d bytes in memory", n, top.tail.bytes)
		}
		// The slow client goes on from the database.
		events, err := h.next(t.Context(), tenant, mine, 1, 7)
		wantSeqs(t, result{events, err}, 2, 8)
	})
}

func TestHubForgetsWhatNobodyWatches(t *testing.T) {
	t.Parallel()
	f := newFakeLog(3)
	runHub(t, f, func(t *testing.T, h *hub) {
		_, stop := h.watch(mine)
		if _, err := h.next(t.Context(), tenant, mine, 0, 10); err != nil {
			t.Fatal(err)
		}
		time.Sleep(linger + time.Second) //nolint:forbidigo // fake time
		settle()
		if top := h.find(mine); top == nil || top.tail.known {
			t.Errorf("topic %+v: want no events in memory for a watch", top)
		}
		stop()
		stop()
		time.Sleep(linger + time.Second) //nolint:forbidigo // fake time
		settle()
		polls := f.polls.Load()
		time.Sleep(10 * time.Second) //nolint:forbidigo // fake time
		settle()
		if h.find(mine) != nil || f.polls.Load() != polls {
			t.Error("a session that nobody watches is still polled")
		}
	})
}

func TestHubSignalsWatchersOnceUntilTheyLook(t *testing.T) {
	t.Parallel()
	f := newFakeLog(3)
	runHub(t, f, func(t *testing.T, h *hub) {
		signals, stop := h.watch(mine)
		defer stop()
		for range 3 {
			h.handOn([]committed{f.write(1)})
		}
		<-signals
		if len(signals) != 0 {
			t.Error("signals are not coalesced")
		}
		f.write(1) // told by nobody
		<-signals
		h.lookNow()
		h.lookNow()
		settle()
		if len(signals) != 0 {
			t.Error("signal without a change")
		}
	})
}

// Every reader gets every seq once, whatever mixture of signals comes, late,
// double, out of order or not at all.
func TestHubLeavesNoHoleAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	const total, readers = 2000, 20
	f := newFakeLog(1)
	runHub(t, f, func(t *testing.T, h *hub) {
		var all sync.WaitGroup
		for i := range readers {
			all.Go(func() {
				rnd := rand.New(rand.NewPCG(1, uint64(i)))
				for after := int64(0); after < total; {
					events, err := h.next(t.Context(), tenant, mine, after, 1+rnd.IntN(40))
					if err != nil {
						t.Error(err)
						return
					}
					for _, e := range events {
						if e.Seq != after+1 {
							t.Errorf("reader %d got seq %d after %d", i, e.Seq, after)
							return
						}
						after = e.Seq
					}
					if rnd.IntN(10) == 0 {
						time.Sleep(time.Duration(rnd.IntN(3000)) * time.Millisecond) //nolint:forbidigo // fake time
					}
				}
			})
		}
		rnd := rand.New(rand.NewPCG(2, 2))
		var late []committed
		for written := 1; written < total; {
			n := min(1+rnd.IntN(30), total-written)
			c := f.write(n)
			written += n
			switch rnd.IntN(5) {
			case 0: // nobody tells
			case 1:
				h.announced(mine, int64(written))
			case 2:
				late = append(late, c)
			default:
				h.handOn([]committed{c})
			}
			if len(late) > 2 {
				h.handOn(late)
				late = nil
			}
			time.Sleep(time.Duration(rnd.IntN(200)) * time.Millisecond) //nolint:forbidigo // fake time
		}
		all.Wait()
	})
}

func TestAnIDHasOneNotation(t *testing.T) {
	t.Parallel()
	const id = "0199a3b4-5c6d-7e8f-9a0b-1c2d3e4f5a6b"
	for text, want := range map[string]bool{
		id: true, strings.ToUpper(id): true, "0199A3B4" + id[8:]: true,
		"": false, "x": false, id[1:]: false, id + "0": false, "g" + id[1:]: false, strings.ReplaceAll(id, "-", ""): false,
		"urn:uuid:" + id: false, "{" + id + "}": false, id[:8] + "0" + id[9:]: false,
	} {
		got, ok := canonicalID(text)
		if ok != want || ok && got != id {
			t.Errorf("%q is %q, %t; want %t", text, got, ok, want)
		}
	}
}
