package loop_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// gated is the talk with a hook at every gate and a tool that needs a person.
type gated struct {
	*talk
	id string

	mu sync.Mutex
	// asked is where a hook was asked, in order.
	asked []asking
	// count is how many appends there were; kill is asked about each of them.
	count int
	kill  func(n int) bool
	// dead is told of the append that kill ended, committed has the decisions
	// of those before it.
	dead      func(loop.Append)
	committed []loop.LedgerRow
	// die ends the worker of the moment.
	die context.CancelFunc
}

// asking is what one call of a hook was told: which decision it is to make,
// and about what.
type asking struct {
	id string
	hooks.Position
}

func (g *gated) ask(ctx context.Context, gate hooks.Gate, ref hooks.RunRef, turn int, subject string, attempt int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = append(g.asked, asking{id: hooks.DecisionID(ctx), Position: hooks.Position{
		TenantID: looptest.Tenant, SessionID: g.id, RunID: ref.RunID, Turn: turn, Gate: gate, Subject: subject, Attempt: attempt,
	}})
}

func (g *gated) hooks() hooks.Hooks {
	system, body, args, text := "be brief", `{"all":"other"}`, `{"n":3}`, "reviewed"
	return hooks.Hooks{
		BeforeInput: func(ctx context.Context, in hooks.BeforeInput) (hooks.BeforeInputResult, error) {
			g.ask(ctx, hooks.GateBeforeInput, hooks.RunRef{}, 0, in.InputID, 1)
			return hooks.BeforeInputResult{Action: hooks.ActionContinue, Reason: hooks.Reason{Text: "fine"}}, nil
		},
		BeforeRunStart: func(ctx context.Context, in hooks.BeforeRunStart) (hooks.BeforeRunStartResult, error) {
			g.ask(ctx, hooks.GateBeforeRunStart, in.RunRef, 0, in.RunID, 1)
			return hooks.BeforeRunStartResult{Action: hooks.ActionTransform, System: &system}, nil
		},
		TransformContext: func(ctx context.Context, in hooks.TransformContext) (hooks.TransformContextResult, error) {
			g.ask(ctx, hooks.GateTransformContext, in.RunRef, in.Turn, strconv.Itoa(in.Turn), in.Attempt)
			return hooks.TransformContextResult{Action: hooks.ActionTransform, Messages: reword(in.Messages, "reworded")}, nil
		},
		BeforeProviderHeaders: func(ctx context.Context, in hooks.BeforeProviderHeaders) (hooks.BeforeProviderHeadersResult, error) {
			g.ask(ctx, hooks.GateBeforeProviderHeaders, in.RunRef, in.Turn, strconv.Itoa(in.Turn), in.Attempt)
			return hooks.BeforeProviderHeadersResult{Action: hooks.ActionTransform, Set: []hooks.Header{{Name: "X-Team", Value: "a"}}}, nil
		},
		BeforeProviderRequest: func(ctx context.Context, in hooks.BeforeProviderRequest) (hooks.BeforeProviderRequestResult, error) {
			g.ask(ctx, hooks.GateBeforeProviderRequest, in.RunRef, in.Turn, strconv.Itoa(in.Turn), in.Attempt)
			return hooks.BeforeProviderRequestResult{Action: hooks.ActionTransform, Body: &body}, nil
		},
		AfterProviderResponse: func(ctx context.Context, in hooks.AfterProviderResponse) (hooks.AfterProviderResponseResult, error) {
			g.ask(ctx, hooks.GateAfterProviderResponse, in.RunRef, in.Turn, strconv.Itoa(in.Turn), in.Attempt)
			return hooks.AfterProviderResponseResult{Action: hooks.ActionContinue}, nil
		},
		BeforeToolCall: func(ctx context.Context, in hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
			g.ask(ctx, hooks.GateBeforeToolCall, in.RunRef, in.Turn, in.Call.ID, in.Revision)
			return hooks.BeforeToolCallResult{Action: hooks.ActionTransform, Arguments: &args}, nil
		},
		BeforeExecute: func(ctx context.Context, in hooks.BeforeExecute) (hooks.BeforeExecuteResult, error) {
			g.ask(ctx, hooks.GateBeforeExecute, in.RunRef, in.Turn, in.Call.ID, in.Attempt)
			return hooks.BeforeExecuteResult{Action: hooks.ActionContinue}, nil
		},
		AfterToolCall: func(ctx context.Context, in hooks.AfterToolCall) (hooks.AfterToolCallResult, error) {
			g.ask(ctx, hooks.GateAfterToolCall, in.RunRef, in.Turn, in.Call.ID, in.Attempt)
			return hooks.AfterToolCallResult{Action: hooks.ActionTransform, Content: &text}, nil
		},
	}
}

var allGates = []hooks.Gate{
	hooks.GateBeforeInput, hooks.GateBeforeRunStart, hooks.GateTransformContext,
	hooks.GateBeforeProviderHeaders, hooks.GateBeforeProviderRequest, hooks.GateAfterProviderResponse,
	hooks.GateBeforeToolCall, hooks.GateBeforeExecute, hooks.GateAfterToolCall,
}

