package store_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

func TestWhatWasPurgedBeforeItWasToldIsCounted(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	p := newTeller(t, s)
	p.hold()
	told, purged := oneRun(t, s), oneRun(t, s)
	settle(t, db)
	page := p.page(8)
	if moved, err := p.notices.Told(limit(t), plugin, p.cursor, page.Cursor, time.Minute); err != nil || !moved {
		t.Fatal(moved, err)
	}
	for _, id := range []string{told, purged} {
		if _, err := store.PurgeSession(limit(t), db.Pool, id, "", "tidy", false); err != nil {
			t.Fatal(err)
		}
	}
	_, n, _, err := p.notices.Hold(limit(t), plugin, time.Minute)
	if err != nil || n != 6 {
		t.Errorf("%d were purged, %v; want the 6 that the plugin was not told of", n, err)
	}
	oneRun(t, s)
	settle(t, db)
	p.cursor = page.Cursor
	wantLines(t, "told behind what was purged", p.tell(100), toldOfOneRun)
}

// TestWhatADumpHasBroughtIsNotTold: there transactions are counted anew, so neither
// cursors nor events mean anything. What is tidied up in place does.
func TestWhatADumpHasBroughtIsNotTold(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	log := &lockedBuffer{}
	s := startStore(t, db, store.Options{Queue: jobs{}, Logger: slog.New(slog.NewTextHandler(log, nil))})
	p := newTeller(t, s)
	p.hold()
	before := p.cursor
	oneRun(t, s)
	for _, tidy := range []string{`VACUUM (FREEZE) agentd.events`, `VACUUM (FULL, FREEZE) agentd.events`, `VACUUM (FULL, FREEZE) agentd.plugin_cursors`} {
		exec(t, db, tidy)
	}
	settle(t, db)
	if p.hold(); p.cursor != before {
		t.Errorf("the cursor is %s, and was %s", p.cursor, before)
	}
	wantLines(t, "told", p.tell(100), toldOfOneRun)
	p.cursor, p.told = before, nil
	exec(t, db, `SET LOCAL session_replication_role = replica; UPDATE agentd.events SET at = at`)
	if told := p.peek(); len(told) > 0 {
		t.Errorf("told what was brought: %q", told)
	}
	wantLines(t, "waiting", lines(t, db, `SELECT waiting FROM agentd.plugin_notifications`), []string{"0"})
	for _, brought := range []string{`written_by = '3'`, `xid = '9000000000000000000'`} {
		exec(t, db, `SET LOCAL session_replication_role = replica; UPDATE agentd.plugin_cursors SET `+brought)
		old := p.cursor
		if !p.hold() || p.cursor == old || strings.Count(log.String(), "restored from a dump") == 0 {
			t.Errorf("%s: the cursor is %s; %s", brought, p.cursor, log)
		}
		oneRun(t, s)
		settle(t, db)
		p.told = nil
		wantLines(t, brought, p.tell(100), toldOfOneRun)
	}
	// Somebody who repairs a row by hand does not lose it.
	exec(t, db, `UPDATE agentd.plugin_cursors SET held_until = agentd.clock()`)
	if old := p.cursor; !p.hold() || p.cursor != old {
		t.Errorf("the cursor is %s, and was %s", p.cursor, old)
	}
}

// TestAPageIsNotLargerThanItMayBe: arguments of calls may be long.
func TestAPageIsNotLargerThanItMayBe(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	p := newTeller(t, s)
	p.hold()
	id, run := calling(t, s)
	in := func(payload event.Payload) event.Event { return encode(t, id, run, 1, payload) }
	long := `"` + strings.Repeat("x", 3<<20) + `"`
	events := []event.Event{in(event.AssistantCompleted{Attempt: 1, MessageID: looptest.NewID(), Finish: stream.FinishToolCalls})}
	var starts []event.Event
	for i := range 3 {
		call := looptest.NewID()
		events = append(events, in(event.ToolProposed{CallID: call, Number: i + 1, Name: "write", Arguments: long}))
		starts = append(starts, in(event.ToolStarted{CallID: call, Attempt: 1}))
	}
	mustAppend(t, s, appendOf(id, headOf(t, s, id).LastSeq, append(events, starts...)...))
	settle(t, db)
	var sizes []int
	for {
		page := p.page(100)
		sizes = append(sizes, len(page.List))
		p.cursor = page.Cursor
		if !page.More {
			break
		}
	}
	if !slices.Equal(sizes, []int{4, 1}) {
		t.Errorf("pages of %d, want the start of the run, of the turn and two calls, and then one", sizes)
	}
}

func TestNoticesSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	n := newTeller(t, s).notices
	const good = "1:00000000-0000-0000-0000-000000000000:0"
	calls := map[string]func(ctx context.Context, cursor string) error{
		"After": func(ctx context.Context, c string) error { _, err := n.After(ctx, c, 1); return err },
		"Told": func(ctx context.Context, c string) error {
			_, err := n.Told(ctx, plugin, good, c, time.Minute)
			return err
		},
		"From": func(ctx context.Context, c string) error {
			_, err := n.Told(ctx, plugin, c, good, time.Minute)
			return err
		},
		"Hold": func(ctx context.Context, _ string) error {
			_, _, _, err := n.Hold(ctx, plugin, time.Minute)
			return err
		},
		"Failed":  func(ctx context.Context, _ string) error { return n.Failed(ctx, plugin, "x") },
		"Release": func(ctx context.Context, _ string) error { return n.Release(ctx, plugin) },
	}
	for _, name := range []string{"After", "Told", "From"} {
		if err := calls[name](t.Context(), "1:x:0"); err == nil || !strings.Contains(err.Error(), `"1:x:0" is no cursor`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range calls {
		if err := call(gone, good); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, _, _, err := n.Hold(t.Context(), "No Plugin", time.Minute); err == nil {
		t.Error("held what is no plugin")
	}
}

func TestAWatchHearsOfWhateverIsCommitted(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	opts := store.Options{Queue: jobs{}, PollEvery: time.Hour}
	mine, others := startStore(t, db, opts), startStore(t, db, opts)
	signals, stop := newTeller(t, mine).notices.Watch()
	t.Cleanup(stop)
	// One more may be that of the beginning of listening.
	for i := range 3 {
		newSession(t, others)
		select {
		case <-signals:
		case <-limit(t).Done():
			t.Fatalf("nothing is heard of the append %d of another process", i+1)
		}
	}
	select {
	case <-signals:
	default:
	}
	newSession(t, mine)
	select {
	case <-signals:
	default:
		t.Error("nothing is heard of what this process has committed")
	}
	stop()
	newSession(t, mine)
	select {
	case <-signals:
		t.Error("something is heard behind the end")
	default:
	}
}
