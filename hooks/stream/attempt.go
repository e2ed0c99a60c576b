package stream

import (
	"encoding/json"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// Attempt asks the observers of one attempt of a model call. It belongs to the
// goroutine that reads the provider; only Stuck may be called from another.
type Attempt struct {
	// now is another clock than [time.Now], nil for none.
	now      func() time.Time
	began    time.Time
	watchers []watcher

	// asked is when the observers were last asked, in nanoseconds from began and
	// one more; 0 while they are not at work.
	asked atomic.Int64
	// at is the index of the one that was asked last.
	at atomic.Int32
	// last is how long it had been since began when the clock was last looked at.
	last time.Duration

	chunks   int
	accepted int
	paused   time.Duration
	usage    Usage
	finished bool
	stopped  *Stopped

	// out, emissions and pause are of the chunk that is pushed.
	out       []Chunk
	emissions []Emission
	pause     time.Duration
}

// Output is what the observers made of a chunk.
type Output struct {
	// Chunks go on, in this order, and then Emissions. Both are valid until the
	// next call; the envelopes are the caller's.
	Chunks    []Chunk
	Emissions []Emission
	// Pause is how long nothing more is to be read.
	Pause time.Duration
	// Stop is set if the answer ends here: then there are no chunks.
	Stop *Stopped
}

// Emission is an envelope that an observer emitted.
type Emission struct {
	Observer string
	Channel  string
	Envelope json.RawMessage
	// Chunk is the number of the provider's chunk with which it was emitted, from 1.
	Chunk int
}

// Stopped is an answer that an observer has stopped.
type Stopped struct {
	// Observer is its id, Policy what follows.
	Observer string
	Policy   StopPolicy
	Reason   string
	// Failed says that the observer did not ask for it but failed.
	Failed bool
	// Chunk is the number of the provider's chunk that is not accepted, from 1.
	Chunk int
	// Accepted is how many bytes of text, reasoning and arguments went on before
	// it.
	Accepted int
}

// Push takes a chunk of the provider. With [KindFinish] it first ends all
// blocks, and behind it nothing is pushed: what is goes nowhere. Behind an output
// with Stop nothing is pushed either.
//
// Nothing goes on of a chunk with which an observer stops the answer, not even
// what observers before it emitted.
func (a *Attempt) Push(c Chunk) Output {
	if a.stopped != nil || a.finished || c.Kind == KindEnd {
		return Output{Stop: a.stopped}
	}
	a.work()
	defer a.asked.Store(0)
	a.chunks++
	clear(a.out)
	clear(a.emissions)
	a.out, a.emissions, a.pause = a.out[:0], a.emissions[:0], 0
	if c.Kind == KindToolCall {
		c.Lane = LaneToolArguments
	}
	if !a.take(&c) {
		a.drop()
		return Output{Stop: a.stopped}
	}
	for i := range a.out {
		a.accepted += len(a.out[i].Text)
	}
	return Output{Chunks: a.out, Emissions: a.emissions, Pause: a.pause}
}

// take asks everybody about c, and reports false if one stops the answer.
func (a *Attempt) take(c *Chunk) bool {
	if a.chunks == 1 {
		for i := range a.watchers {
			if w := &a.watchers[i]; w.report.Failure != nil && !a.without(i, w.report.Failure, c.At) {
				return false
			}
		}
	}
	if c.Kind == KindFinish {
		a.finished, a.usage = true, c.Finish.Usage
		c.Finish.Raw, _ = a.clean(c.Finish.Raw)
		for i := range a.watchers {
			if !a.end(i, c.At) {
				return false
			}
		}
	}
	return a.pass(0, c)
}

// Stopped is set once an observer has stopped the answer. That is also told where
// Push has not returned, because the observer has ended the goroutine.
func (a *Attempt) Stopped() *Stopped { return a.stopped }

// drop forgets what the chunk led to before it was stopped.
func (a *Attempt) drop() {
	for _, e := range a.emissions {
		for i := range a.watchers {
			if w := &a.watchers[i]; w.report.Registration.ID == e.Observer {
				w.report.Emitted--
			}
		}
	}
	clear(a.out)
	a.out, a.emissions = nil, nil
}

// stop ends the answer in the name of w.
func (a *Attempt) stop(w *watcher, reason string, failed bool) bool {
	r := w.report.Registration
	a.stopped = &Stopped{
		Observer: r.ID, Policy: r.OnStop, Reason: shown(reason), Failed: failed, Chunk: a.chunks, Accepted: a.accepted,
	}
	w.report.Stopped = a.stopped
	return false
}

// shown is a reason as it is kept.
func shown(reason string) string {
	reason = strings.ReplaceAll(strings.ToValidUTF8(reason, "\uFFFD"), "\x00", "\uFFFD")
	n := min(len(reason), MaxReason)
	for n < len(reason) && !utf8.RuneStart(reason[n]) {
		n--
	}
	return reason[:n]
}

// End calls OnEnd of the observers and returns what each of them has done. Nothing
// is called behind it. What is still held is gone.
func (a *Attempt) End(how Ending) []Report {
	a.work()
	defer a.asked.Store(0)
	a.out, a.emissions = nil, nil
	reports := make([]Report, len(a.watchers))
	for i := range a.watchers {
		w := &a.watchers[i]
		a.at.Store(int32(w.report.Index))
		if w.observer != nil && !w.ended(Summary{Ending: how, Chunks: a.chunks, Usage: a.usage}) {
			w.report.Failure = &Failure{Outcome: outcomePanic, Text: "it panicked in OnEnd", Chunk: a.chunks}
		}
		w.report.Took += a.tick()
		w.report.Lanes = w.lanes.list()
		w.observer, w.held = nil, holding{}
		reports[i] = w.report
	}
	return reports
}

// Stuck reports since when the observers have not come back from a chunk; zero if
// they are not at work. It is safe for concurrent use.
func (a *Attempt) Stuck() time.Duration {
	since := a.asked.Load()
	if since == 0 {
		return 0
	}
	return max(a.elapsed()-time.Duration(since-1), 1)
}

// work notes that the observers are asked from now on.
func (a *Attempt) work() {
	a.last = a.elapsed()
	a.asked.Store(max(int64(a.last), 0) + 1)
}

// elapsed is how long it has been since began. That is also asked by others than the
// goroutine that reads.
func (a *Attempt) elapsed() time.Duration {
	if a.now == nil {
		return time.Since(a.began) // which is not half as long as time.Now
	}
	return a.now().Sub(a.began)
}

// tick is how long it is since the clock was last looked at.
func (a *Attempt) tick() time.Duration {
	now := a.elapsed()
	took := now - a.last
	a.last = now
	return max(took, 0)
}
