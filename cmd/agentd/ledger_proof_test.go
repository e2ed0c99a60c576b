package main

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// ledgerCommand runs agentd ledger on a database.
func ledgerCommand(t *testing.T, db *storetest.DB, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	err := run(t.Context(), append(append([]string{"ledger"}, args...), "--database-url", db.URL), nil, &o, &e)
	return exitCode(err, &e), o.String(), e.String()
}

func TestLedgerIsVerifiedAndExportedByScope(t *testing.T) {
	t.Parallel()
	python := findPython(t)
	db := storetest.New(t)
	s := decidingStack(t, db)
	decided, empty, purged := decidedSession(t, s), s.Session(t), decidedSession(t, s)
	if code, _, errs := ledgerCommand(t, db, "purge", purged, "--reason", "test", "--yes"); code != 0 {
		t.Fatalf("purge: %d, %s", code, errs)
	}
	for _, test := range []struct {
		args []string
		said string
	}{
		{[]string{decided}, "1 session, 6 decisions"},
		{[]string{strings.ToUpper(decided)}, "1 session, 6 decisions"},
		{[]string{empty}, "1 session, 0 decisions"},
		{[]string{purged}, "0 sessions, 1 purged session, 0 decisions"},
		{[]string{"--all"}, "2 sessions, 1 purged session, 6 decisions"},
		{[]string{"--tenant", looptest.Tenant}, "2 sessions, 1 purged session, 6 decisions"},
		{[]string{"--tenant", "nobody"}, "0 sessions, 0 decisions"},
	} {
		if code, out, errs := ledgerCommand(t, db, append([]string{"verify"}, test.args...)...); code != 0 || out != test.said+": 0 problems\n" || errs != "" {
			t.Errorf("verify %v: %d, %q, %q; want %q", test.args, code, out, errs, test.said)
		}
		code, out, errs := ledgerCommand(t, db, append([]string{"export"}, test.args...)...)
		if code != 0 || errs != test.said+"\n" {
			t.Errorf("export %v: %d, %q; want %q", test.args, code, errs, test.said)
		}
		if python == "" {
			continue
		}
		if list, whole := runPython(t, python, []byte(out)); len(list) > 0 || !whole {
			t.Errorf("the script of export %v: %v, whole %t", test.args, list, whole)
		}
	}
	for _, command := range []string{"verify", "export"} {
		for _, test := range []struct {
			args []string
			code int
			said string
		}{
			{nil, exitUsage, "whose ledger?"},
			{[]string{decided, "--all"}, exitUsage, "whose ledger?"},
			{[]string{looptest.NewID()}, exitFailure, "there is no session"},
			{[]string{"nonsense"}, exitFailure, "there is no session nonsense"},
		} {
			if code, _, errs := ledgerCommand(t, db, append([]string{command}, test.args...)...); code != test.code || !strings.Contains(errs, test.said) {
				t.Errorf("%s %v: %d, %q; want %d, %q", command, test.args, code, errs, test.code, test.said)
			}
		}
	}
}

func TestAnExportThatIsCutAnywhereIsNotWhole(t *testing.T) {
	t.Parallel()
	python := findPython(t)
	if python == "" {
		return
	}
	db := storetest.New(t)
	s := decidingStack(t, db)
	decidedSession(t, s)
	s.Session(t)
	lines := bytes.SplitAfter(exported(t, db, "--all"), []byte("\n"))
	if len(lines) != 1+2+6+2+1+1 { // the last is empty
		t.Fatalf("%d lines", len(lines))
	}
	for i := range lines[:len(lines)-1] {
		if _, whole := runPython(t, python, bytes.Join(lines[:i], nil)); whole {
			t.Errorf("cut after %d lines, and whole", i)
		}
		// The header is for people, and a mark only says once more what stands elsewhere.
		dispensable := i == 0 || bytes.Contains(lines[i], []byte(`"kind":"mark"`))
		list, whole := runPython(t, python, slices.Concat(slices.Concat(lines[:i]...), slices.Concat(lines[i+1:]...)))
		if whole && len(list) == 0 && !dispensable {
			t.Errorf("without line %d nothing is wrong: %s", i, lines[i])
		}
	}
}

func TestAnExportUnderTheNameOfAnotherSessionIsWrong(t *testing.T) {
	t.Parallel()
	python := findPython(t)
	if python == "" {
		return
	}
	db := storetest.New(t)
	s := decidingStack(t, db)
	id := decidedSession(t, s)
	forged := strings.Replace(string(exported(t, db, id)), `{"kind":"session","session_id":"`+id, `{"kind":"session","session_id":"`+looptest.NewID(), 1)
	if list, _ := runPython(t, python, []byte(forged)); !slices.Contains(places(list), "session@0") {
		t.Errorf("found %v, want that the rows are of another session", list)
	}
}

