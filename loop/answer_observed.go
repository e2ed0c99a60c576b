package loop

import (
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// takeIn is add for what observers have made of a chunk: nobody takes some of it
// before all of it is there.
func (a *answer) takeIn(out stream.Output) (full bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range out.Chunks {
		if full, err = a.taken(&out.Chunks[i]); err != nil {
			return false, err
		}
	}
	for _, e := range out.Emissions {
		text, changed := event.CleanJSON(string(e.Envelope))
		a.pending = append(a.pending, block{emitted: &event.Emission{
			Attempt: a.attempt, Observer: e.Observer, Channel: e.Channel, Envelope: []byte(text), Chunk: e.Chunk, Sanitized: changed,
		}})
		a.size += len(text)
		notice(a.ready)
	}
	return a.size >= maxPending, nil
}

// finished reports whether the answer's end has come. It is for the goroutine that
// adds chunks, without which it does not come, and needs no lock there.
func (a *answer) finished() bool { return a.finish != nil }

// stopped says that an observer has stopped the answer. What the provider had
// said of the usage by then counts.
func (a *answer) stopped(s stream.Stopped, usage stream.Usage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.left {
		a.stop, a.usage = &s, usage
	}
}

// leave ends an answer whose observers hang, and reports whether it had not ended
// by itself. Nothing more is heard of it. One that was whole by then is whole.
func (a *answer) leave(s stream.Stopped) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.done {
		return false
	}
	a.left, a.done = true, true
	if a.finish == nil && a.stop == nil {
		for _, b := range a.blocks {
			s.Accepted += len(b.text)
		}
		a.stop = &s
	}
	return true
}

// observed adds what observers have done, all in all.
func (a *answer) observed(reports []stream.Report) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.left {
		a.reports = reports
	}
}

func (a *answer) takeReports() []stream.Report {
	a.mu.Lock()
	defer a.mu.Unlock()
	taken := a.reports
	a.reports = nil
	return taken
}
