package loop_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// staged is a drama that is played while processes die. A process is the API
// and a worker in one, so that whoever writes takes the other with it.
type staged struct {
	*looptest.Bench
	log   *looptest.Log
	drama drama
	// killAt is the append in which a process dies, 0 for none. It is written
	// or it is not; its writer learns nothing of that.
	killAt  int
	written bool

	id string // of the session
	// job is that of the run which acts are about, approval the one they answer.
	job      loop.Job
	approval string

	mu       sync.Mutex
	armed    bool // deaths are possible
	appends  []loop.Append
	died     bool
	die      context.CancelFunc
	repeated bool // a client asked again
	// durable are the decisions that were recorded when the process died.
	durable []loop.LedgerRow
	// What was done outside of the log, in order.
	requests []modelAsked
	entered  []toolEntered
	asked    []hookAsked
}

// modelAsked is a call of the model, toolEntered one of a tool, and hookAsked one
// of a hook. after says that it came after the death.
type modelAsked struct {
	loop.ModelRequest
	after bool
}

type toolEntered struct {
	tool, call string
	attempt    int
	after      bool
	arguments  string
}

type hookAsked struct {
	decision string
	gate     hooks.Gate
	after    bool
}

func stage(t *testing.T, d drama, pure func(hooks.Gate) bool, killAt int, written bool) *staged {
	t.Helper()
	k := &staged{log: looptest.NewLog(), drama: d, killAt: killAt, written: written, die: func() {}}
	var tools []loop.Tool
	for _, p := range d.tools {
		tools = append(tools, k.tool(p))
	}
	k.Bench = looptest.NewBench(k.log, k.model(t, d.model), tools...)
	permit(k.Bench, d.permissions...)
	hurry(k.Bench, d.timeout)
	k.Use(declared(k.hooks(), func(g hooks.Gate) bool { return pure(g) && g != d.slow }))
	if d.observer.ID != "" {
		agent := k.Engine.Agents["demo"]
		agent.Fallbacks = []loop.Fallback{{Model: agent.Model, ModelName: "second"}}
		k.Engine.Agents["demo"] = agent
		k.Observe(t, d.observer)
	}
	k.id = k.Session(t)
	if written {
		k.log.LoseAcks(k.append)
	} else {
		k.log.FailAppends(k.append)
	}
	if d.before != nil {
		d.before(t, k)
	}
	k.mu.Lock()
	k.armed = true
	k.mu.Unlock()
	return k
}

func (k *staged) append(a loop.Append) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	dies := false
	if k.armed {
		k.appends = append(k.appends, a)
		dies = len(k.appends) == k.killAt
	}
	if !k.died && (!dies || k.written) {
		k.durable = append(k.durable, a.Ledger...)
	}
	if dies {
		k.died = true
		k.die()
		return errDead
	}
	return nil
}

// cut is the last seq that was durable at the death.
func (k *staged) cut() int64 {
	a := k.appends[k.killAt-1]
	if k.written {
		return a.Expected + int64(len(a.Events))
	}
	return a.Expected
}

// tag names an attempt in what it says, so that a mix would show.
func tag(runID string, turn, attempt int) string {
	return fmt.Sprintf("[%s.%d.%d]", runID[len(runID)-12:], turn, attempt)
}

func (k *staged) model(t *testing.T, plays looptest.Model) looptest.Model {
	return strict(t, paced(func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		k.mu.Lock()
		k.requests = append(k.requests, modelAsked{req, k.died})
		k.mu.Unlock()
		if yield(looptest.Text(tag(req.RunID, req.Turn, req.Attempt)), nil) {
			plays(ctx, req, yield)
		}
	}))
}

// tool takes effect when it is entered, and returns later.
func (k *staged) tool(p prop) loop.Tool {
	return looptest.Tool{Name: p.name, Idempotent: p.idempotent, Run: func(ctx context.Context, in loop.ToolInput) (loop.ToolOutput, error) {
		k.mu.Lock()
		k.entered = append(k.entered, toolEntered{p.name, in.CallID, in.Attempt, k.died, string(in.Arguments)})
		k.mu.Unlock()
		for _, text := range p.says {
			in.Progress(text)
			pause(ctx, time.Second)
		}
		pause(ctx, p.takes)
		return loop.ToolOutput{Content: p.name + " ran"}, ctx.Err()
	}}
}

// hooks are asked wherever a run passes, and let everything through.
func (k *staged) hooks() hooks.Hooks {
	ask := func(ctx context.Context, gate hooks.Gate) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.asked = append(k.asked, hookAsked{hooks.DecisionID(ctx), gate, k.died})
	}
	return hooks.Hooks{
		BeforeInput: func(ctx context.Context, _ hooks.BeforeInput) (hooks.BeforeInputResult, error) {
			ask(ctx, hooks.GateBeforeInput)
			return hooks.BeforeInputResult{Action: hooks.ActionContinue}, nil
		},
		BeforeRunStart: func(ctx context.Context, _ hooks.BeforeRunStart) (hooks.BeforeRunStartResult, error) {
			ask(ctx, hooks.GateBeforeRunStart)
			return hooks.BeforeRunStartResult{Action: hooks.ActionContinue}, nil
		},
		TransformContext: func(ctx context.Context, _ hooks.TransformContext) (hooks.TransformContextResult, error) {
			ask(ctx, hooks.GateTransformContext)
			return hooks.TransformContextResult{Action: hooks.ActionContinue}, nil
		},
		BeforeToolCall: func(ctx context.Context, _ hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
			ask(ctx, hooks.GateBeforeToolCall)
			if k.drama.leaves != nil {
				return hooks.BeforeToolCallResult{Action: hooks.ActionContinue}, hooks.NarrowTools(ctx, k.drama.leaves)
			}
			return hooks.BeforeToolCallResult{Action: hooks.ActionContinue}, nil
		},
		BeforeExecute: func(ctx context.Context, _ hooks.BeforeExecute) (hooks.BeforeExecuteResult, error) {
			ask(ctx, hooks.GateBeforeExecute)
			return hooks.BeforeExecuteResult{Action: hooks.ActionContinue}, nil
		},
		AfterToolCall: func(ctx context.Context, _ hooks.AfterToolCall) (hooks.AfterToolCallResult, error) {
			ask(ctx, hooks.GateAfterToolCall)
			return hooks.AfterToolCallResult{Action: hooks.ActionContinue}, nil
		},
	}
}

