package stream

import (
	"bytes"
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// fate is what becomes of a chunk at one observer.
type fate uint8

const (
	goesOn fate = iota
	stops
	fails
)

// pass hands c to the observers from the i-th on, who change it on its way, and what
// is left of it out. It reports false if one of them stops the answer.
func (a *Attempt) pass(i int, c *Chunk) bool {
	for ; i < len(a.watchers); i++ {
		w := &a.watchers[i]
		if w.observer == nil {
			continue
		}
		switch f, failure := a.ask(w, c); f {
		case stops:
			return false
		case fails:
			if !a.without(i, failure, c.At) {
				return false
			}
			continue
		case goesOn:
		}
		w.report.BytesOut += len(c.Text)
		if c.Kind == KindFinish && w.called && c.Finish.Reason == FinishStop {
			c.Finish.Reason = FinishToolCalls
		}
	}
	a.out = append(a.out, *c)
	return true
}

// end sends the i-th observer the end of each of its blocks until it lets it
// pass, and hands what it gives back to those behind it.
func (a *Attempt) end(i int, at time.Duration) bool {
	w := &a.watchers[i]
	for _, ref := range w.blocks {
		for n := 0; w.observer != nil; n++ {
			next := Chunk{Kind: KindEnd, Lane: ref.lane, BlockID: ref.id, At: at}
			f, failure := a.ask(w, &next)
			if f == goesOn && n == maxGivenBack {
				f, failure = fails, failf(outcomeMalformed, "it does not let the end of a block pass, which was sent %d times", maxGivenBack)
			}
			switch {
			case f == stops:
				return false
			case f == fails:
				if !a.without(i, failure, at) {
					return false
				}
			case next.Kind == KindEnd:
			default:
				w.report.BytesOut += len(next.Text)
				if !a.pass(i+1, &next) {
					return false
				}
				continue
			}
			break
		}
	}
	return true
}

// without goes on without the i-th observer, which has failed: what is known to
// be held is given back as it was. It reports false if the answer is stopped,
// because of that observer or of one behind it.
func (a *Attempt) without(i int, f *Failure, at time.Duration) bool {
	w := &a.watchers[i]
	if w.observer != nil {
		f.Chunk = a.chunks
	}
	w.observer, w.report.Failure = nil, f
	r, pieces := w.report.Registration, w.held.pieces
	w.held = holding{}
	if r.OnFailure == FailStop {
		return a.stop(w, failedReason(w), true)
	}
	for _, p := range pieces {
		w.report.BytesOut += len(p.text)
		if !a.pass(i+1, &Chunk{Kind: KindDelta, Lane: p.lane, BlockID: p.id, Text: p.text, At: at}) {
			return false
		}
	}
	return true
}

// failedReason is why an answer is stopped whose observer has failed.
func failedReason(w *watcher) string {
	return "The observer " + w.report.Registration.ID + " failed (" + w.report.Failure.Outcome + "), so the answer was stopped."
}

// ask asks one observer about c and makes of it what goes on. If it fails, c is as it
// was.
func (a *Attempt) ask(w *watcher, c *Chunk) (fate, *Failure) {
	if f := w.enter(c); f != nil {
		return fails, f
	}
	a.at.Store(int32(w.report.Index))
	var v Verdict
	ok := a.seen(w, c, &v)
	took := a.tick()
	if !ok {
		w.report.Took += took
		return fails, failf(outcomePanic, "it panicked")
	}
	if f := w.spent(took); f != nil {
		return fails, f
	}
	var f *Failure
	switch v.Action {
	case "", ActionContinue:
		f = w.lets(c)
	case ActionAmend:
		f = w.amends(c, &v.Chunk)
	case ActionEmit:
		if f = a.emits(w, &v); f == nil {
			f = w.lets(c)
		}
	case ActionThrottle:
		if f = w.lets(c); f == nil {
			a.throttle(w, v.Pause)
		}
	case ActionHold:
		if f = w.holds(c); f == nil {
			c.Text = ""
		}
	case ActionStop:
		a.stop(w, v.Reason, false)
		return stops, nil
	default:
		f = failf(outcomeMalformed, "its action is none")
	}
	if f != nil {
		return fails, f
	}
	return goesOn, nil
}

// seen asks w, and reports false if it panicked. What it panicked with is not
// looked at: it may hold what the observer saw.
func (a *Attempt) seen(w *watcher, c *Chunk, v *Verdict) (ok bool) {
	defer func() {
		// Where there is no panic, the observer has ended the goroutine, and nobody
		// comes back from here.
		if !ok && recover() == nil {
			a.abandoned(w)
		}
	}()
	*v = w.observer.OnChunk(*c)
	return true
}

// abandoned stops the answer because w has ended the goroutine that reads it,
// whatever is to follow from its failures.
func (a *Attempt) abandoned(w *watcher) {
	w.report.Took += a.tick()
	w.observer, w.held = nil, holding{}
	w.report.Failure = failf(outcomePanic, "it ended the goroutine that called it")
	w.report.Failure.Chunk = a.chunks
	a.stop(w, failedReason(w), true)
	a.drop()
}

// lets takes in that the observer lets c pass.
func (w *watcher) lets(c *Chunk) *Failure {
	if len(w.held.blocks) == 0 {
		return nil
	}
	h := w.held.find(refOf(c))
	switch {
	case h == nil:
		return nil
	case c.Kind == KindEnd:
		return failf(outcomeMalformed, "it let the end of a block pass and still held %d bytes of it", h.bytes)
	case c.Text == "":
		return w.overdue(h, c.At)
	}
	w.held.release(refOf(c))
	return nil
}

// overdue fails an observer that still holds what it should have given back.
func (w *watcher) overdue(h *heldBlock, at time.Duration) *Failure {
	if limit := w.report.Registration.HoldTime; limit > 0 && at-h.since > limit {
		return failf(outcomeTimeout, "it held text for more than %v", limit)
	}
	return nil
}

// holds takes in that the observer holds the text of c.
func (w *watcher) holds(c *Chunk) *Failure {
	if c.Kind == KindEnd || c.Kind == KindFinish {
		return failf(outcomeMalformed, "it held an end, which has no text")
	}
	r, bytes := w.report.Registration, len(c.Text)
	if h := w.held.find(refOf(c)); h != nil {
		if f := w.overdue(h, c.At); f != nil {
			return f
		}
		bytes += h.bytes
	}
	if r.HoldBytes > 0 && bytes > r.HoldBytes {
		return failf(outcomeOversize, "it would hold %d bytes of a block; at most %d are allowed", bytes, r.HoldBytes)
	}
	w.held.add(c, r.OnFailure == FailDetach)
	w.report.Held++
	w.lanes.add(c.Lane)
	return nil
}

// throttle takes in that reading is to be paused.
func (a *Attempt) throttle(w *watcher, d time.Duration) {
	d = min(max(d, 0), MaxThrottle, MaxThrottleTotal-a.paused)
	a.pause += d
	a.paused += d
	w.report.Paused += d
	w.report.Throttled++
}

// emits takes in an envelope.
func (a *Attempt) emits(w *watcher, v *Verdict) *Failure {
	switch {
	case w.report.Emitted == MaxEmissions:
		return failf(outcomeOversize, "it emitted more than %d envelopes", MaxEmissions)
	case len(v.Envelope) > MaxEnvelope:
		return failf(outcomeOversize, "an envelope has %d bytes; at most %d are allowed", len(v.Envelope), MaxEnvelope)
	case !utf8.Valid(v.Envelope) || !json.Valid(v.Envelope):
		return failf(outcomeMalformed, "an envelope is no JSON document")
	case !hooks.ValidName(v.Channel):
		return failf(outcomeMalformed, "the name of a channel %s", hooks.NameRule)
	}
	a.emissions = append(a.emissions, Emission{
		Observer: w.report.Registration.ID, Channel: v.Channel, Envelope: bytes.Clone(v.Envelope), Chunk: a.chunks,
	})
	w.report.Emitted++
	return nil
}
