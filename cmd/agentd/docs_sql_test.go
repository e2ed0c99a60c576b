package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// tellAll leaves in the database what the documented questions are about: a
// run whose calls were changed, blocked, approved and left to the mercy of a
// broken hook, and a run that waits.
func tellAll(t *testing.T, db *storetest.DB) {
	t.Helper()
	quiet := `{"text":"hi"}`
	h := hooks.Hooks{
		BeforeInput: maxInputBytes(t, 1000),
		BeforeRunStart: hooks.Named("house-rules", "1", func(context.Context, hooks.BeforeRunStart) (hooks.BeforeRunStartResult, error) {
			return hooks.BeforeRunStartResult{
				Action: hooks.ActionTransform, Append: []hooks.HiddenMessage{{Role: hooks.RoleSystem, Text: "Be brief."}},
			}, nil
		}),
		BeforeToolCall: hooks.Compose(denyTools(t, "wipe"), hooks.Named("quiet", "2",
			func(_ context.Context, in hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
				if in.Call.Name != "send" {
					return hooks.BeforeToolCallResult{Action: hooks.ActionContinue}, nil
				}
				return hooks.BeforeToolCallResult{Action: hooks.ActionTransform, Arguments: &quiet}, nil
			})),
		BeforeExecute: hooks.Named("meter", "1", func(context.Context, hooks.BeforeExecute) (hooks.BeforeExecuteResult, error) {
			return hooks.BeforeExecuteResult{}, errors.New("no meter")
		}, hooks.OnFailureOpen()),
	}
	calls := looptest.Answer(
		looptest.ToolCall("a", "look", `{}`), looptest.ToolCall("b", "wipe", `{}`), looptest.ToolCall("c", "send", `{"text":"HI"}`),
		looptest.Finish(stream.FinishToolCalls))
	s := newStack(t, db, playing(
		looptest.Answers(calls, looptest.Answer(looptest.Text("Done."), looptest.Finish(stream.FinishStop))),
		looptest.Says("look", "a tree"), looptest.Says("wipe", "oh no"), looptest.Says("send", "sent")))
	s.askingFor("send")
	s.checked(t, h)

	for _, answered := range []bool{true, false} {
		j := s.Start(t, s.Session(t), "send my regards")
		if run := s.Advance(t, j); run.Status != loop.RunWaiting {
			t.Fatalf("the run is %s", run.Status)
		}
		if !answered {
			continue
		}
		id := scalar[string](t, db, `SELECT id::text FROM agentd.approvals WHERE run_id = $1`, j.RunID)
		_, err := s.Commands.DecideApproval(t.Context(), loop.DecideApproval{
			TenantID: looptest.Tenant, ApprovalID: id, Approve: true, Reason: "fine", Actor: looptest.Tester,
		})
		if err != nil {
			t.Fatal(err)
		}
		j.Ticket = 2
		if run := s.Advance(t, j); run.Status != loop.RunCompleted {
			t.Fatalf("the run is %s", run.Status)
		}
	}
}