func TestAnEarlierExportMustStillStand(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Unverified)
	s := decidingStack(t, db)
	id := decidedSession(t, s)
	purged := decidedSession(t, s)
	export := exported(t, db, "--all")
	earlier := asFile(t, export)
	if run := s.Advance(t, s.Start(t, id, "more")); run.EndedAt.IsZero() {
		t.Fatal("the run has not ended")
	}
	if code, _, errs := ledgerCommand(t, db, "purge", purged, "--reason", "test", "--yes"); code != 0 {
		t.Fatalf("purge: %s", errs)
	}
	withTombstone := asFile(t, exported(t, db, "--all"))
	against := func(file, said string) {
		t.Helper()
		code, out, errs := ledgerCommand(t, db, "verify", "--all", "--against", file)
		if (code == 0) != strings.Contains(said, " 0 problems") || !strings.Contains(out+errs, said) {
			t.Errorf("%d, %s %s; want %q", code, out, errs, said)
		}
	}
	against(earlier, "9 decisions, 2 ledgers compared with the export: 0 problems")
	against(withTombstone, "2 ledgers compared with the export: 0 problems")

	execute(t, db, asSuperuser)
	execute(t, db, `UPDATE agentd.tombstones SET ledger_head = sha256('x')`)
	against(earlier, "session "+purged+" row 6: anchor: got a tombstone of 6 rows with the head ")
	execute(t, db, `UPDATE agentd.tombstones SET ledger_seq = 5`)
	against(earlier, "session "+purged+" row 6: anchor: got a tombstone of 5 rows")
	execute(t, db, `UPDATE agentd.tombstones SET ledger_seq = 7`) // it went on before it was purged
	against(earlier, ": 0 problems")
	execute(t, db, `DELETE FROM agentd.tombstones`)
	against(withTombstone, "session "+purged+" row 6: anchor: got no tombstone")
	against(earlier, "session "+purged+" row 6: anchor: got no session")
	execute(t, db, `DELETE FROM agentd.hook_decisions WHERE ledger_seq = 6`)
	against(earlier, "session "+id+" row 6: anchor: got no row")

	against(asFile(t, []byte(`{"kind":"end"}`)), "it names no session")
	against(asFile(t, []byte(`{"kind":"session","session_id":"x"}`)), `"x" is no id`)
	against(asFile(t, export[:len(export)/2]), "read the export: ")
	against(t.TempDir(), "exists but is a directory")
	against(filepath.Join(t.TempDir(), "none"), "no such file")
}

func TestErasingAndPurgingWantAConfirmation(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := decidingStack(t, db)
	id := decidedSession(t, s)
	decisions := func() int { return scalar[int](t, db, `SELECT count(*) FROM agentd.hook_decisions`) }
	payloads := func() int { return scalar[int](t, db, `SELECT count(*) FROM agentd.hook_payloads`) }

	code, out, errs := ledgerCommand(t, db, "erase", id)
	if code != exitFailure || !strings.Contains(out, "4 payloads erased") || !strings.Contains(errs, "nothing was changed") || payloads() != 4 {
		t.Errorf("erase without --yes: %d, %q, %q, %d payloads left", code, out, errs, payloads())
	}
	code, out, _ = ledgerCommand(t, db, "erase", id, "--yes")
	if code != 0 || out != "session "+id+": 4 payloads erased\n" || payloads() != 0 {
		t.Errorf("erase: %d, %q, %d payloads left", code, out, payloads())
	}
	code, out, errs = ledgerCommand(t, db, "purge", id, "--reason", "asked for")
	if code != exitFailure || !strings.Contains(out, "6 decisions purged") || !strings.Contains(errs, "nothing was changed") || decisions() != 6 {
		t.Errorf("purge without --yes: %d, %q, %q, %d decisions left", code, out, errs, decisions())
	}
	if code, _, errs := ledgerCommand(t, db, "purge", id, "--yes"); code != exitUsage || !strings.Contains(errs, "--reason") {
		t.Errorf("purge without a reason: %d, %q", code, errs)
	}
	head := scalar[string](t, db, `SELECT encode(ledger_head, 'hex') FROM agentd.sessions`)
	code, out, _ = ledgerCommand(t, db, "purge", id, "--reason", "asked for", "--by", "ada", "--yes")
	if code != 0 || !strings.Contains(out, "its ledger ended with "+head) || decisions() != 0 {
		t.Errorf("purge: %d, %q, %d decisions left", code, out, decisions())
	}
	if by := scalar[string](t, db, `SELECT purged_by || ': ' || reason FROM agentd.tombstones`); by != "ada: asked for" {
		t.Errorf("the tombstone says %q", by)
	}
	for _, args := range [][]string{{"erase", id, "--yes"}, {"purge", id, "--reason", "again", "--yes"}} {
		if code, _, errs := ledgerCommand(t, db, args...); code != exitFailure || !strings.Contains(errs, "there is no session "+id) {
			t.Errorf("%v: %d, %q", args, code, errs)
		}
	}
}