func newGated(t *testing.T, pure func(hooks.Gate) bool) *gated {
	g := &gated{talk: newTalk(t, looptest.NewLog()), kill: func(int) bool { return false }, die: func() {}}
	agent := g.Engine.Agents["demo"]
	agent.Model = &looptest.Provider{Plays: agent.Model.(looptest.Model)}
	g.Engine.Agents["demo"] = agent
	permit(g.Bench, loop.Permission{Tools: "once", Mode: loop.PermissionAsk})
	g.Use(declared(g.hooks(), pure))
	g.id = g.Session(t)
	return g
}

// watch counts appends, and fails those that kill names: instead of writing
// them, or after.
func (g *gated) watch(written bool) {
	f := func(a loop.Append) error {
		if g.count++; g.kill(g.count) {
			g.dead(a)
			g.die()
			return errDead
		}
		g.committed = append(g.committed, a.Ledger...)
		return nil
	}
	if written {
		g.log.LoseAcks(f)
	} else {
		g.log.FailAppends(f)
	}
}

// play takes the talk to its end, whatever dies on the way: each time somebody
// else goes on with what is in the log.
func (g *gated) play(t *testing.T) loop.Job {
	t.Helper()
	started, err := say(t, g.Bench, g.id, "hi", "k")
	if errors.Is(err, errDead) {
		started, err = say(t, g.Bench, g.id, "hi", "k")
	}
	if err != nil {
		t.Fatal(err)
	}
	j := loop.Job{TenantID: looptest.Tenant, SessionID: g.id, RunID: started.RunID, Ticket: 1}
	for range 20 {
		run := g.Run(t, j)
		switch run.Status {
		case loop.RunQueued:
			ctx, die := context.WithCancel(t.Context())
			g.die = die
			err := g.Engine.Advance(ctx, next(t, g.Bench, j), loop.Holder{WorkerID: looptest.NewID()})
			if err != nil && ctx.Err() == nil {
				t.Fatalf("advance: %v", err)
			}
			die()
		case loop.RunRunning:
			g.die = func() {}
			buried(t, g.Bench, j, run.WorkerID)
		case loop.RunWaiting:
			_, err := g.Commands.DecideApproval(t.Context(), loop.DecideApproval{
				TenantID: looptest.Tenant, ApprovalID: openApprovals(t, g.Bench, j)[0], Approve: true, Actor: looptest.Tester,
			})
			if err != nil && !errors.Is(err, errDead) {
				t.Fatalf("decide: %v", err)
			}
		default:
			return j
		}
	}
	t.Fatalf("the run does not end: %+v", g.Run(t, j))
	return j
}

// recorded counts the rows of a ledger by their decision.
func recorded(rec []loop.LedgerRow) map[string]int {
	out := map[string]int{}
	for _, r := range rec {
		out[r.ID]++
	}
	return out
}

// TestDecidedOnceWhateverDies kills whoever writes in the middle of each append
// of a run with all gates and an approval, before or after it was written. What
// was decided is not asked again; what was asked and not decided is asked again
// for the same decision; the ledger has every decision once.
func TestDecidedOnceWhateverDies(t *testing.T) {
	t.Parallel()
	for name, pure := range map[string]func(hooks.Gate) bool{"pure": everyGate, "not pure": noGate} {
		for _, written := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/written=%v", name, written), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					whole := newGated(t, pure)
					whole.watch(written)
					whole.play(t)
					checked(t, whole.Bench, whole.id)
					for _, gate := range allGates {
						if !slices.ContainsFunc(ledger(whole.Bench, whole.id), func(r loop.LedgerRow) bool { return r.Gate == gate }) {
							t.Fatalf("the talk does not ask %s: %v", gate, rows(ledger(whole.Bench, whole.id)))
						}
					}
					for n := 1; n <= whole.count; n++ {
						dies(t, n, written, pure)
						if t.Failed() {
							t.Fatalf("dead in append %d of %d", n, whole.count)
						}
					}
				})
			})
		}
	}
}

