package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// decidedSession has two runs. Each leaves three decisions, the second and the
// third with a payload, and a mark: rows 1 to 6, marks at 3 and 6, and the last
// event is the end of the second run.
func decidedSession(t *testing.T, s *stack) (sessionID string) {
	t.Helper()
	id := s.Session(t)
	for range 2 {
		if run := s.Advance(t, s.Start(t, id, "wipe it")); run.Status != loop.RunCompleted {
			t.Fatalf("the run is %s", run.Status)
		}
	}
	return id
}

// decidingStack makes such sessions.
func decidingStack(t *testing.T, db *storetest.DB) *stack {
	t.Helper()
	s := newStack(t, db, playing(looptest.Answers(
		looptest.Answer(looptest.ToolCall("a", "wipe", `{}`), looptest.Finish(stream.FinishToolCalls)),
		looptest.Answer(looptest.Text("Done."), looptest.Finish(stream.FinishStop))),
		looptest.Says("wipe", "oh no")))
	s.checked(t, hooks.Hooks{
		TransformContext: hooks.Named("höflich, \"2\" {}", "1", soften),
		BeforeToolCall:   denyTools(t, "wipe"),
	})
	return s
}

// soften changes what tools have said, in words that are easily got wrong.
func soften(_ context.Context, in hooks.TransformContext) (hooks.TransformContextResult, error) {
	last := in.Messages[len(in.Messages)-1]
	if last.Role != hooks.RoleTool {
		return hooks.TransformContextResult{Action: hooks.ActionContinue}, nil
	}
	last.Parts[0].ToolResult.Content = "später — \u2028 😀 <b>\\</b>"
	return hooks.TransformContextResult{
		Action: hooks.ActionTransform, Messages: &in.Messages, Annotations: map[string]string{"wärum": "e\u0301 \ufeff"},
		Reason: hooks.Reason{Code: "softer", Text: "höflicher\n\tgesagt & \"gemeint\""},
	}, nil
}

// asSuperuser switches off what guards the tables, as their owner can, and
// brings tools of a forger: seal makes the hash of a row right, chain those of
// all rows from one on, head what the session says of them, and marks what the
// log says of them.
const asSuperuser = `
ALTER TABLE agentd.hook_decisions DISABLE TRIGGER ALL;
ALTER TABLE agentd.hook_payloads DISABLE TRIGGER ALL;
ALTER TABLE agentd.events DISABLE TRIGGER ALL;
ALTER TABLE agentd.sessions DISABLE TRIGGER ALL;
ALTER TABLE agentd.tombstones DISABLE TRIGGER ALL;
ALTER TABLE agentd.hook_decisions DROP CONSTRAINT hook_decisions_first_follows_zeros, DROP CONSTRAINT hook_decisions_no_empty_text,
	DROP CONSTRAINT hook_decisions_decision_id_key CASCADE;
CREATE FUNCTION seal(session uuid, n bigint) RETURNS void LANGUAGE sql AS
	$$ UPDATE agentd.hook_decisions d SET row_hash = sha256(agentd.ledger_row(d)) WHERE session_id = session AND ledger_seq = n $$;
CREATE FUNCTION chain(session uuid, first bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN first..(SELECT max(ledger_seq) FROM agentd.hook_decisions WHERE session_id = session) LOOP
		UPDATE agentd.hook_decisions SET prev_hash = (SELECT row_hash FROM agentd.hook_decisions WHERE session_id = session AND ledger_seq = i - 1)
			WHERE session_id = session AND ledger_seq = i AND i > 1;
		PERFORM seal(session, i);
	END LOOP;
END $$;
CREATE FUNCTION head(session uuid) RETURNS void LANGUAGE sql AS
	$$ UPDATE agentd.sessions s SET ledger_seq = d.ledger_seq, ledger_head = d.row_hash
		FROM (SELECT * FROM agentd.hook_decisions WHERE session_id = session ORDER BY ledger_seq DESC LIMIT 1) d WHERE s.id = session $$;
CREATE FUNCTION marks(session uuid) RETURNS void LANGUAGE sql AS
	$$ UPDATE agentd.events e SET payload = (payload::jsonb || jsonb_build_object('ledger_head', encode(d.row_hash, 'hex')))::json
		FROM agentd.hook_decisions d WHERE e.session_id = session AND d.session_id = session AND e.type = 'run.completed'
			AND d.ledger_seq = (e.payload ->> 'ledger_seq')::bigint $$;
-- A copy of a row at another place, with another id.
CREATE FUNCTION forge(session uuid, source bigint, target bigint, event bigint) RETURNS void LANGUAGE sql AS
	$$ INSERT INTO agentd.hook_decisions SELECT (x).* FROM (SELECT jsonb_populate_record(d, jsonb_build_object(
		'decision_id', gen_random_uuid(), 'ledger_seq', target, 'event_seq', event, 'payload_sha256', null, 'action', 'continue')) AS x
		FROM agentd.hook_decisions d WHERE session_id = session AND ledger_seq = source) AS y $$;`

