package store_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// chained is a session with four decisions, the second and the fourth with
// payloads.
func chained(t *testing.T, s *store.Store) (sessionID string) {
	t.Helper()
	id := newSession(t, s)
	mustAppend(t, s, with(say(t, id, 1), loop.LedgerHead{}, sparse(hooks.GateBeforeInput, "i"), full("", 0, hooks.GateBeforeInput, "i")))
	mustAppend(t, s, with(say(t, id, 2), headOf(t, s, id).Ledger, sparse(hooks.GateBeforeInput, "i"), full("", 0, hooks.GateBeforeInput, "i")))
	return id
}

func nothingWrong(t *testing.T) func(store.LedgerProblem) error {
	t.Helper()
	return func(p store.LedgerProblem) error {
		t.Errorf("wrong: %v", p)
		return nil
	}
}

func TestLedgerOfEverySessionIsVerified(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Unverified)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	const sessions = 510 // more than are read at once
	for range sessions - 1 {
		newSession(t, s)
	}
	id := chained(t, s)
	seen, err := store.VerifyLedger(limit(t), db.Pool, store.LedgerScope{}, nothingWrong(t))
	if want := (store.LedgerCount{Sessions: sessions, Decisions: 4}); err != nil || seen != want {
		t.Errorf("verified %+v, %v; want %+v", seen, err, want)
	}
	// Whose session is gone is found by all who look at all.
	exec(t, db, `SET LOCAL session_replication_role = replica; DELETE FROM agentd.sessions WHERE id = '`+id+`'`)
	for tenant, want := range map[string]int{"": 1, looptest.Tenant: 1, "nobody": 0} {
		var problems []store.LedgerProblem
		seen, err := store.VerifyLedger(limit(t), db.Pool, store.LedgerScope{TenantID: tenant}, func(p store.LedgerProblem) error {
			problems = append(problems, p)
			return nil
		})
		if err != nil || len(problems) != want || want > 0 && (problems[0].SessionID != id || problems[0].Problem != "session" || seen.Decisions != 4) {
			t.Errorf("of tenant %q: %v, %+v, %v; want %d", tenant, problems, seen, err, want)
		}
		var bySQL int
		err = db.Pool.QueryRow(limit(t), `SELECT count(*) FROM agentd.verify_ledgers(nullif($1, '')) WHERE session_id = $2 AND problem = 'session'`, tenant, id).Scan(&bySQL)
		if err != nil || bySQL != want {
			t.Errorf("SQL of tenant %q: %d, %v; want %d", tenant, bySQL, err, want)
		}
	}
	var never string
	err = db.Pool.QueryRow(limit(t), `SELECT problem || ': ' || got FROM agentd.verify_ledger($1)`, looptest.NewID()).Scan(&never)
	if err != nil || never != "session: no session" {
		t.Errorf("SQL of a session that never was: %q, %v", never, err)
	}
}

var errEnough = errors.New("enough")