func document(t *testing.T, path ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(append([]string{"..", ".."}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// between returns what stands between two marks of a document.
func between(t *testing.T, text, mark string) (before, inside, after string) {
	t.Helper()
	begin, end := "<!-- "+mark+":begin -->\n", "<!-- "+mark+":end -->"
	before, rest, ok := strings.Cut(text, begin)
	inside, after, found := strings.Cut(rest, end)
	if !ok || !found {
		t.Fatalf("there is no part %s", mark)
	}
	return before + begin, inside, end + after
}

// statements are what is in the SQL blocks of a text.
func statements(text string) []string {
	var list []string
	for _, block := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(text, -1) {
		for _, s := range strings.Split(block[1], ";\n") {
			if strings.TrimSpace(s) != "" {
				list = append(list, s)
			}
		}
	}
	return list
}

func TestDocumentedQueriesAnswer(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tellMore(t, db)
	tellPolicies(t, db)
	tellObserved(t, db)
	tellAll(t, db)
	settled(t, db)
	execute(t, db, `GRANT agentd_reader TO CURRENT_USER`)
	conn, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), `SET ROLE agentd_reader`); err != nil {
		t.Fatal(err)
	}
	asked := map[string][]string{}
	for doc, want := range map[string]int{"sql.md": 10, "ledger.md": 23, "observers.md": 1} {
		_, queries, _ := between(t, document(t, "docs", doc), "queries")
		asked[doc] = statements(queries)
		if len(asked[doc]) != want {
			t.Errorf("%s has %d queries, want %d", doc, len(asked[doc]), want)
		}
		for _, query := range asked[doc] {
			mustAnswer(t, conn, query)
		}
	}
	// The hidden message is what only the log knows.
	var seen string
	err = conn.QueryRow(t.Context(), `SELECT string_agg(said, '|') FROM (`+asked["sql.md"][4]+`) AS q`).Scan(&seen)
	if err != nil || !strings.Contains(seen, "Be brief.") || !strings.Contains(seen, "send my regards") {
		t.Errorf("the model saw %q, %v", seen, err)
	}
}

// mustAnswer runs a query, which has to have an answer.
func mustAnswer(t *testing.T, conn *pgx.Conn, query string) {
	t.Helper()
	rows, err := conn.Query(t.Context(), query)
	if err != nil {
		t.Fatalf("%v:\n%s", err, query)
	}
	n := 0
	for rows.Next() {
		n++
		values, err := rows.Values()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%v", values)
	}
	if rows.Err() != nil || n == 0 {
		t.Errorf("%d rows, %v:\n%s", n, rows.Err(), query)
	}
}

// described is what the database says of its tables and views.
func described(t *testing.T, db *storetest.DB) string {
	t.Helper()
	type explained struct{ What, Name, About, Column, Type, Meaning string }
	rows, _ := db.Pool.Query(t.Context(), `
		SELECT CASE c.relkind WHEN 'v' THEN 'view' ELSE 'table' END, c.relname, obj_description(c.oid, 'pg_class'),
			a.attname, format_type(a.atttypid, a.atttypmod), coalesce(col_description(c.oid, a.attnum), '')
		FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		WHERE c.relnamespace = 'agentd'::regnamespace AND c.relkind IN ('r', 'v') AND c.relname !~ '^(river|goose)_'
		ORDER BY c.relkind, c.relname, a.attnum`)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[explained])
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	last := ""
	for _, e := range list {
		if e.Name != last {
			fmt.Fprintf(&b, "\n### %s %s\n\n%s\n\n| column | type | meaning |\n|---|---|---|\n", e.What, e.Name, e.About)
			last = e.Name
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", e.Column, e.Type, strings.ReplaceAll(e.Meaning, "|", `\|`))
	}
	return b.String() + "\n"
}

// TestRecordColumns writes the comments of the database into docs/sql.md when
// `make record` asks for it, and otherwise says whether they are the same.
func TestRecordColumns(t *testing.T) {
	t.Parallel()
	before, inside, after := between(t, document(t, "docs", "sql.md"), "columns")
	want := described(t, storetest.New(t))
	if os.Getenv(recordVariable) == "" {
		if inside != want {
			t.Error("docs/sql.md says something else than the database: make record")
		}
		return
	}
	if err := os.WriteFile(filepath.Join("..", "..", "docs", "sql.md"), []byte(before+want+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestDocumentedGoIsSomeThatCompiles: what the documents show is part of
// examples, which are compiled, and run if they print.
func TestDocumentedGoIsSomeThatCompiles(t *testing.T) {
	t.Parallel()
	for path, shown := range map[string]struct {
		by     string
		blocks int
	}{"hooks.md": {"hooks", 3}, "api.md": {"api/client", 1}} {
		example := document(t, shown.by, "example_test.go")
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(document(t, "docs", path), -1)
		if len(blocks) != shown.blocks {
			t.Errorf("%s has %d blocks of Go", path, len(blocks))
		}
		for _, block := range blocks {
			if !strings.Contains(example, block[1]) {
				t.Errorf("%s/example_test.go has nothing like\n%s", shown.by, block[1])
			}
		}
	}
}
