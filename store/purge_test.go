package store_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// ended is a session that has something in every table: a run with calls, an
// answered question and decisions.
func ended(t *testing.T, s *store.Store) (sessionID string) {
	t.Helper()
	p := park(t, s)
	take(t, s, slotOf(p.sessionID, p.runID))
	turn := func(payload event.Payload) event.Event { return encode(t, p.sessionID, p.runID, 1, payload) }
	mustAppend(t, s, p.answer(t, s, event.DecisionCancelled,
		turn(event.ToolResult{CallID: p.asked, MessageID: looptest.NewID(), Name: "remove", IsError: true, Reason: hooks.ReasonCancelled}),
		encode(t, p.sessionID, p.runID, 0, event.RunCancelled{Reason: "enough"})))
	return p.sessionID
}

// filled names the tables of sessions that have rows.
func filled(t *testing.T, db *storetest.DB) []string {
	t.Helper()
	rows, _ := db.Pool.Query(limit(t), `
		SELECT c.relname FROM pg_class AS c
		WHERE c.relnamespace = 'agentd'::regnamespace AND c.relkind = 'r' AND c.relname !~ '^(river|goose)_'
			AND c.relname NOT IN ('tenants', 'api_keys', 'workers', 'memories', 'hook_sets', 'hook_set_loads', 'tombstones', 'usage')
			AND (xpath('/row/n/text()', query_to_xml('SELECT count(*) AS n FROM agentd.' || quote_ident(c.relname), false, true, '')))[1]::text <> '0'
		ORDER BY 1`)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestPurgeTakesEverythingAndLeavesATombstone(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	id := ended(t, s)
	h := headOf(t, s, id)
	everything := []string{"approvals", "events", "guard_slots", "hook_decisions", "hook_payloads", "messages", "runs", "sessions", "tool_calls", "turns"}
	if got := filled(t, db); !slices.Equal(got, everything) {
		t.Fatalf("before: rows in %v; want %v", got, everything)
	}

	rehearsed, err := store.PurgeSession(limit(t), db.Pool, id, "", "let us see", true)
	if err != nil || rehearsed.Events != h.LastSeq || rehearsed.Decisions != 1 {
		t.Errorf("rehearsed: %+v, %v", rehearsed, err)
	}
	if got := filled(t, db); !slices.Equal(got, everything) {
		t.Errorf("after the rehearsal: rows in %v", got)
	}

	got, err := store.PurgeSession(limit(t), db.Pool, strings.ToUpper(id), "ada", "she asked for it", false)
	want := store.Tombstone{
		SessionID: id, TenantID: looptest.Tenant, Events: h.LastSeq, Decisions: 1, LedgerHead: hexOf(h.Ledger.Hash),
		PurgedAt: got.PurgedAt, PurgedBy: "ada", Reason: "she asked for it",
	}
	if err != nil || got != want || got.PurgedAt.IsZero() {
		t.Errorf("purged: %+v, %v\nwant %+v", got, err, want)
	}
	if got := filled(t, db); len(got) > 0 {
		t.Errorf("a table of sessions that is not emptied by agentd.purge_session: %v", got)
	}
	if _, err := s.Head(limit(t), looptest.Tenant, id); !errors.Is(err, loop.ErrNotFound) {
		t.Errorf("head: %v; want not found", err)
	}
	for _, id := range []string{id, looptest.NewID(), "nonsense"} {
		if _, err := store.PurgeSession(limit(t), db.Pool, id, "", "again", false); !errors.Is(err, loop.ErrNotFound) {
			t.Errorf("purge of %s: %v; want not found", id, err)
		}
	}
	other, err := store.PurgeSession(limit(t), db.Pool, newSession(t, s), "", "tidy", false)
	if err != nil || other.PurgedBy == "" || other.LedgerHead != "" {
		t.Errorf("purged: %+v, %v; want by the database user, without a head", other, err)
	}
}

func TestPurgeLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	gone, kept := ended(t, s), ended(t, s)
	h := headOf(t, s, kept)
	if _, err := store.PurgeSession(limit(t), db.Pool, gone, "", "test", false); err != nil {
		t.Fatal(err)
	}
	if got := headOf(t, s, kept); !reflect.DeepEqual(got, h) || len(decisionsOf(t, s, kept)) != 1 {
		t.Errorf("the other session is %+v; was %+v", got, h)
	}
	if report := verify(t, db); report.Sessions != 1 || report.Decisions != 1 {
		t.Errorf("verified %+v; want what is left", report)
	}
}