// TestTheCommandTakesNoFunctionsWord: somebody has edited the ledger, and taught
// the database to say that all is well.
func TestTheCommandTakesNoFunctionsWord(t *testing.T) {
	t.Parallel()
	python := findPython(t)
	db := storetest.New(t, storetest.Unverified)
	s := decidingStack(t, db)
	id := decidedSession(t, s)
	execute(t, db, asSuperuser)
	execute(t, db, `UPDATE agentd.hook_decisions SET at = at + interval '1 day', fields_changed = '{x}' WHERE ledger_seq = 1; DELETE FROM agentd.hook_decisions WHERE ledger_seq > 4;
		SELECT head(session_id) FROM agentd.hook_decisions;
		CREATE OR REPLACE FUNCTION agentd.verify_ledger(session uuid) RETURNS TABLE (ledger_seq bigint, decision_id uuid, problem text, got text, want text)
			LANGUAGE sql AS 'SELECT NULL::bigint, NULL::uuid, NULL::text, NULL::text, NULL::text WHERE false';
		CREATE OR REPLACE FUNCTION agentd.ledger_marks(session uuid) RETURNS TABLE (seq bigint, ledger_seq bigint, ledger_head text)
			LANGUAGE sql AS $$ SELECT 1::bigint, 0::bigint, '' $$;
		CREATE OR REPLACE FUNCTION agentd.ledger_time(at timestamptz) RETURNS bigint LANGUAGE sql AS
			'SELECT (extract(epoch FROM $1 - interval ''1 day'') * 1000000)::bigint';
		CREATE OR REPLACE FUNCTION agentd.ledger_list(texts text[]) RETURNS bytea LANGUAGE sql AS $$ SELECT '\x0100000000'::bytea $$;
		CREATE SCHEMA evil; CREATE FUNCTION evil.to_json(text[]) RETURNS json LANGUAGE sql AS $$ SELECT '[]'::json $$;
		CREATE FUNCTION evil.isfinite(timestamptz) RETURNS boolean LANGUAGE sql AS 'SELECT false'`)
	execute(t, db, `ALTER DATABASE `+pgx.Identifier{db.Name}.Sanitize()+` SET search_path = evil, pg_catalog`)
	if list := verifiedBySQL(t, db, id); len(list) > 0 {
		t.Fatalf("the database says %v", list)
	}
	want := []string{"mark@6", "row_hash@1"}
	if got := places(verifiedByCommand(t, db, id)); !slices.Equal(got, want) {
		t.Errorf("agentd finds %v, want %v", got, want)
	}
	if python == "" {
		return
	}
	if got := places(verifiedByPython(t, python, exported(t, db, id))); !slices.Equal(got, want) {
		t.Errorf("Python finds %v, want %v", got, want)
	}
}

func TestAnAuditorNeedsOnlyTheReadersRole(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := decidingStack(t, db)
	id := decidedSession(t, s)
	reader := *db
	separator := "?"
	if strings.Contains(db.URL, "?") {
		separator = "&"
	}
	reader.URL += separator + "options=-c%20role%3Dagentd_reader"
	if code, out, errs := ledgerCommand(t, &reader, "verify", "--all"); code != 0 || !strings.Contains(out, "6 decisions: 0 problems") {
		t.Errorf("verify: %d, %s %s", code, out, errs)
	}
	if code, _, errs := ledgerCommand(t, &reader, "export", id); code != 0 {
		t.Errorf("export: %d, %s", code, errs)
	}
	if code, _, errs := exportedSession(t, &reader, id); code != 0 {
		t.Errorf("export of the session: %d, %s", code, errs)
	}
	for _, args := range [][]string{{"erase", id, "--yes"}, {"purge", id, "--reason", "because", "--yes"}} {
		if code, _, errs := ledgerCommand(t, &reader, args...); code != exitFailure || !strings.Contains(errs, "permission denied") {
			t.Errorf("%v: %d, %s", args, code, errs)
		}
	}
}

// fullDisk takes some bytes and no more.
type fullDisk struct{ room int }

func (d *fullDisk) Write(p []byte) (int, error) {
	if d.room -= len(p); d.room < 0 {
		return 0, errors.New("no space left")
	}
	return len(p), nil
}

func TestLedgerCommandsSayThatTheyCouldNotWrite(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Unverified)
	s := decidingStack(t, db)
	id := decidedSession(t, s)
	for i := range 500 { // more than is kept back
		execute(t, db, `INSERT INTO agentd.events SELECT session_id, last_seq + 1 + $1, tenant_id, NULL, NULL, 'run.completed', payload, 'system', 'x', at, append_id
			FROM agentd.events JOIN (SELECT last_seq FROM agentd.sessions) s ON true WHERE seq = last_seq`, i)
	}
	execute(t, db, `ALTER TABLE agentd.hook_decisions DISABLE TRIGGER ALL; UPDATE agentd.hook_decisions SET action = 'transform'`)
	for _, command := range []string{"export", "verify"} {
		for _, room := range []int{0, 70_000} {
			if command == "verify" && room > 0 {
				continue
			}
			var errs bytes.Buffer
			err := run(context.Background(), []string{"ledger", command, id, "--database-url", db.URL}, nil, &fullDisk{room}, &errs)
			if err == nil || !strings.Contains(err.Error(), "no space left") {
				t.Errorf("%s with room for %d bytes: %v", command, room, err)
			}
		}
	}
}
