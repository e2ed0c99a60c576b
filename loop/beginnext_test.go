package loop_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// forgetful is the log of a version that ends runs and begins none behind them.
type forgetful struct{ *looptest.Log }

func (l forgetful) Append(ctx context.Context, a loop.Append) (loop.Appended, error) {
	for i, e := range a.Events {
		if p, err := event.Decode(e); err == nil && i > 0 && p == any(event.RunQueued{Ticket: 1, Cause: event.QueuedNext}) {
			a.Events, a.Jobs = a.Events[:i], nil
			break
		}
	}
	return l.Log.Append(ctx, a)
}

// overtaken is a log whose user is not the first: somebody is faster behind its
// reading of the head, or before its append.
type overtaken struct {
	*looptest.Log
	read, write func()
}

func (o *overtaken) Head(ctx context.Context, tenantID, sessionID string) (loop.Head, error) {
	h, err := o.Log.Head(ctx, tenantID, sessionID)
	if o.read != nil {
		o.read()
	}
	return h, err
}

func (o *overtaken) Append(ctx context.Context, a loop.Append) (loop.Appended, error) {
	if o.write != nil {
		o.write()
	}
	return o.Log.Append(ctx, a)
}

// passedOver is a session whose first run has ended, with two behind it.
func passedOver(t *testing.T) (b *looptest.Bench, log *looptest.Log, first, second, third loop.Job) {
	t.Helper()
	log = looptest.NewLog()
	old := looptest.NewBench(forgetful{log}, strict(t, says("as you wish")))
	id := old.Session(t)
	first = old.Start(t, id, "one")
	second, third = old.Say(t, id, "two", event.PolicyEnqueue), old.Say(t, id, "three", event.PolicyEnqueue)
	if r := old.Advance(t, first); r.Status != loop.RunCompleted {
		t.Fatalf("the first run is %s", r.Status)
	}
	return looptest.NewBench(log, strict(t, says("as you wish"))), log, first, second, third
}

func TestARunThatWasPassedOverIsBegun(t *testing.T) {
	t.Parallel()
	b, log, first, second, third := passedOver(t)
	for i, want := range []bool{true, false} {
		// Any enqueued run stands for its session; it is the oldest that begins.
		if done, err := b.Commands.BeginNext(t.Context(), third, looptest.Tester); done != want || err != nil {
			t.Fatalf("attempt %d: %t, %v; want %t", i+1, done, err, want)
		}
	}
	jobs := log.Jobs()
	if jobs[len(jobs)-1] != second || b.Run(t, third).Status != loop.RunEnqueued {
		t.Errorf("jobs %v; want the last of them %v", jobs, second)
	}
	for _, j := range []loop.Job{second, third} {
		if r := b.Advance(t, j); r.Status != loop.RunCompleted {
			t.Errorf("run %+v; want it completed", r)
		}
	}
	checked(t, b, first.SessionID)
	if done, err := b.Commands.BeginNext(t.Context(), third, looptest.Tester); done || err != nil {
		t.Errorf("with none left: %t, %v", done, err)
	}
}

func TestBeginningTheNextRunGivesWayToOthers(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]func(*overtaken, func()){
		"WhoBeganItWhileThisOneRead":  func(o *overtaken, f func()) { o.read = f },
		"WhoBeganItWhileThisOneWrote": func(o *overtaken, f func()) { o.write = f },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, log, _, second, third := passedOver(t)
			o := &overtaken{Log: log}
			slow := looptest.NewBench(o, nil)
			at(o, sync.OnceFunc(func() {
				if done, err := b.Commands.BeginNext(t.Context(), second, looptest.Tester); !done || err != nil {
					t.Errorf("the faster one: %t, %v", done, err)
				}
			}))
			if done, err := slow.Commands.BeginNext(t.Context(), third, looptest.Tester); done || err != nil {
				t.Errorf("%t, %v; want nothing to do", done, err)
			}
			if jobs := log.Jobs(); jobs[len(jobs)-1] != second || b.Run(t, third).Status != loop.RunEnqueued {
				t.Errorf("jobs %v; want the last of them %v", jobs, second)
			}
			checked(t, b, second.SessionID)
		})
	}
	t.Run("WhoDeletedTheSession", func(t *testing.T) {
		t.Parallel()
		b, _, _, second, third := passedOver(t)
		for _, j := range []loop.Job{second, third} {
			if err := cancel(t, b, j); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Commands.DeleteSession(t.Context(), looptest.Tenant, third.SessionID, looptest.Tester); err != nil {
			t.Fatal(err)
		}
		if done, err := b.Commands.BeginNext(t.Context(), third, looptest.Tester); done || err != nil {
			t.Errorf("%t, %v; want nothing to do", done, err)
		}
	})
	t.Run("AndSaysWhatTheLogSays", func(t *testing.T) {
		t.Parallel()
		b, log, _, second, third := passedOver(t)
		log.FailAppends(func(loop.Append) error { return loop.ErrUnavailable })
		if _, err := b.Commands.BeginNext(t.Context(), third, looptest.Tester); !errors.Is(err, loop.ErrUnavailable) {
			t.Errorf("got %v, want the log's error", err)
		}
		if _, err := b.Commands.BeginNext(t.Context(), loop.Job{TenantID: looptest.Tenant, SessionID: second.SessionID, RunID: looptest.NewID()}, looptest.Tester); !errors.Is(err, loop.ErrNotFound) {
			t.Errorf("of a run that does not exist: %v", err)
		}
		if _, err := b.Commands.BeginNext(t.Context(), loop.Job{TenantID: looptest.Tenant, SessionID: looptest.NewID(), RunID: second.RunID}, looptest.Tester); !errors.Is(err, loop.ErrNotFound) {
			t.Errorf("of a session that does not exist: %v", err)
		}
	})
}
