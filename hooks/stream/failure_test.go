package stream_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
)

// TestAPanicWhileHoldingStopsWhereTextIsRedactedAndDetachesElsewhere: and what was
// panicked with is nowhere.
func TestAPanicWhileHoldingStopsWhereTextIsRedactedAndDetachesElsewhere(t *testing.T) {
	t.Parallel()
	bursting := stream.Registration{ID: "burst", OnStop: stream.StopRetry, New: func(stream.Call) stream.Observer {
		held := ""
		return observer{chunk: func(c stream.Chunk) stream.Verdict {
			if held += c.Text; len(held) > 6 {
				panic(held)
			}
			return stream.Hold()
		}}
	}}
	redacting := bursting
	redacting.Redacting, redacting.OnFailure = true, stream.FailDetach

	a := begin(t, redacting)
	expect(t, pushed(a, text("1", "sec"), text("1", "ret")), "1=", "1=")
	out := a.Push(text("1", "words"))
	r := a.End(stream.EndStopped)[0]
	if out.Stop == nil || out.Stop != r.Stopped || !out.Stop.Failed || out.Stop.Policy != stream.StopRetry || out.Stop.Chunk != 3 || out.Stop.Accepted != 0 || out.Chunks != nil {
		t.Errorf("goes on: %+v", out)
	}
	if r.Failure == nil || r.Failure.Outcome != "panic" || r.Failure.Chunk != 3 {
		t.Fatalf("failure %+v", r.Failure)
	}
	if all := fmt.Sprint(*r.Failure, *r.Stopped); strings.Contains(all, "sec") || !strings.Contains(all, "The observer burst failed (panic), so the answer was stopped.") {
		t.Errorf("it is said: %s", all)
	}

	a = begin(t, bursting)
	expect(t, pushed(a, text("1", "sec"), text("1", "ret"), text("1", "words"), text("1", "!"), finish()),
		"1=", "1=", "1=sec | 1=ret | 1=words", "1=!", "stop")
	if r := a.End(stream.EndFinished)[0]; r.Failure == nil || r.Failure.Outcome != "panic" || r.Stopped != nil {
		t.Errorf("report %+v", r)
	}
}

func TestAnObserverThatCannotBeMadeIsLeftOutOrStopsTheFirstChunk(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make    func(stream.Call) stream.Observer
		outcome string
	}{
		"panic": {func(stream.Call) stream.Observer { panic("secret") }, "panic"},
		"nil":   {func(stream.Call) stream.Observer { return nil }, "malformed"},
	} {
		r := stream.Registration{ID: "o", New: c.make}
		asked := 0
		other := saying("other", func(stream.Chunk) stream.Verdict { asked++; return stream.Continue() })
		a := begin(t, other, r)
		expect(t, pushed(a, text("1", "a"), finish()), "1=a", "stop")
		if f := a.End(stream.EndFinished)[1].Failure; f == nil || f.Outcome != c.outcome || f.Chunk != 0 || strings.Contains(f.Text, "secret") {
			t.Errorf("%s: failure %+v", name, f)
		}
		asked = 0
		a = begin(t, other, stopping(r))
		out := a.Push(text("1", "a"))
		if out.Stop == nil || !out.Stop.Failed || out.Stop.Chunk != 1 || out.Stop.Observer != "o" || asked != 0 {
			t.Errorf("%s: goes on: %+v; the other was asked %d times", name, out, asked)
		}
		if r := a.End(stream.EndStopped)[1]; r.Failure == nil || r.Failure.Chunk != 0 || r.Stopped != out.Stop {
			t.Errorf("%s: report %+v", name, r)
		}
	}
}

func TestAPanicAtTheEndIsAFailureThatStopsNothing(t *testing.T) {
	t.Parallel()
	told := 0
	r := stopping(stream.Registration{ID: "o", New: func(stream.Call) stream.Observer {
		return observer{end: func(stream.Summary) { panic("secret") }}
	}})
	last := stream.Registration{ID: "last", New: func(stream.Call) stream.Observer { return observer{end: func(stream.Summary) { told++ }} }}
	a := begin(t, r, last)
	pushed(a, text("1", "a"), finish())
	got := a.End(stream.EndFinished)[0]
	if f := got.Failure; f == nil || f.Outcome != "panic" || f.Chunk != 2 || strings.Contains(f.Text, "secret") || got.Stopped != nil || told != 1 {
		t.Errorf("report %+v; the one behind was told %d times", got, told)
	}
}