func TestPurgeRefusesWhatIsStillAtWork(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	p := park(t, s)
	if _, err := store.PurgeSession(limit(t), db.Pool, p.sessionID, "", "now", false); !errors.Is(err, store.ErrSessionBusy) {
		t.Errorf("purge of a session that waits: %v; want that it is busy", err)
	}
	for _, reason := range []string{"", "x\x00"} {
		if _, err := store.PurgeSession(limit(t), db.Pool, newSession(t, s), "", reason, false); err == nil {
			t.Errorf("purge for the reason %q: no error", reason)
		}
	}
	if _, err := store.ErasePayloads(limit(t), db.Pool, "nonsense", false); !errors.Is(err, loop.ErrNotFound) {
		t.Errorf("erase in no session: %v", err)
	}
}

func TestAnAppendThatComesDuringAPurgeFindsNoSession(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	id := newSession(t, s)
	var appended <-chan result
	err := pgx.BeginFunc(limit(t), db.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SELECT agentd.purge_session($1, 'test')`, id); err != nil {
			return err
		}
		appended = begin(t, s, say(t, id, 1))
		// It skips the locked row twice and then waits for it.
		lockWaiters(t, db, 1)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if r := <-appended; !errors.Is(r.err, loop.ErrNotFound) {
		t.Errorf("append: %+v, %v; want not found", r.got, r.err)
	}
}

// TestRowsLeaveOnlyWithTheirWholeSession: each of these is somebody who owns
// the tables and does not switch the triggers off.
func TestRowsLeaveOnlyWithTheirWholeSession(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	id, other, purged := ended(t, s), ended(t, s), ended(t, s)
	if _, err := store.PurgeSession(limit(t), db.Pool, purged, "", "test", false); err != nil {
		t.Fatal(err)
	}
	const tombstone = `INSERT INTO agentd.tombstones (session_id, purged_by, reason) VALUES ($id, 'me', 'why'); `
	for _, test := range []struct{ sql, says string }{
		{`DELETE FROM agentd.hook_decisions WHERE session_id = $id`, "append-only"},
		{`DELETE FROM agentd.events WHERE session_id = $id`, "append-only"},
		{`UPDATE agentd.hook_decisions SET action = 'block'`, "append-only"},
		{`UPDATE agentd.hook_payloads SET reason = 'another'`, "append-only"},
		{`TRUNCATE agentd.hook_payloads`, "append-only"},
		{`TRUNCATE agentd.hook_decisions CASCADE`, "append-only"},
		{`UPDATE agentd.tombstones SET xid = pg_current_xact_id()`, "append-only"},
		{`DELETE FROM agentd.tombstones`, "append-only"},
		{`TRUNCATE agentd.tombstones`, "append-only"},
		// A tombstone of one's own, for a part of the session.
		{tombstone + `DELETE FROM agentd.hook_payloads; DELETE FROM agentd.hook_decisions WHERE session_id = $id`, "is not gone"},
		{tombstone, "is not gone"},
		// One purge does not open the door to others, not even in its transaction.
		{`SELECT agentd.purge_session($id, 'x'); DELETE FROM agentd.hook_payloads; DELETE FROM agentd.hook_decisions WHERE session_id = $other`, "append-only"},
		{`SELECT agentd.purge_session($id, 'x'); UPDATE agentd.hook_decisions SET action = 'block'`, "append-only"},
		// A session that never was.
		{`INSERT INTO agentd.tombstones (session_id, purged_by, reason) VALUES (gen_random_uuid(), 'me', 'why')`, "null value"},
		{`SELECT agentd.purge_session($id, '')`, "tombstones_say_who_and_why"},
		{`SET LOCAL ROLE agentd_reader; SELECT agentd.purge_session($id, 'x')`, "permission denied"},
		{`SET LOCAL ROLE agentd_reader; SELECT agentd.erase_payloads($id)`, "permission denied"},
	} {
		_, err := db.Pool.Exec(limit(t), strings.NewReplacer("$id", "'"+id+"'", "$other", "'"+other+"'").Replace(test.sql))
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v; want %q", test.sql, err, test.says)
		}
	}
	if report := verify(t, db); report.Sessions != 2 || report.Decisions != 2 || len(report.Differences) > 0 {
		t.Errorf("after all that: %+v", report)
	}
}

func TestATombstoneSaysWhatTheSessionSaid(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	id := ended(t, s)
	h := headOf(t, s, id)
	// By hand, with lies, and everything of the session deleted so that it may stand.
	err := pgx.BeginFunc(limit(t), db.Pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `
			INSERT INTO agentd.tombstones (session_id, tenant_id, events, decisions, last_seq, ledger_seq, ledger_head, xid, purged_at, purged_by, reason)
			VALUES ('`+id+`', 'default', 0, 0, 1, 0, NULL, '1', 'epoch', 'me', 'why');
			DELETE FROM agentd.hook_payloads; DELETE FROM agentd.hook_decisions; DELETE FROM agentd.approvals; DELETE FROM agentd.tool_calls;
			DELETE FROM agentd.messages; DELETE FROM agentd.turns; DELETE FROM agentd.runs; DELETE FROM agentd.events; DELETE FROM agentd.sessions`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var right bool
	err = db.Pool.QueryRow(limit(t), `
		SELECT events = $2 AND decisions = 1 AND last_seq = $2 AND ledger_seq = 1 AND ledger_head = $3 AND xid > '1' AND purged_at > 'epoch'
		FROM agentd.tombstones WHERE session_id = $1`, id, h.LastSeq, h.Ledger.Hash[:]).Scan(&right)
	if err != nil || !right {
		t.Errorf("right: %t, %v", right, err)
	}
}

func TestErasedPayloadsLeaveTheProof(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	id, other := ended(t, s), ended(t, s)
	for _, rehearse := range []bool{true, false} {
		if n, err := store.ErasePayloads(limit(t), db.Pool, id, rehearse); err != nil || n != 1 {
			t.Errorf("erased %d, %v; want 1", n, err)
		}
		if d := decisionsOf(t, s, id)[0]; d.PayloadErased == rehearse || d.Payload.Empty() == rehearse {
			t.Errorf("rehearsed %t: %+v", rehearse, d)
		}
	}
	if d := decisionsOf(t, s, other)[0]; d.PayloadErased {
		t.Error("the other session's payload is gone as well")
	}
	if _, err := store.ErasePayloads(limit(t), db.Pool, looptest.NewID(), false); !errors.Is(err, loop.ErrNotFound) {
		t.Errorf("erase in no session: %v", err)
	}
}

func TestDeletingASessionErasesItsPayloads(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	g := newGate()
	s := startStore(t, db, store.Options{Queue: jobs{}, BeforeCommit: g.beforeCommit})
	gone, kept := ended(t, s), ended(t, s)
	last := headOf(t, s, gone)
	deletion := with(appendOf(gone, last.LastSeq, encode(t, gone, "", 0, event.SessionDeleted{})), last.Ledger, full("", 0, hooks.GateBeforeInput, "i"))
	stale := appendOf(kept, 1, encode(t, kept, "", 0, event.SessionDeleted{}))
	// One group, in which one deletion is refused.
	door := newSession(t, s)
	g.stopNext()
	first := begin(t, s, say(t, door, 1))
	<-g.held
	deleted, refused := begin(t, s, deletion), begin(t, s, stale)
	until(t, "both wait", func(context.Context) (bool, error) { return store.Pending(s) == 2, nil })
	g.release()
	<-first
	if r := <-deleted; r.err != nil {
		t.Fatal(r.err)
	}
	if r := <-refused; !errors.Is(r.err, loop.ErrConflict) {
		t.Errorf("a deletion at a seq that has passed: %v", r.err)
	}
	var left []string
	err := db.Pool.QueryRow(limit(t), `SELECT array_agg(d.session_id::text) FROM agentd.hook_payloads JOIN agentd.hook_decisions AS d USING (decision_id)`).Scan(&left)
	if err != nil || !slices.Equal(left, []string{kept}) {
		t.Errorf("payloads of %v are left, %v; want of %s", left, err, kept)
	}
	if report := verify(t, db); report.Decisions != 3 {
		t.Errorf("%d decisions are left; want 3", report.Decisions)
	}
}
