package loop_test

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// once is what a log says of one run of it and of the conversation.
func once(events []event.Event, runID string) loop.State {
	s := loop.FoldAll(loop.State{}, events)
	r, _ := s.Run(runID)
	s.Runs = []loop.Run{r}
	return s
}

// resumesAgain lets again have a talk, and answer it again by the job that it
// returns. It rebuilds the log as it was after each append of that, and lets
// another worker go on.
func resumesAgain(t *testing.T, fresh func(t *testing.T) *talk, again func(t *testing.T, k *talk) loop.Job) {
	t.Helper()
	var appends []loop.Append
	k := fresh(t)
	k.log.FailAppends(func(a loop.Append) error {
		appends = append(appends, a)
		return nil
	})
	j := again(t, k)
	whole, _ := checked(t, k.Bench, j.SessionID)
	from := 0
	for i, a := range appends {
		if has(a, event.TypeMessagesReplaced) {
			from = i
		}
	}
	if from == 0 || len(appends)-from < 4 {
		t.Fatalf("%d appends, replaced in number %d: %v", len(appends), from+1, looptest.Types(whole))
	}
	for n := from + 1; n <= len(appends); n++ {
		k := fresh(t)
		for _, a := range appends[:n] {
			if _, err := k.log.Append(t.Context(), a); err != nil {
				t.Fatal(err)
			}
		}
		run := k.Run(t, j)
		j.Ticket = run.Ticket
		if run.Status == loop.RunRunning {
			j = buried(t, k.Bench, j, run.WorkerID)
		}
		own := slices.DeleteFunc(k.Events(t, j.SessionID), func(e event.Event) bool { return e.RunID != j.RunID })
		unknown := startedWithoutOutcome(t, own, "once")
		if ended := k.Advance(t, j); ended.Status != loop.RunCompleted {
			t.Fatalf("after append %d of %d: run %+v; want it completed", n, len(appends), ended)
		}
		events, _ := checked(t, k.Bench, j.SessionID)
		if got, want := essence(once(events, j.RunID)), expectedOf(once(whole, j.RunID), unknown); !reflect.DeepEqual(got, want) {
			t.Errorf("after append %d of %d it ended otherwise\n got %q\nwant %q", n, len(appends), got, want)
		}
		for call, count := range k.asked {
			if count != 1 {
				t.Errorf("after append %d: turn %d attempt %d was asked %d times", n, call[0], call[1], count)
			}
		}
	}
}

// TestResumeOfARegeneratedRunFromEveryPrefix: what was replaced stays replaced,
// whoever goes on.
func TestResumeOfARegeneratedRunFromEveryPrefix(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		resumesAgain(t, func(t *testing.T) *talk { return newTalk(t, looptest.NewLog()) }, func(t *testing.T, k *talk) loop.Job {
			first := k.Start(t, k.Session(t), "hi")
			k.Advance(t, first)
			run, err := instead(t, k.Bench, first.SessionID, k.Run(t, first).MessageID, "")
			if err != nil {
				t.Fatal(err)
			}
			k.Advance(t, job(first.SessionID, run))
			return job(first.SessionID, run)
		})
	})
}

// TestResumeOfARetriedRunFromEveryPrefix: the turn that failed is not made
// again, nor is what was finished before.
func TestResumeOfARetriedRunFromEveryPrefix(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// Fails in its second turn, wherever that is played.
		broken := func(t *testing.T) *talk {
			k := newTalk(t, looptest.NewLog())
			whole := k.Engine.Agents["demo"].Model
			play(k.Bench, func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
				switch req.Turn {
				case 1, 3:
					whole.Stream(ctx, req)(yield)
				case 2:
					paced(fails(errModel, looptest.Text("all "), looptest.Text("d")))(ctx, req, yield)
				default:
					t.Errorf("turn %d was begun", req.Turn)
				}
			})
			return k
		}
		resumesAgain(t, broken, func(t *testing.T, k *talk) loop.Job {
			j := k.Start(t, k.Session(t), "hi")
			if run := k.Advance(t, j); run.Status != loop.RunFailed {
				t.Fatalf("run %+v; want it failed", run)
			}
			j = retaken(t, k.Bench, j)
			k.Advance(t, j)
			if n := k.effects.Load(); n != 1 {
				t.Errorf("the tool that is not idempotent took effect %d times", n)
			}
			return j
		})
	})
}