func TestWhoHasFailedIsNotToldOfTheEnd(t *testing.T) {
	t.Parallel()
	a := begin(t, stream.Registration{ID: "o", New: func(stream.Call) stream.Observer {
		return observer{
			chunk: func(stream.Chunk) stream.Verdict { panic("x") },
			end:   func(stream.Summary) { t.Error("told") },
		}
	}})
	a.Push(text("1", "a"))
	a.End(stream.EndFailed)
}

// clock is set by hand.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// taking is an observer that takes so long for one chunk after the other.
func taking(c *clock, took ...time.Duration) stream.Registration {
	return stream.Registration{ID: "slow", New: func(stream.Call) stream.Observer {
		n := 0
		return observer{
			chunk: func(stream.Chunk) stream.Verdict {
				c.pass(took[n])
				n++
				return stream.Continue()
			},
			end: func(stream.Summary) { c.pass(time.Millisecond) },
		}
	}}
}

func TestAnObserverThatTakesTooLongFails(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	many := make([]time.Duration, 126)
	for i := range many {
		many[i] = 2 * ms
	}
	for name, c := range map[string]struct {
		took []time.Duration
		// at is the chunk with which it fails, 0 for none.
		at     int
		change func(*stream.Registration)
	}{
		"a single late one":           {took: []time.Duration{1, 50 * ms, 1}},
		"two in a row, twice":         {took: []time.Duration{3 * ms, 3 * ms, 2 * ms, 3 * ms, 3 * ms}},
		"three in a row":              {took: []time.Duration{1, 3 * ms, 3 * ms, 3 * ms, 3 * ms}, at: 4},
		"one over 50 ms":              {took: []time.Duration{1, 51 * ms}, at: 2},
		"250 ms in all":               {took: many[:125]},
		"more than 250 ms in all":     {took: many, at: 126},
		"another limit for a chunk":   {took: []time.Duration{3 * ms, 24 * ms, 26 * ms}, at: 3, change: func(r *stream.Registration) { r.ChunkTime = ms }},
		"another limit in all":        {took: []time.Duration{ms, ms, ms}, at: 3, change: func(r *stream.Registration) { r.AttemptTime = 2 * ms }},
		"no limit for a chunk":        {took: []time.Duration{60 * ms, 60 * ms, 60 * ms}, change: func(r *stream.Registration) { r.ChunkTime = -1 }},
		"no limits":                   {took: []time.Duration{time.Hour}, change: func(r *stream.Registration) { r.ChunkTime, r.AttemptTime = -1, -1 }},
		"a clock that goes backwards": {took: []time.Duration{-time.Hour, 2 * ms}},
	} {
		clock := &clock{now: time.Unix(1, 0)}
		r := taking(clock, c.took...)
		if c.change != nil {
			c.change(&r)
		}
		s, err := stream.NewSet(r, saying("quick", nil))
		if err != nil {
			t.Fatal(err)
		}
		a := s.WithClock(clock.Now).Begin(stream.Call{})
		for range c.took {
			if out := a.Push(text("1", "a")); shown(out.Chunks) != "1=a" {
				t.Errorf("%s: goes on %+v", name, out)
			}
			clock.pass(time.Minute) // what is between chunks is nobody's
		}
		reports := a.End(stream.EndFailed)
		failed := 0
		if f := reports[0].Failure; f != nil {
			failed = f.Chunk
			if f.Outcome != "timeout" {
				t.Errorf("%s: failure %+v", name, f)
			}
		}
		if failed != c.at {
			t.Errorf("%s: fails with chunk %d; want %d", name, failed, c.at)
		}
		var all time.Duration
		for i, d := range c.took {
			if c.at == 0 || i < c.at {
				all += max(d, 0)
			}
		}
		if c.at == 0 {
			all += ms // the end
		}
		if reports[0].Took != all || reports[1].Took != 0 || reports[1].Failure != nil {
			t.Errorf("%s: took %v and %v; want %v and 0", name, reports[0].Took, reports[1].Took, all)
		}
	}
}

