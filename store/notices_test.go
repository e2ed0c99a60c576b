package store_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// teller is a process that tells a plugin, which keeps what it is told.
type teller struct {
	t       *testing.T
	notices *store.Notices
	cursor  string
	told    []string
}

const plugin = "audit"

func newTeller(t *testing.T, s *store.Store) *teller {
	t.Helper()
	return &teller{t: t, notices: store.NewNotices(s, store.Process{ID: looptest.NewID(), Host: "here", PID: 7})}
}

// hold takes the plugin for a while, and says whether that went.
func (p *teller) hold() bool {
	p.t.Helper()
	cursor, _, held, err := p.notices.Hold(limit(p.t), plugin, time.Minute)
	if err != nil {
		p.t.Fatal(err)
	}
	if held {
		p.cursor = cursor
	}
	return held
}

// page reads at most so many events.
func (p *teller) page(atMost int) hooks.NotificationPage {
	p.t.Helper()
	page, err := p.notices.After(limit(p.t), p.cursor, atMost)
	if err != nil {
		p.t.Fatal(err)
	}
	return page
}

// tell tells of all that is settled, in pages of so many events.
func (p *teller) tell(atMost int) []string {
	p.t.Helper()
	for {
		page := p.page(atMost)
		for _, n := range page.List {
			p.told = append(p.told, describe(n))
		}
		if page.Cursor != p.cursor {
			moved, err := p.notices.Told(limit(p.t), plugin, p.cursor, page.Cursor, time.Minute)
			if err != nil || !moved {
				p.t.Fatalf("moved = %t, %v", moved, err)
			}
			p.cursor = page.Cursor
		}
		if !page.More {
			return p.told
		}
	}
}

// peek is what is behind the cursor, which stays where it is.
func (p *teller) peek() (told []string) {
	for _, n := range p.page(100).List {
		told = append(told, describe(n))
	}
	return told
}

// describe is a notification without ids.
func describe(n hooks.Notification) string {
	switch {
	case n.RunStart != nil:
		return fmt.Sprintf("run of %s", n.RunStart.Agent)
	case n.TurnStart != nil:
		return fmt.Sprintf("turn %d.%d resumed=%t", n.TurnStart.Turn, n.TurnStart.Attempt, n.TurnStart.Resumed)
	case n.ToolExecutionStart != nil:
		c := n.ToolExecutionStart.Call
		return fmt.Sprintf("tool %d.%d %s %s(%s)", n.ToolExecutionStart.Turn, n.ToolExecutionStart.Attempt, c.ProviderID, c.Name, c.Arguments)
	case n.TurnEnd != nil:
		return fmt.Sprintf("end of turn %d, %d calls", n.TurnEnd.Turn, n.TurnEnd.ToolCalls)
	case n.RunEnd != nil:
		return fmt.Sprintf("%s: %s", n.RunEnd.Status, n.RunEnd.Reason)
	}
	return "nothing"
}

// whereAndWhen is what describe leaves out.
func whereAndWhen(n hooks.Notification) (ref hooks.RunRef, seq int64) {
	switch {
	case n.RunStart != nil:
		ref = n.RunStart.RunRef
	case n.TurnStart != nil:
		ref = n.TurnStart.RunRef
	case n.ToolExecutionStart != nil:
		ref = n.ToolExecutionStart.RunRef
	case n.TurnEnd != nil:
		ref = n.TurnEnd.RunRef
	case n.RunEnd != nil:
		ref = n.RunEnd.RunRef
	}
	return ref, n.Seq
}

var toldOfOneRun = []string{
	"run of demo", "turn 1.1 resumed=false", "tool 1.1 c look({})", "end of turn 1, 1 calls",
	"turn 2.1 resumed=false", "end of turn 2, 0 calls", "completed: stop",
}

// settle waits until all that is marked may be told.
func settle(t *testing.T, db *storetest.DB) {
	t.Helper()
	waitFor(t, db, `SELECT coalesce(max(xid) < pg_snapshot_xmin(pg_current_snapshot()), true) FROM agentd.events`)
}

