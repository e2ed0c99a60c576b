package sim

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/audit"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// world is one schedule under way. But for points and what mu guards, it is
// touched by one goroutine at a time: the scheduler, or the one that it has let
// go.
type world struct {
	src    *source
	script script
	mutant Mutation
	log    *looptest.Log
	logger *slog.Logger
	agents map[string]loop.Agent
	hooks  hooks.Hooks
	asker  *hooks.Asker
	// observers see the answers.
	observers *stream.Set

	mu     sync.Mutex
	points []*point
	// arrived has a value when somebody began to wait.
	arrived chan struct{}
	found   *Violation
	trace   []string
	traced  bool

	step  int
	calm  bool // nothing goes wrong any more
	lease time.Duration

	workers  []*worker
	actors   []*actor // whose goroutines may not be over
	sessions map[string]*session
	ids      []string // of the sessions, in order
	jobs     []loop.Job
	paused   atomic.Bool
	client   client
	effects  map[string][]effect
	modelled map[string]bool // model calls that were made
	runEnds  map[string]int
	expires  map[string]time.Time // the time that there is to answer questions
	held     []*heldBack
	sweeps   int
	stats    Stats
}

// session is what the world knows of a session: its log, as it was appended.
type session struct {
	id       string
	events   []event.Event
	state    loop.State
	audit    *audit.Auditor
	recorded map[string]int64 // decisions, with their events
	// cursor is how far a client that follows the session is, pushed what is on
	// its way to it.
	cursor int64
	pushed []event.Event
}

// effect is what a tool did in the world.
type effect struct {
	worker  string
	attempt int
}

// Violation is a promise that was broken.
type Violation struct {
	// Rule is a short name.
	Rule string
	// Step is the one in which it was noticed.
	Step    int
	Problem string
}

// String names the rule, the step and the problem.
func (v Violation) String() string {
	return fmt.Sprintf("%s, at step %d: %s", v.Rule, v.Step, v.Problem)
}

// Stats count what a schedule had.
type Stats struct {
	Steps, Sent, Appends, Events, Runs, Faults, Crashes, Zombies int
}

// Add counts those of another schedule in.
func (s *Stats) Add(o Stats) {
	s.Steps, s.Sent, s.Appends, s.Events = s.Steps+o.Steps, s.Sent+o.Sent, s.Appends+o.Appends, s.Events+o.Events
	s.Runs, s.Faults, s.Crashes, s.Zombies = s.Runs+o.Runs, s.Faults+o.Faults, s.Crashes+o.Crashes, s.Zombies+o.Zombies
}

// Result is a schedule that was played.
type Result struct {
	Stats
	// Found is the first promise that was broken; nil for none.
	Found *Violation
	// Log has all events and the ledger, one a line.
	Log string
	// Trace tells the schedule, a step a line, if that was asked for.
	Trace []string

	chosen []uint32
}

// Play plays the schedule of a seed, with m in place if it is not "". It needs a
// test for its bubble and fails none.
func Play(t *testing.T, seed uint64, m Mutation) Result {
	t.Helper()
	return play(t, seeded(seed), m, false)
}

func play(t *testing.T, src *source, m Mutation, traced bool) (r Result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(src, m, traced)
		w.run()
		w.stats.Steps = w.step
		r = Result{Stats: w.stats, Found: w.found, Trace: w.trace, Log: w.dump(), chosen: src.chosen}
	})
	return r
}

func newWorld(src *source, m Mutation, traced bool) *world {
	w := &world{
		src: src, mutant: m, traced: traced, log: looptest.NewLog(), logger: slog.New(slog.DiscardHandler),
		arrived: make(chan struct{}, 1), sessions: map[string]*session{}, effects: map[string][]effect{},
		modelled: map[string]bool{}, runEnds: map[string]int{}, expires: map[string]time.Time{},
	}
	w.log.Now = w.clock
	w.script = drawScript(src)
	w.agents = map[string]loop.Agent{"demo": w.script.agent(w)}
	w.hooks = w.script.hooks(w)
	w.observers = w.script.observing.observers(w)
	w.asker = &hooks.Asker{HookSet: w.hooks.Set().With(w.observers.Hooks()...).Digest}
	return w
}

// clock is that of the log, by which leases run out.
func (w *world) clock() time.Time { return time.Now().Add(w.lease) }

// violated keeps the first promise that is broken.
func (w *world) violated(rule, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.found == nil {
		w.found = &Violation{Rule: rule, Step: w.step, Problem: fmt.Sprintf(format, args...)}
		w.note("VIOLATED %s", *w.found)
	}
}

func (w *world) broken() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.found != nil
}

// say tells the trace; a caller that holds mu uses note.
func (w *world) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(format, args...)
}

func (w *world) note(format string, args ...any) {
	if w.traced {
		w.trace = append(w.trace, fmt.Sprintf("%4d  ", w.step)+fmt.Sprintf(format, args...))
	}
}

// run plays the schedule: first whatever the source says, and then, with nothing
// more going wrong, to the end of all runs.
func (w *world) run() {
	for range w.script.workers {
		w.startWorker()
	}
	w.createSessions()
	for range w.script.steps {
		synctest.Wait()
		if w.broken() {
			break
		}
		w.tick()
		w.actAtRandom()
	}
	w.settle()
	if !w.broken() {
		w.finalChecks()
	}
	w.kill()
}

func (w *world) tick() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.step++
}

// settle goes on without faults until there is nothing to do.
func (w *world) settle() {
	synctest.Wait()
	w.calm = true
	w.say("from here on nothing goes wrong")
	end := w.step + 3000
	for synctest.Wait(); !w.broken(); synctest.Wait() {
		w.tick()
		if w.step > end {
			w.violated("liveness", "%s", w.open())
			return
		}
		if !w.actInOrder() {
			return
		}
	}
}

// kill ends what is left, so that the bubble can end.
func (w *world) kill() {
	for _, wk := range w.workers {
		w.bury(wk.process)
	}
	for _, a := range w.actors {
		w.bury(a.process)
		a.stop()
	}
	synctest.Wait()
	// Some wait for a goroutine that was left behind.
	time.Sleep(10 * time.Minute) //nolint:forbidigo // in a bubble, where time is fake
}

func (w *world) bury(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !p.dead {
		p.dead = true
		close(p.gone)
	}
	w.points = slices.DeleteFunc(w.points, func(q *point) bool { return q.actor.process == p })
}

func (w *world) dump() string {
	out := ""
	for _, id := range w.ids {
		for _, e := range w.sessions[id].events {
			out += fmt.Sprintf("%s %d %s %s %d %s %s/%s %s\n", id, e.Seq, e.Type, e.RunID, e.Turn, e.At.Format(time.RFC3339Nano), e.Actor.Kind, e.Actor.ID, e.Payload)
		}
		for _, r := range w.log.Ledger(id) {
			out += fmt.Sprintf("%s decision %d %s %s %s %x\n", id, r.LedgerSeq, r.ID, r.Gate, r.Action, r.Hash)
		}
	}
	return out
}