// lastEvent is the last event of the session of a case.
const lastEvent = `(SELECT last_seq FROM agentd.sessions WHERE id = $s)`

func TestTamperingIsNamedByAllWhoVerify(t *testing.T) {
	t.Parallel()
	python := findPython(t)
	db := storetest.New(t, storetest.Unverified)
	s := decidingStack(t, db)
	execute(t, db, asSuperuser)
	where := func(row string) string { return ` WHERE session_id = $s AND ledger_seq = ` + row }
	edit := `UPDATE agentd.hook_decisions SET action = 'continue'` + where("2")
	extend := `SELECT forge($s, 6, 7, ` + lastEvent + `);`
	linked := `UPDATE agentd.hook_decisions SET prev_hash = (SELECT ledger_head FROM agentd.sessions WHERE id = $s)` + where("7") + `; SELECT seal($s, 7);`
	for i, test := range []struct{ name, sql, want string }{
		{"Nothing", `SELECT 1`, ``},
		{"EditedRow", edit, `row_hash@2`},
		{"EditedRowWithItsHash", edit + `; SELECT seal($s, 2)`, `prev_hash@3`},
		{"EditedRowWithAllHashes", edit + `; SELECT chain($s, 2)`, `ledger_head@6 mark@3 mark@6`},
		{"EditedRowWithAllHashesAndTheHead", edit + `; SELECT chain($s, 2), head($s)`, `mark@3 mark@6`},
		{"EditedRowOfTheLastRunWithAllHashesAndTheHead", `UPDATE agentd.hook_decisions SET reason_code = 'fine'` + where("5") + `; SELECT chain($s, 5), head($s)`, `mark@6`},
		{"EditedTime", `UPDATE agentd.hook_decisions SET at = at + interval '1 microsecond'` + where("6"), `row_hash@6`},
		{"NullMadeEmpty", `UPDATE agentd.hook_decisions SET trace_id = ''` + where("3"), `row_hash@3`},
		{"ListMadeTwo", `UPDATE agentd.hook_decisions SET fields_changed = '{a,b}'` + where("3"), `row_hash@3`},
		{"ValuesThatCannotBe", `UPDATE agentd.hook_decisions SET fields_changed = '{NULL}'` + where("1") +
			`; UPDATE agentd.hook_decisions SET at = 'infinity'` + where("3") + `; UPDATE agentd.hook_decisions SET fields_changed = '{{a},{b}}'` + where("4"),
			`row_hash@1 row_hash@3 row_hash@4`},
		{"DeletedRow", `DELETE FROM agentd.hook_decisions` + where("2"), `missing@2`},
		{"DeletedRows", `DELETE FROM agentd.hook_decisions` + where("ANY('{1,2,4}')"), `missing@1 missing@4`},
		{"DeletedRowWithAllNumbersAndHashes", `DELETE FROM agentd.hook_decisions` + where("2") + `;
			UPDATE agentd.hook_decisions SET ledger_seq = ledger_seq + 99` + where("ANY('{3,4,5,6}')") + `; UPDATE agentd.hook_decisions SET ledger_seq = ledger_seq - 100 WHERE session_id = $s AND ledger_seq > 99;
			SELECT chain($s, 2), head($s)`, `mark@3 mark@6`},
		{"ReorderedRows", `UPDATE agentd.hook_decisions SET ledger_seq = ledger_seq + 99` + where("ANY('{2,3}')") + `;
			UPDATE agentd.hook_decisions SET ledger_seq = 104 - ledger_seq WHERE session_id = $s AND ledger_seq > 99`,
			`mark@3 prev_hash@2 prev_hash@3 prev_hash@4 row_hash@2 row_hash@3 event_seq@3`},
		{"CutTail", `DELETE FROM agentd.hook_decisions` + where("ANY('{5,6}')"), `missing@5 mark@6`},
		{"CutTailWithTheHead", `DELETE FROM agentd.hook_decisions` + where("ANY('{5,6}')") + `; SELECT head($s)`, `mark@6`},
		{"AllRowsGone", `DELETE FROM agentd.hook_decisions WHERE session_id = $s`, `missing@1 mark@3 mark@6`},
		{"AllRowsGoneWithTheHead", `DELETE FROM agentd.hook_decisions WHERE session_id = $s; UPDATE agentd.sessions SET ledger_seq = 0, ledger_head = NULL WHERE id = $s`, `mark@3 mark@6`},
		{"ForgedRowAtTheEnd", extend, `beyond_head@7 event_seq@7 prev_hash@7 row_hash@7`},
		{"ForgedRowAtTheEndWithItsHash", extend + linked, `beyond_head@7 event_seq@7`},
		{"ForgedRowAtTheEndWithItsHashAndTheHead", extend + linked + `SELECT head($s)`, `event_seq@7`},
		{"ForgedRowOfAnEventThatIsNot", `SELECT forge($s, 6, 7, 1 + ` + lastEvent + `);` + linked + `SELECT head($s)`, `event_seq@7`},
		{"ForgedRowInTheMiddle", `DELETE FROM agentd.hook_decisions` + where("2") + `; SELECT forge($s, 1, 2, (SELECT event_seq FROM agentd.hook_decisions` + where("3") + `))`,
			`prev_hash@2 prev_hash@3 row_hash@2`},
		{"InsertedRowWithAllNumbersAndHashes", `UPDATE agentd.hook_decisions SET ledger_seq = ledger_seq + 99` + where("ANY('{3,4,5,6}')") + `;
			UPDATE agentd.hook_decisions SET ledger_seq = ledger_seq - 98 WHERE session_id = $s AND ledger_seq > 99;
			SELECT forge($s, 2, 3, (SELECT event_seq FROM agentd.hook_decisions` + where("2") + `)); SELECT chain($s, 3), head($s)`,
			`event_seq@4 event_seq@7 mark@3 mark@6`},
		{"EditedPayload", `UPDATE agentd.hook_payloads SET reason = 'never said' FROM agentd.hook_decisions d WHERE d.decision_id = hook_payloads.decision_id AND d.session_id = $s AND d.ledger_seq = 5`, `payload@5`},
		{"EditedSalt", `UPDATE agentd.hook_payloads SET salt = sha256('x') FROM agentd.hook_decisions d WHERE d.decision_id = hook_payloads.decision_id AND d.session_id = $s AND d.ledger_seq = 5`, `payload@5`},
		{"EditedPayloadWithItsHash", `UPDATE agentd.hook_payloads SET reason = 'never said' FROM agentd.hook_decisions d WHERE d.decision_id = hook_payloads.decision_id AND d.session_id = $s AND d.ledger_seq = 5;
			UPDATE agentd.hook_decisions SET payload_sha256 = sha256(agentd.ledger_payload(p)) FROM agentd.hook_payloads p WHERE p.decision_id = hook_decisions.decision_id AND session_id = $s AND ledger_seq = 5`, `row_hash@5`},
		{"InventedPayload", `INSERT INTO agentd.hook_payloads SELECT decision_id, tenant_id, sha256('x'), 'so' FROM agentd.hook_decisions` + where("1"), `payload@1`},
		{"ErasedPayloads", `DELETE FROM agentd.hook_payloads p USING agentd.hook_decisions d WHERE d.session_id = $s AND d.decision_id = p.decision_id`, ``},
		{"EditedHead", `UPDATE agentd.sessions SET ledger_head = sha256('x') WHERE id = $s`, `ledger_head@6`},
		{"EditedCount", `UPDATE agentd.sessions SET ledger_seq = 5 WHERE id = $s`, `beyond_head@6 ledger_head@5`},
		{"EditedMark", `UPDATE agentd.events SET payload = replace(payload::text, '"ledger_seq":3', '"ledger_seq":9')::json WHERE session_id = $s`, `mark@9`},
		{"UnreadableMark", `UPDATE agentd.events SET payload = replace(payload::text, '"ledger_seq":3', '"ledger_seq":"x"')::json WHERE session_id = $s`, `event_seq@1 event_seq@2 event_seq@3 mark@-1`},
		{"RemovedMark", `UPDATE agentd.events SET payload = '{}' WHERE session_id = $s AND payload::text LIKE '%"ledger_seq":3%'`, `event_seq@1 event_seq@2 event_seq@3`},
		{"OtherTenant", `INSERT INTO agentd.tenants (id, name) VALUES ('other', 'Other'); UPDATE agentd.sessions SET tenant_id = 'other' WHERE id = $s`,
			`tenant_id@1 tenant_id@2 tenant_id@3 tenant_id@4 tenant_id@5 tenant_id@6`},
		{"SessionGone", `DELETE FROM agentd.sessions WHERE id = $s`, `session@0`},
		{"PurgedAndStillThere", `INSERT INTO agentd.tombstones SELECT id, tenant_id, 1, 6, 1, 6, ledger_head, pg_current_xact_id(), now(), 'me', 'why' FROM agentd.sessions WHERE id = $s`, `session@0`},
		{"PurgedButForItsRows", `INSERT INTO agentd.tombstones SELECT id, tenant_id, 1, 6, 1, 6, ledger_head, pg_current_xact_id(), now(), 'me', 'why' FROM agentd.sessions WHERE id = $s;
			DELETE FROM agentd.sessions WHERE id = $s`, `session@0`},
		// Whoever may write everything leaves nothing to be found, but for those who kept an export.
		{"EverythingRewritten", edit + `; SELECT chain($s, 2), head($s); SELECT marks($s)`, ``},
	} {
		id := decidedSession(t, s)
		whole := test.name == "EverythingRewritten"
		var earlier []byte
		if whole {
			earlier = exported(t, db, id)
		}
		execute(t, db, strings.ReplaceAll(test.sql, "$s", "'"+id+"'"))
		bySQL := verifiedBySQL(t, db, id)
		want := strings.Fields(test.want)
		slices.Sort(want)
		if got := places(bySQL); !slices.Equal(got, want) {
			t.Errorf("%s: SQL finds %q, want %q", test.name, got, want)
		}
		if got := verifiedByCommand(t, db, id); !slices.Equal(got, bySQL) {
			t.Errorf("%s: agentd finds\n%q, SQL\n%q", test.name, got, bySQL)
		}
		// It takes a process each time.
		if python != "" && (i%5 == 0 || fullSize()) {
			if got := verifiedByPython(t, python, exported(t, db, id)); !slices.Equal(got, bySQL) {
				t.Errorf("%s: Python finds\n%q, SQL\n%q", test.name, got, bySQL)
			}
		}
		if whole {
			if got := verifiedByCommand(t, db, id, "--against", asFile(t, earlier)); !slices.Equal(places(got), []string{"anchor@6"}) {
				t.Errorf("%s: against an earlier export %q", test.name, got)
			}
		}
	}
}