func TestPluginsAreToldWhatHappensFromNowOn(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	oneRun(t, s)
	wantLines(t, "written before somebody listens", lines(t, db, `SELECT count(*) FROM agentd.events WHERE xid IS NOT NULL`), []string{"0"})
	p := newTeller(t, s)
	if !p.hold() {
		t.Fatal("nobody has it")
	}
	id := oneRun(t, s)
	settle(t, db)
	page := p.page(100)
	for _, n := range page.List {
		ref, seq := whereAndWhen(n)
		want := lines(t, db, `SELECT 'default|' || session_id || '|' || run_id || '|demo|' || at::text FROM agentd.events WHERE session_id = $1 AND seq = $2`, id, seq)
		at := lines(t, db, `SELECT $1::timestamptz::text`, n.At)[0]
		if got := strings.Join([]string{ref.TenantID, ref.SessionID, ref.RunID, ref.Agent, at}, "|"); got != want[0] || n.At.Location() != time.UTC {
			t.Errorf("%s of %s, want %s", describe(n), got, want[0])
		}
	}
	wantLines(t, "told, one event at a time", p.tell(1), toldOfOneRun)
	if page := p.page(100); len(page.List) > 0 || page.Cursor != p.cursor || page.More || page.Unsettled {
		t.Errorf("and then %+v", page)
	}
	wantLines(t, "marked", lines(t, db, `SELECT string_agg(type, ' ' ORDER BY seq) FROM agentd.events WHERE xid IS NOT NULL`), []string{
		"run.started model.requested tool.started turn.completed model.requested turn.completed run.completed",
	})
	wantLines(t, "the row", lines(t, db, `SELECT plugin_id, held, host, pid, waiting, oldest_at, settled, failures, last_error, purged, moved_at >= began_at FROM agentd.plugin_notifications`), []string{
		"audit|true|here|7|0|<nil>|0|0|<nil>|0|true",
	})
}

// TestPluginsAreToldOfTurnsThatAreGoneOnWith: when people have answered, and when
// another worker has let go; but not of one that is about to be cancelled, unless that
// was before somebody has taken the run up again.
func TestPluginsAreToldOfTurnsThatAreGoneOnWith(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	p := newTeller(t, s)
	p.hold()
	parked := park(t, s)
	in := func(turn int, payload event.Payload) event.Event {
		return encode(t, parked.sessionID, parked.runID, turn, payload)
	}
	put := func(events ...event.Event) {
		mustAppend(t, s, appendOf(parked.sessionID, headOf(t, s, parked.sessionID).LastSeq, events...))
	}
	a := parked.answer(t, s, event.DecisionApproved)
	a.Events = append(a.Events, in(0, event.RunQueued{Ticket: 2, Cause: "approval"}))
	mustAppend(t, s, a)
	arguments := safeArguments
	put(in(0, event.RunResumed{WorkerID: looptest.NewID(), Epoch: 2, Ticket: 2, Cause: event.ResumeApproval}),
		in(1, event.ToolStarted{CallID: parked.asked, Attempt: 1, Arguments: &arguments, ArgumentsSHA256: digestOf(arguments)}))
	put(in(0, event.RunReleased{Cause: event.ReleaseWorkerDead, WorkerID: looptest.NewID(), Epoch: 3, Ticket: 3}),
		in(0, event.RunCancelRequested{}),
		in(0, event.RunResumed{WorkerID: looptest.NewID(), Epoch: 4, Ticket: 3, Cause: event.ResumeTakeover}),
		in(1, event.ToolResult{CallID: parked.asked, MessageID: looptest.NewID(), Name: "remove", IsError: true, Reason: hooks.ReasonCancelled}),
		in(0, event.RunFailed{Reason: event.FailTimeout, Error: "it took too long"}))
	put(in(0, event.RunQueued{Ticket: 4, Cause: event.QueuedForRetry}),
		in(0, event.RunResumed{WorkerID: looptest.NewID(), Epoch: 5, Ticket: 4, Cause: event.ResumeRetry}),
		in(1, event.TurnCompleted{}), in(2, event.TurnStarted{}), in(2, event.ModelRequested{Attempt: 1, Model: "m"}),
		in(2, event.AssistantDiscarded{Attempt: 1, Reason: "interrupted"}))
	put(in(0, event.RunReleased{Cause: event.ReleaseShutdown, WorkerID: looptest.NewID(), Epoch: 6, Ticket: 5}),
		in(0, event.RunResumed{WorkerID: looptest.NewID(), Epoch: 7, Ticket: 5, Cause: event.ResumeRelease}),
		in(2, event.ModelRequested{Attempt: 2, Model: "m"}), in(0, event.RunCancelRequested{}),
		in(2, event.AssistantStopped{Attempt: 2, Reason: "cancelled"}), in(0, event.RunCancelled{Reason: "enough"}))
	settle(t, db)
	wantLines(t, "told", p.tell(5), []string{
		"run of demo", "turn 1.1 resumed=false", "turn 1.1 resumed=true", "tool 1.1  remove(" + safeArguments + ")", "failed: timeout",
		"turn 1.1 resumed=true", "end of turn 1, 2 calls", "turn 2.1 resumed=false", "turn 2.2 resumed=true", "cancelled: enough",
	})
}

