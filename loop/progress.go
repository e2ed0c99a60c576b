package loop

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// What a tool may say of how far it is. Of more than that the newest is kept for when
// it may, and the last of all for the end.
const (
	// MaxProgress is how long a text is, in bytes; a longer one is cut.
	MaxProgress = 4 << 10
	// maxProgressEvents is how many an execution has.
	maxProgressEvents = 100
	// progressEvery is the least time between two, but for the last.
	progressEvery = 500 * time.Millisecond
)

// telling is what one execution of a tool says while it is under way. The tool says it
// from any goroutine; the runner takes it from its own.
type telling struct {
	call Call
	// news is the runner's, and has a value when there may be something to take.
	news chan struct{}
	// left are the tools that it leaves the run.
	left *hooks.LeftTools

	mu    sync.Mutex
	said  int
	last  event.ToolProgress
	fresh bool
	taken int
	// next is when something may be taken, timer what says so.
	next  time.Time
	timer *time.Timer
	ended bool
}

// say is what [ToolInput.Progress] is.
func (l *telling) say(text string) {
	if blank(text) {
		return
	}
	text, changed := event.CleanText(text)
	text = event.Shorten(text, MaxProgress)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.said++
	l.last = event.ToolProgress{CallID: l.call.ID, Attempt: l.call.Attempt, Number: l.said, Text: text, Sanitized: changed}
	waits := l.fresh || l.taken >= maxProgressEvents-1
	l.fresh = true
	if waits {
		return // it is told already that there is something, or that is taken at the end
	}
	if wait := time.Until(l.next); wait > 0 {
		l.timer = time.AfterFunc(wait, func() { notice(l.news) })
		return
	}
	notice(l.news)
}

// take returns what was said last, if nobody has taken it and it is time.
func (l *telling) take() (event.ToolProgress, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.fresh || l.taken >= maxProgressEvents-1 || time.Until(l.next) > 0 {
		return event.ToolProgress{}, false
	}
	l.fresh, l.taken, l.next = false, l.taken+1, time.Now().Add(progressEvery)
	return l.last, true
}

// end is take for the last time. Nothing that is said later is heard.
func (l *telling) end() (event.ToolProgress, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fresh := l.fresh
	l.fresh, l.ended = false, true
	if l.timer != nil {
		l.timer.Stop()
	}
	return l.last, fresh
}

// telling returns what an execution of c can say, and the context that it is called with.
func (r *runner) telling(ctx context.Context, c Call) (context.Context, *telling) {
	l := &telling{call: c, news: r.news}
	ctx, l.left = hooks.NarrowingTools(ctx)
	r.tellings = append(r.tellings, l)
	return ctx, l
}

// told makes facts of what tools have said of how far they are.
func (r *runner) told() {
	for _, l := range r.tellings {
		if p, ok := l.take(); ok {
			r.facts = append(r.facts, r.shownOf(l.call, p))
		}
	}
}

// lastOf makes a fact of the last thing that a tool has said, and is done with it.
func (r *runner) lastOf(c Call) {
	i := slices.IndexFunc(r.tellings, func(l *telling) bool { return l.call.ID == c.ID })
	l := r.tellings[i]
	r.tellings = slices.Delete(r.tellings, i, i+1)
	if p, ok := l.end(); ok {
		r.facts = append(r.facts, r.shownOf(c, p))
	}
}

// untold ends what tools say that nobody listens to any more.
func (r *runner) untold() {
	for _, l := range r.tellings {
		l.end()
	}
	r.tellings, r.news = nil, nil
}

// shownOf is p as people are shown it. Where a hook is asked what may be seen of a
// tool's output, nothing of it is seen before that.
func (r *runner) shownOf(c Call, p event.ToolProgress) event.ToolProgress {
	h := r.asks.Hooks.AfterToolCall
	if h == nil {
		return p
	}
	for _, h := range (hooks.Hooks{AfterToolCall: h}).Set().Hooks {
		if h.Binds(r.ref(), c.Name) {
			p.Text, p.Withheld, p.Sanitized = "", true, false
		}
	}
	return p
}