// finding is a problem as all who verify name it: the word, the row, the
// decision.
func finding(problem, row, decision string) string {
	if row == "" {
		row = "0"
	}
	if decision == "None" {
		decision = ""
	}
	return strings.TrimSpace(problem + "@" + row + " " + decision)
}

func places(findings []string) []string {
	list := []string{}
	for _, f := range findings {
		place, _, _ := strings.Cut(f, " ")
		list = append(list, place)
	}
	slices.Sort(list)
	return list
}

func verifiedBySQL(t *testing.T, db *storetest.DB, id string) []string {
	t.Helper()
	rows, _ := db.Pool.Query(t.Context(), `SELECT problem, coalesce(ledger_seq, 0)::text, coalesce(decision_id::text, ''), got, want FROM agentd.verify_ledger($1)`, id)
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		var problem, at, decision, got, want string
		err := row.Scan(&problem, &at, &decision, &got, &want)
		if got == want || want == "" {
			t.Errorf("%s: got %q, want %q", problem, got, want)
		}
		return finding(problem, at, decision), err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(list)
	return list
}

var problemLine = regexp.MustCompile(`(?m)^session \S+(?: row (\S+))?(?: \(decision (\S+)\))?: (\w+)`)

func found(said string) []string {
	list := []string{}
	for _, m := range problemLine.FindAllStringSubmatch(said, -1) {
		list = append(list, finding(m[3], m[1], m[2]))
	}
	slices.Sort(list)
	return list
}