// TestWhatCommitsLateIsToldInItsPlace: a cursor that went past it would miss it.
func TestWhatCommitsLateIsToldInItsPlace(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	committing, commit := make(chan struct{}), make(chan struct{})
	var hold sync.Once
	quick := startStore(t, db, store.Options{Queue: jobs{}})
	late, lateRun := started(t, quick)
	early, earlyRun := started(t, quick)
	slow := startStore(t, db, store.Options{Queue: jobs{}, BeforeCommit: func(context.Context) {
		hold.Do(func() { close(committing); <-commit })
	}})
	p := newTeller(t, quick)
	p.hold()
	a := appendOf(late, headOf(t, quick, late).LastSeq, encode(t, late, lateRun, 0, event.RunCancelled{Reason: "late"}))
	done := make(chan error, 1)
	go func() { _, err := slow.Append(t.Context(), a); done <- err }()
	<-committing
	mustAppend(t, quick, appendOf(early, headOf(t, quick, early).LastSeq, encode(t, early, earlyRun, 0, event.RunCancelled{Reason: "early"})))
	before := p.page(10)
	wantLines(t, "meanwhile", lines(t, db, `SELECT waiting, settled FROM agentd.plugin_notifications`), []string{"1|0"})
	close(commit)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if before.Cursor != p.cursor || len(before.List) != 0 || !before.Unsettled {
		t.Errorf("before the late one: %+v", before)
	}
	settle(t, db)
	wantLines(t, "told", p.tell(10), []string{"cancelled: late", "cancelled: early"})
}