// TestVerificationEndsWhenItsReportDoes: at whichever problem that is.
func TestVerificationEndsWhenItsReportDoes(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Unverified)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	ids := []string{chained(t, s), chained(t, s), chained(t, s), chained(t, s)}
	for i, sql := range []string{
		`UPDATE agentd.hook_decisions SET action = 'block', tenant_id = 'x', event_seq = 9, prev_hash = sha256('x') WHERE session_id = $id AND ledger_seq = 2;
			UPDATE agentd.hook_payloads SET reason = 'x' WHERE decision_id = (SELECT decision_id FROM agentd.hook_decisions WHERE session_id = $id AND ledger_seq = 2);
			UPDATE agentd.sessions SET ledger_seq = 3 WHERE id = $id;
			UPDATE agentd.events SET type = 'run.completed', payload = '{"ledger_seq": 2, "ledger_head": "x"}' WHERE session_id = $id AND seq = 3`,
		`DELETE FROM agentd.hook_decisions WHERE session_id = $id AND ledger_seq IN (2, 4);
			UPDATE agentd.events SET type = 'run.completed', payload = '{"ledger_seq": 9, "ledger_head": "x"}' WHERE session_id = $id AND seq = 3`,
		`DELETE FROM agentd.sessions WHERE id = $id`,
		`INSERT INTO agentd.tombstones SELECT id, tenant_id, 0, 0, 0, 0, NULL, '1', now(), 'x', 'x' FROM agentd.sessions WHERE id = $id`,
	} {
		exec(t, db, `SET LOCAL session_replication_role = replica; `+strings.ReplaceAll(sql, "$id", "'"+ids[i]+"'"))
	}
	words := map[string]bool{}
	for last := 1; ; last++ {
		n := 0
		_, err := store.VerifyLedger(limit(t), db.Pool, store.LedgerScope{}, func(p store.LedgerProblem) error {
			words[p.Problem] = true
			if n++; n == last {
				return errEnough
			}
			return nil
		})
		if err == nil && n < last {
			break // there is none after that
		}
		if !errors.Is(err, errEnough) || n != last {
			t.Fatalf("after %d problems, %d were wanted: %v", n, last, err)
		}
	}
	for _, word := range []string{
		"row_hash", "prev_hash", "payload", "event_seq", "tenant_id", "missing", "beyond_head", "ledger_head", "mark", "session",
	} {
		if !words[word] {
			t.Errorf("no problem was %s", word)
		}
	}
	// The same of a comparison.
	heads := strings.NewReader(`{"kind":"session","session_id":"` + looptest.NewID() + `"}`)
	_, err := store.CompareLedger(limit(t), db.Pool, heads, func(store.LedgerProblem) error { return errEnough })
	if !errors.Is(err, errEnough) {
		t.Errorf("compare: %v", err)
	}
}

// TestLedgerIsNotVerifiedWithoutTheDatabase: wherever it fails, nothing is
// called whole.
func TestLedgerIsNotVerifiedWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Unverified)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	id := chained(t, s)
	heads := `{"kind":"session","session_id":"` + id + `","ledger_seq":1}`
	fails := func(when string, ctx context.Context, scopes ...store.LedgerScope) {
		t.Helper()
		for _, scope := range scopes {
			if _, err := store.VerifyLedger(ctx, db.Pool, scope, nothingWrong(t)); err == nil || errors.Is(err, loop.ErrNotFound) {
				t.Errorf("%s: verify %+v: %v", when, scope, err)
			}
			var out bytes.Buffer
			if _, err := store.ExportLedger(ctx, db.Pool, scope, &out); err == nil || strings.Contains(out.String(), `"kind":"end"`) {
				t.Errorf("%s: export %+v: %v, %s", when, scope, err, &out)
			}
		}
	}
	all, one := store.LedgerScope{}, store.LedgerScope{SessionID: id}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	fails("cancelled", over, all, one)
	if _, err := store.CompareLedger(over, db.Pool, strings.NewReader(heads), nothingWrong(t)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: compare: %v", err)
	}
	for _, table := range []string{"hook_payloads", "tombstones", "events"} {
		exec(t, db, `ALTER TABLE agentd.`+table+` RENAME TO gone`)
		fails("without "+table, limit(t), all, one)
		exec(t, db, `ALTER TABLE agentd.gone RENAME TO `+table)
	}
	if _, err := store.ExportLedger(limit(t), db.Pool, one, brokenPipe{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("export into a closed pipe: %v", err)
	}
	if _, err := store.VerifyLedger(limit(t), db.Pool, one, nothingWrong(t)); err != nil {
		t.Errorf("with everything there: %v", err)
	}
	mustAppend(t, s, appendOf(id, 3, encode(t, id, "", 0, event.SessionDeleted{})))
	if _, err := store.VerifyLedger(limit(t), db.Pool, one, nothingWrong(t)); err != nil {
		t.Errorf("of a deleted session: %v", err)
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