func verifiedByCommand(t *testing.T, db *storetest.DB, id string, args ...string) []string {
	t.Helper()
	var out, errs bytes.Buffer
	err := run(t.Context(), append([]string{"ledger", "verify", "--database-url", db.URL, id}, args...), nil, &out, &errs)
	list := found(out.String())
	var exit *exitError
	switch {
	case len(list) == 0 && err != nil, len(list) > 0 && (!errors.As(err, &exit) || exit.code != exitFailure):
		t.Errorf("agentd ledger verify: %v, having said %s %s", err, &out, &errs)
	case !regexp.MustCompile(`(?m)^.*\b1 (purged )?session, .*problems?$`).MatchString(out.String()):
		t.Errorf("agentd ledger verify ends with %s", &out)
	}
	return list
}

// exported is what agentd ledger export writes.
func exported(t *testing.T, db *storetest.DB, args ...string) []byte {
	t.Helper()
	var out, errs bytes.Buffer
	if err := run(t.Context(), append([]string{"ledger", "export", "--database-url", db.URL}, args...), nil, &out, &errs); err != nil {
		t.Fatalf("agentd ledger export: %v", err)
	}
	return out.Bytes()
}

func asFile(t *testing.T, content []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "export.jsonl")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// findPython is python3, or "" where there is none: then what it would verify
// is left out, and a test that is skipped says so.
func findPython(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Run("Python", func(t *testing.T) {
			t.Parallel()
			t.Skip("NOT TESTED: python3 is not installed, so examples/verify-ledger is not run: ", err)
		})
		return ""
	}
	// What is on the PATH may be a script that takes its time to find it.
	said, err := exec.CommandContext(t.Context(), path, "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(said))
}

func verifiedByPython(t *testing.T, python string, export []byte) []string {
	t.Helper()
	list, whole := runPython(t, python, export)
	if !whole {
		t.Error("the script says that the export is not whole")
	}
	return list
}

func runPython(t *testing.T, python string, export []byte) (list []string, whole bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python, filepath.Join("..", "..", "examples", "verify-ledger", "verify_ledger.py"))
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(export), &out, &errs
	err := cmd.Run()
	list, whole = found(out.String()), !strings.Contains(out.String(), "not whole")
	if failed := err != nil; failed != (len(list) > 0 || !whole) || errs.Len() > 0 || !strings.Contains(out.String(), " problems") {
		t.Errorf("the script: %v, said %s %s", err, &out, &errs)
	}
	return list, whole
}