func dies(t *testing.T, n int, written bool, pure func(hooks.Gate) bool) {
	t.Helper()
	g := newGated(t, pure)
	askedBefore, durable := 0, map[string]int{}
	g.kill = func(nth int) bool { return nth == n }
	g.dead = func(a loop.Append) {
		askedBefore = len(g.asked)
		if written {
			durable = recorded(a.Ledger)
		}
		for id := range recorded(g.committed) {
			durable[id] = 1
		}
	}
	g.watch(written)
	j := g.play(t)
	events, s := checked(t, g.Bench, g.id)
	rec := ledger(g.Bench, g.id)
	if r, _ := s.Run(j.RunID); r.Status != loop.RunCompleted || g.effects.Load() > 1 {
		t.Errorf("run %+v, %d effects", r, g.effects.Load())
	}
	decided := recorded(rec)
	times, at := map[string]int{}, map[string]hooks.Position{}
	for i, a := range g.asked {
		if times[a.id]++; times[a.id] > 1 && at[a.id] != a.Position {
			t.Errorf("asked for %s at %+v and at %+v", a.id, at[a.id], a.Position)
		}
		at[a.id] = a.Position
		if i >= askedBefore && durable[a.id] > 0 {
			t.Errorf("asked again at %+v, which was decided", a.Position)
		}
		// What was said of an output or of an answer that is lost is lost with it.
		lost := a.Gate == hooks.GateAfterToolCall || a.Gate == hooks.GateAfterProviderResponse
		if pure(a.Gate) && (a.Gate == hooks.GateBeforeToolCall || a.Gate == hooks.GateBeforeExecute) {
			lost = lost || !knowsCall(t, events, a.Subject)
		}
		if decided[a.id] == 0 && !lost {
			t.Errorf("asked at %+v, of which the ledger knows nothing", a.Position)
		}
	}
	for id, k := range decided {
		if k != 1 || times[id] < 1 || times[id] > 2 || times[id] == 2 && written {
			t.Errorf("asked %d times and decided %d times at %+v", times[id], k, at[id])
		}
	}
	for _, r := range rec {
		if typ := events[r.EventSeq-1].Type; !slices.Contains(effects[r.Gate], typ) {
			t.Errorf("%s was stored with %s", r.Gate, typ)
		}
	}
}

// knowsCall reports whether the log has the call with that id.
func knowsCall(t *testing.T, events []event.Event, id string) bool {
	t.Helper()
	return slices.ContainsFunc(payloads[event.ToolProposed](t, events), func(p event.ToolProposed) bool { return p.CallID == id })
}

// effects are the events that decisions of a gate are stored with.
var effects = map[hooks.Gate][]event.Type{
	hooks.GateBeforeInput:           {event.TypeRunQueued},
	hooks.GateBeforeRunStart:        {event.TypeModelRequested},
	hooks.GateTransformContext:      {event.TypeModelRequested},
	hooks.GateBeforeProviderHeaders: {event.TypeModelRequested},
	hooks.GateBeforeProviderRequest: {event.TypeModelRequested},
	hooks.GateAfterProviderResponse: {event.TypeAssistantDelta},
	hooks.GateBeforeToolCall:        {event.TypeToolStarted, event.TypeApprovalRequested},
	hooks.GateBeforeExecute:         {event.TypeToolStarted},
	hooks.GateAfterToolCall:         {event.TypeToolResult},
}

// TestDecisionsAreInTheAppendOfTheirEffect looks at every append of the talk.
func TestDecisionsAreInTheAppendOfTheirEffect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGated(t, noGate)
		var rec []loop.LedgerRow
		g.log.LoseAcks(func(a loop.Append) error {
			for _, r := range a.Ledger {
				if e := a.Events[r.EventSeq-a.Expected-1]; !slices.Contains(effects[r.Gate], e.Type) {
					t.Errorf("%s is in the append of %v, for %s", r.Gate, looptest.Types(a.Events), e.Type)
				}
				if a.Epoch != r.Epoch {
					t.Errorf("%s under epoch %d in an append under %d", r.Gate, r.Epoch, a.Epoch)
				}
			}
			rec = append(rec, a.Ledger...)
			return nil
		})
		g.play(t)
		checked(t, g.Bench, g.id)
		if !reflect.DeepEqual(rec, ledger(g.Bench, g.id)) || len(rec) != len(g.asked) {
			t.Errorf("%d rows were appended, %d hooks asked, the ledger is %v", len(rec), len(g.asked), rows(ledger(g.Bench, g.id)))
		}
		for i, r := range rec {
			if r.Position != g.asked[i].Position || r.ID != g.asked[i].id || r.HookSetDigest != g.hooks().Set().Digest || r.ChainLength != 1 || r.Payload.Empty() != (r.PayloadSHA256 == nil) {
				t.Errorf("row %d %+v; want %+v", i+1, r.Row, g.asked[i])
			}
		}
		head, err := g.Log.Head(t.Context(), looptest.Tenant, g.id)
		if last := rec[len(rec)-1]; err != nil || head.Ledger != (loop.LedgerHead{Seq: last.LedgerSeq, Hash: last.Hash}) {
			t.Errorf("head %+v, %v; want %+v", head.Ledger, err, last.Row)
		}
	})
}

// TestClaimPinsTheHookSet on each lease.
func TestClaimPinsTheHookSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGated(t, noGate)
		g.play(t)
		events, _ := checked(t, g.Bench, g.id)
		want := g.hooks().Set().Digest
		if a, b := only[event.RunStarted](t, events), only[event.RunResumed](t, events); a.HookSet != want || b.HookSet != want || want == "" {
			t.Errorf("started with %q, resumed with %q; want %q", a.HookSet, b.HookSet, want)
		}
	})
}
