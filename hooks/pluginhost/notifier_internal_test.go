package pluginhost

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
)

func TestAPluginIsToldInBatchesAndThenOfWhatIsNew(t *testing.T) {
	t.Parallel()
	a, d := newAudience(t, turnEnds), newDiary(6)
	d.unsettled = 3
	d.purged = 7
	a.notify(t, d)
	a.want(t, "4: 1 2 3 4", "6: 5 6")
	d.add(1)
	a.want(t, "7: 7")
	d.await(t, "the cursor moves", func() bool { return d.at == 7 })
	if !strings.Contains(a.log.String(), "events_at_most=7") {
		t.Errorf("nothing is said of what was purged: %s", a.log)
	}
}

// TestABatchThatWasNotTakenComesAgain: the same, until it is taken.
func TestABatchThatWasNotTakenComesAgain(t *testing.T) {
	t.Parallel()
	a, d := newAudience(t, turnEnds), newDiary(2)
	for range 3 {
		a.answers <- refusing(codes.Internal, "no \x1b disk")
	}
	d.fail["Failed"] = failing{} // that makes no difference
	a.notify(t, d)
	a.want(t, "2: 1 2")
	d.add(1) // it does not become another one for that
	a.want(t, "2: 1 2", "2: 1 2", "2: 1 2", "3: 3")
	d.await(t, "the cursor moves", func() bool { return d.at == 3 })
	if want := []string{`error: Internal: no \x1b disk`, `error: Internal: no \x1b disk`}; !slices.Equal(d.noted(), want) {
		t.Errorf("noted %q, want %q", d.noted(), want)
	}
	if said := a.log.String(); strings.Count(said, "no \\\\x1b disk") != 1 || !strings.Contains(said, "told again\" plugin=policy failures=3") {
		t.Errorf("the log says %s", said)
	}
}

// TestABatchThatTakesTooLongIsMadeShorter: it may be that there is too much in it.
func TestABatchThatTakesTooLongIsMadeShorter(t *testing.T) {
	t.Parallel()
	a, d := newAudience(t, turnEnds), newDiary(8)
	for range 3 {
		a.answers <- refusing(codes.DeadlineExceeded, "too late")
	}
	a.notify(t, d)
	a.want(t, "4: 1 2 3 4", "2: 1 2", "1: 1", "1: 1", "3: 2 3", "7: 4 5 6 7", "8: 8")
	if want := "host.timeout: DeadlineExceeded: too late"; d.noted()[0] != want {
		t.Errorf("noted %q, want %q", d.noted(), want)
	}
}

// TestAPluginThatDoesNotAnswerIsGivenUp: until the next time.
func TestAPluginThatDoesNotAnswerIsGivenUp(t *testing.T) {
	t.Parallel()
	a, d := newAudience(t, turnEnds), newDiary(1)
	hang := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	a.answers <- hang
	a.notifyWithin(t, d, 20*time.Millisecond)
	a.want(t, "1: 1", "1: 1")
	if want := "host.timeout: DeadlineExceeded: "; !strings.HasPrefix(d.noted()[0], want) {
		t.Errorf("noted %q, want %q", d.noted(), want)
	}
}

func TestAPluginIsToldOnlyWhatItWants(t *testing.T) {
	t.Parallel()
	a, d := newAudience(t, pluginv1.NotificationType_NOTIFICATION_TYPE_RUN_END, pluginv1.NotificationType_NOTIFICATION_TYPE_RUN_START), newDiary(6)
	d.list = append(d.list,
		hooks.Notification{Seq: 7, RunEnd: &hooks.RunEnd{Status: "failed"}}, hooks.Notification{Seq: 8, ToolExecutionStart: &hooks.ToolExecutionStart{}},
		hooks.Notification{Seq: 9, TurnStart: &hooks.TurnStart{}}, hooks.Notification{Seq: 10, RunStart: &hooks.RunStart{}}, hooks.Notification{Seq: 11})
	a.notify(t, d)
	if q := <-a.batches; q.GetCursor() != "8" || len(q.GetNotifications()) != 1 || q.GetNotifications()[0].GetRunEnd().GetStatus() != "failed" {
		t.Errorf("told %v", q)
	}
	if q := <-a.batches; q.GetCursor() != "11" || len(q.GetNotifications()) != 1 || q.GetNotifications()[0].GetRunStart() == nil {
		t.Errorf("told %v", q)
	}
	d.await(t, "the cursor moves past what it does not want", func() bool { return d.at == 11 })
}