func TestALateVerdictDoesNotCount(t *testing.T) {
	t.Parallel()
	clock := &clock{now: time.Unix(1, 0)}
	s, err := stream.NewSet(saying("slow", func(c stream.Chunk) stream.Verdict {
		clock.pass(time.Second)
		return stream.Amend(text("1", "late"))
	}))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, pushed(s.WithClock(clock.Now).Begin(stream.Call{}), text("1", "a")), "1=a")
}

func TestStuckTellsSinceWhenObserversHaveNotComeBack(t *testing.T) {
	t.Parallel()
	clock := &clock{now: time.Unix(1, 0)}
	asked, back := make(chan struct{}), make(chan struct{})
	s, err := stream.NewSet(stream.Registration{ID: "slow", AttemptTime: -1, ChunkTime: -1, New: func(stream.Call) stream.Observer {
		wait := func() { asked <- struct{}{}; <-back }
		return observer{chunk: func(stream.Chunk) stream.Verdict { wait(); return stream.Continue() }, end: func(stream.Summary) { wait() }}
	}})
	if err != nil {
		t.Fatal(err)
	}
	a := s.WithClock(clock.Now).Begin(stream.Call{})
	clock.pass(time.Second)
	stuck := func(want time.Duration) {
		t.Helper()
		if got := a.Stuck(); got != want {
			t.Errorf("stuck for %v; want %v", got, want)
		}
	}
	stuck(0)
	done := make(chan struct{})
	for _, work := range []func(){func() { a.Push(text("1", "a")) }, func() { a.End(stream.EndFailed) }} {
		go func() { work(); done <- struct{}{} }()
		<-asked
		stuck(1)
		clock.pass(time.Minute)
		stuck(time.Minute)
		back <- struct{}{}
		<-done
		stuck(0)
	}
}

// TestAnObserverThatEndsTheGoroutineStopsTheAnswer, even one that would be left out
// for anything else: nobody is there to read on.
func TestAnObserverThatEndsTheGoroutineStopsTheAnswer(t *testing.T) {
	t.Parallel()
	emits := saying("emits", func(stream.Chunk) stream.Verdict { return stream.Emit("c", []byte(`1`)) })
	a := begin(t, emits, saying("gone", func(c stream.Chunk) stream.Verdict {
		if c.Text == "b" {
			runtime.Goexit()
		}
		return stream.Continue()
	}))
	expect(t, pushed(a, text("1", "a")), "1=a")
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Push(text("1", "b"))
		t.Error("it has come back")
	}()
	<-done
	stopped := a.Stopped()
	if stopped == nil || !stopped.Failed || stopped.Observer != "gone" || stopped.Chunk != 2 || stopped.Accepted != 1 || a.Stuck() != 0 {
		t.Fatalf("stopped: %+v", stopped)
	}
	if out := a.Push(text("1", "c")); out.Stop != stopped || out.Chunks != nil {
		t.Errorf("goes on: %+v", out)
	}
	reports := a.End(stream.EndStopped)
	if f := reports[1].Failure; f == nil || f.Outcome != "panic" || f.Chunk != 2 || reports[1].Stopped != stopped || reports[0].Emitted != 1 {
		t.Errorf("reports %+v", reports)
	}
}

// TestAnAnswerOfTooManyBlocksIsAFailure: what an observer keeps for each would have
// no bound.
func TestAnAnswerOfTooManyBlocksIsAFailure(t *testing.T) {
	t.Parallel()
	const most = 4_000
	a := begin(t, saying("left", nil), stopping(saying("stops", nil)))
	for i := range most {
		if out := a.Push(text(fmt.Sprint(i), "a")); out.Stop != nil {
			t.Fatalf("block %d: %+v", i, out)
		}
	}
	if out := a.Push(text("0", "a")); out.Stop != nil {
		t.Errorf("one that is known: %+v", out)
	}
	out := a.Push(text("one more", "a"))
	reports := a.End(stream.EndStopped)
	left, stops := reports[0].Failure, reports[1].Failure
	if out.Stop == nil || out.Stop.Observer != "stops" || left == nil || left.Outcome != "oversize" || stops == nil || stops.Outcome != "oversize" {
		t.Errorf("goes on: %+v, failures %+v and %+v", out, left, stops)
	}
}