// play takes the drama to its end: whoever dies, somebody else goes on with
// what is in the log. It returns the log.
func (k *staged) play(t *testing.T) []event.Event {
	t.Helper()
	acts := k.drama.acts
	for range 30 {
		run := loop.Run{}
		if k.job.RunID != "" {
			run = k.Run(t, k.job)
		}
		switch {
		case run.Status == loop.RunQueued:
			acts = k.work(t, run, acts)
		case run.Status == loop.RunRunning:
			k.release(t, run)
		case len(acts) > 0:
			k.ask(t, acts[0])
			acts = acts[1:]
		case run.Status.Terminal():
			return k.Events(t, k.id)
		default:
			t.Fatalf("nobody has anything to do, and the run is %+v", run)
		}
	}
	t.Fatalf("the run does not end: %v", looptest.Types(k.Events(t, k.id)))
	return nil
}

// work lets a worker have the run. A client that still wants something asks for
// it when nothing has happened for a while.
func (k *staged) work(t *testing.T, run loop.Run, acts []act) []act {
	t.Helper()
	ctx, die := context.WithCancel(t.Context())
	defer die()
	k.mu.Lock()
	k.die = die
	k.mu.Unlock()
	j := k.job
	j.Ticket = run.Ticket
	done := make(chan error, 1)
	go func() { done <- k.Engine.Advance(ctx, j, loop.Holder{WorkerID: looptest.NewID()}) }()
	for {
		select {
		case err := <-done:
			if err != nil && ctx.Err() == nil {
				t.Fatalf("advance: %v", err)
			}
			if now := k.Run(t, k.job); err != nil && now.Status == loop.RunQueued && now.Ticket == j.Ticket {
				// The dead worker had fetched the job.
				if _, err := k.Commands.Requeue(t.Context(), j, "job_lost", looptest.Tester); err != nil {
					t.Fatalf("requeue: %v", err)
				}
			}
			return acts
		case <-time.After(time.Minute):
			if len(acts) == 0 {
				t.Fatalf("the run stands still: %v", looptest.Types(k.Events(t, k.id)))
			}
			k.ask(t, acts[0])
			acts = acts[1:]
		}
	}
}

func (k *staged) release(t *testing.T, run loop.Run) {
	t.Helper()
	ok, err := k.Commands.ReleaseDead(t.Context(), loop.Release{
		TenantID: looptest.Tenant, SessionID: k.id, RunID: run.ID, WorkerID: run.WorkerID, Now: time.Now(), Actor: looptest.Tester,
	})
	if err != nil || !ok {
		t.Fatalf("release: %v, %v", ok, err)
	}
}

// ask is a client who asks again when the connection breaks.
func (k *staged) ask(t *testing.T, a act) {
	t.Helper()
	err := a(t, k)
	if errors.Is(err, errDead) {
		synctest.Wait() // whoever is dead is still
		k.repeated = true
		err = a(t, k)
	}
	if err != nil {
		t.Fatalf("ask: %v", err)
	}
}

// TestADeathBetweenAnyTwoWritesLeavesNoTrace kills a process in each append of
// each drama, written or lost, with hooks that are asked about durable facts
// only and so cost appends of their own. What must hold is in check.
func TestADeathBetweenAnyTwoWritesLeavesNoTrace(t *testing.T) {
	t.Parallel()
	for _, d := range slices.Concat(dramas, similar) {
		t.Run(strings.ReplaceAll(d.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			deaths(t, d, noGate)
		})
	}
}

// deaths plays the drama as often as it has appends, twice, and returns what
// became of it each time.
func deaths(t *testing.T, d drama, pure func(hooks.Gate) bool) (rows []killRow) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		undisturbed := stage(t, d, pure, 0, true)
		whole := undisturbed.play(t)
		checked(t, undisturbed.Bench, undisturbed.id)
		for n := range undisturbed.appends {
			for _, written := range []bool{false, true} {
				k := stage(t, d, pure, n+1, written)
				events := k.play(t)
				if !k.died || !slices.Equal(looptest.Types(k.appends[n].Events), looptest.Types(undisturbed.appends[n].Events)) {
					t.Fatalf("%s: append %d is %v, undisturbed %v", d.name, n+1, looptest.Types(k.appends[n].Events), looptest.Types(undisturbed.appends[n].Events))
				}
				row := k.check(t, whole, events)
				if t.Failed() {
					t.Fatalf("%s: dead in append %d of %d, written: %t: %v", d.name, n+1, len(undisturbed.appends), written, looptest.Types(events))
				}
				row.point = pointOf(undisturbed.appends, n)
				rows = append(rows, row)
			}
		}
	})
	return rows
}