// TestNobodyIsToldWhereNobodyListens: there is no goroutine and no query.
func TestNobodyIsToldWhereNobodyListens(t *testing.T) {
	t.Parallel()
	a, d := newAudience(t), newDiary(3)
	n := a.notify(t, d)
	a.host.mu.Lock()
	a.host.current = nil
	a.host.mu.Unlock()
	n.Look()
	if n.running.Wait(); d.calls != 0 || d.watchers != 0 {
		t.Errorf("%d queries, %d watch", d.calls, d.watchers)
	}
}

// TestOnlyWhoHoldsAPluginTellsIt: and goes on where another process has left it.
func TestOnlyWhoHoldsAPluginTellsIt(t *testing.T) {
	t.Parallel()
	a, d := newAudience(t, turnEnds), newDiary(2)
	d.others = true
	a.notify(t, d)
	d.await(t, "it asks in vain", func() bool { return d.calls > 3 && !d.held })
	d.set(func() { d.others, d.at = false, 1 })
	a.want(t, "2: 2")
	d.await(t, "the cursor moves", func() bool { return d.at == 2 })
	// It is taken away while a batch is under way: that was told in vain.
	taken := make(chan struct{})
	a.answers <- func(context.Context) error {
		<-taken
		return nil
	}
	d.add(3)
	a.want(t, "5: 3 4 5")
	d.set(func() { d.at = 4 })
	close(taken)
	a.want(t, "5: 5")
}

// TestADatabaseThatFailsIsAskedAgain: nothing is lost, and what was noted is not told
// twice although nobody has heard of it.
func TestADatabaseThatFailsIsAskedAgain(t *testing.T) {
	t.Parallel()
	a, d := newAudience(t, turnEnds), newDiary(2)
	d.fail["Hold"], d.fail["After"], d.fail["Told"] = failing{}, failing{}, failing{done: true}
	n := a.notify(t, d)
	a.want(t, "2: 1 2")
	d.add(1)
	a.want(t, "3: 3")
	d.await(t, "the cursor moves", func() bool { return d.at == 3 })
	d.set(func() { d.fail["Told"], d.fail["Release"] = failing{}, failing{} })
	d.add(1)
	a.want(t, "4: 4", "4: 4")
	d.await(t, "the cursor moves", func() bool { return d.at == 4 })
	if n.Stop(); !strings.Contains(a.log.String(), "the database is gone") {
		t.Errorf("the log says %s", a.log)
	}
}

// TestWhoListensIsLookedAtAgain: other generations listen to other things, or do not.
func TestWhoListensIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	a, d := newAudience(t, turnEnds), newDiary(1)
	n := a.notify(t, d)
	a.want(t, "1: 1")
	// One that is down is told when it is up again.
	a.load(t, false, turnEnds)
	d.add(1)
	d.await(t, "it is not told", func() bool { return len(d.failed) > 0 && d.at == 1 })
	if want := "host.unavailable: plugin policy is "; d.noted()[0] != want {
		t.Errorf("noted %q, want %q", d.noted()[0], want)
	}
	a.load(t, true, turnEnds)
	n.Look()
	a.want(t, "2: 2")
	// One that is gone is told nothing, and nobody holds it.
	for _, gone := range [][]*Plugin{{}, {down("policy")}} {
		a.put(gone...)
		d.add(1)
		d.await(t, "it is let go of", func() bool { return !d.held })
		n.Look()
		d.await(t, "nobody watches", func() bool { return d.watchers == 0 })
		a.load(t, true, turnEnds)
		n.Look()
		a.batch(t)
	}
	n.Stop()
	n.Stop()
	n.Look()
	if d.held || d.watchers != 0 {
		t.Errorf("it is held: %t, %d watch", d.held, d.watchers)
	}
}