// TestEachIsToldOnceAndInOrder while several processes store what happens, in
// transactions that overlap, and two of them tell the plugin in turns.
func TestEachIsToldOnceAndInOrder(t *testing.T) {
	t.Parallel()
	const processes, sessions, runs = 3, 2, 3
	db := storetest.New(t)
	var told []hooks.Notification
	tellers := []*teller{newTeller(t, startStore(t, db, store.Options{})), newTeller(t, startStore(t, db, store.Options{}))}
	tellers[0].hold()
	var writers sync.WaitGroup
	for range processes {
		s := startStore(t, db, store.Options{Queue: jobs{}})
		for range sessions {
			writers.Go(func() {
				for range runs {
					oneRun(t, s)
				}
			})
		}
	}
	written := make(chan struct{})
	go func() { writers.Wait(); close(written) }()
	step := func(turn int) int {
		p := tellers[turn%2]
		if !p.hold() {
			t.Fatalf("turn %d: somebody else has it", turn)
		}
		page := p.page(7)
		told = append(told, page.List...)
		if page.Cursor != p.cursor {
			if moved, err := p.notices.Told(limit(t), plugin, p.cursor, page.Cursor, time.Minute); err != nil || !moved {
				t.Fatal(moved, err)
			}
		}
		if err := p.notices.Release(limit(t), plugin); err != nil {
			t.Fatal(err)
		}
		return len(page.List)
	}
	for turn, over := 1, false; !over; turn++ {
		if err := tellers[(turn+1)%2].notices.Release(limit(t), plugin); err != nil {
			t.Fatal(err)
		}
		select {
		case <-written:
			over = true
		default:
		}
		step(turn)
	}
	settle(t, db)
	for turn := 0; step(turn) > 0; turn++ {
	}
	bySession := map[string][]string{}
	last := map[string]int64{}
	for _, n := range told {
		ref, seq := whereAndWhen(n)
		if seq <= last[ref.SessionID] {
			t.Errorf("%s at seq %d behind %d", describe(n), seq, last[ref.SessionID])
		}
		last[ref.SessionID] = seq
		bySession[ref.SessionID] = append(bySession[ref.SessionID], describe(n))
	}
	if len(bySession) != processes*sessions*runs {
		t.Errorf("told of %d sessions", len(bySession))
	}
	for id, got := range bySession {
		if !slices.Equal(got, toldOfOneRun) {
			t.Errorf("%s: %q", id, got)
		}
	}
}

func TestOneProcessHoldsAPlugin(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	a, b := newTeller(t, s), newTeller(t, s)
	if !a.hold() || b.hold() || !a.hold() {
		t.Fatal("the first one has it, and keeps it")
	}
	oneRun(t, s)
	settle(t, db)
	first := a.page(2)
	refused := func(p *teller, to string) {
		t.Helper()
		if moved, err := p.notices.Told(limit(t), plugin, p.cursor, to, time.Minute); err != nil || moved {
			t.Errorf("moved = %t, %v", moved, err)
		}
	}
	b.cursor = a.cursor
	refused(b, first.Cursor)
	if err := b.notices.Failed(limit(t), plugin, "it is not mine"); err != nil {
		t.Fatal(err)
	}
	// The lease runs out while the process that has it does not know.
	db.ShiftClock(t, 2*time.Minute)
	since := lines(t, db, `SELECT held_since FROM agentd.plugin_notifications`)
	if !b.hold() || a.hold() {
		t.Error("the second one has it now")
	}
	if slices.Equal(since, lines(t, db, `SELECT held_since FROM agentd.plugin_notifications`)) {
		t.Error("it is held since before it was taken")
	}
	refused(a, first.Cursor)
	// Who fails lets go.
	for range 2 {
		if err := b.notices.Failed(limit(t), plugin, "it says\x00 no"); err != nil {
			t.Fatal(err)
		}
	}
	wantLines(t, "failed", lines(t, db, `SELECT held, failures, failing_since IS NOT NULL, last_error, waiting FROM agentd.plugin_notifications`), []string{"false|2|true|it says\uFFFD no|7"})
	if !a.hold() || a.cursor != b.cursor {
		t.Error("the first one has it again, where it was")
	}
	a.tell(3)
	wantLines(t, "told", a.told, toldOfOneRun)
	wantLines(t, "went on", lines(t, db, `SELECT held, failures, failing_since, last_error IS NOT NULL, waiting FROM agentd.plugin_notifications`), []string{"true|0|<nil>|true|0"})
	if err := b.notices.Release(limit(t), plugin); err != nil || b.hold() {
		t.Errorf("it let go of what another has: %v", err)
	}
	if err := a.notices.Release(limit(t), plugin); err != nil || !b.hold() {
		t.Errorf("it was let go of: %v", err)
	}
	// Deleted, it begins anew.
	exec(t, db, `DELETE FROM agentd.plugin_cursors`)
	oneRun(t, s)
	a.told = nil
	a.hold()
	settle(t, db)
	if told := a.tell(3); len(told) > 0 {
		t.Errorf("told of the past: %q", told)
	}
}
