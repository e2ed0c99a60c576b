package store_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

func TestSchemaEveryColumnIsExplained(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	rows, _ := db.Pool.Query(limit(t), `
		SELECT c.relname || coalesce('.' || a.attname, '')
		FROM pg_class AS c
		LEFT JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		WHERE c.relnamespace = 'agentd'::regnamespace AND c.relkind IN ('r', 'v')
			AND c.relname !~ '^(river|goose)_'
			AND (col_description(c.oid, a.attnum) IS NULL OR obj_description(c.oid, 'pg_class') IS NULL)
		ORDER BY 1`)
	bare, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if len(bare) > 0 {
		t.Errorf("without a comment: %s", strings.Join(bare, ", "))
	}
}

func TestTimelineTellsARun(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	id := oneRun(t, s)
	rows, _ := db.Pool.Query(limit(t), `
		SELECT type || ' ' || summary FROM agentd.timeline
		WHERE session_id = $1 AND type IN ('message.created', 'run.created', 'run.queued', 'assistant.completed',
			'tool.proposed', 'tool.started', 'tool.executed', 'tool.result', 'run.completed')
		ORDER BY seq`, id)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"message.created user: hi", "run.created agent demo", "run.queued ticket 1",
		"assistant.completed tool_calls: let me look", "tool.proposed look({})", "tool.started look attempt 1",
		"tool.executed look succeeded 4 bytes", "tool.result look: seen", "assistant.completed stop: done", "run.completed stop",
	}
	if !slices.Equal(got, want) {
		t.Errorf("timeline\n got %q\nwant %q", got, want)
	}
}

func TestTimelineBearsAnAnswerThatShowedNothing(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	id, runID := started(t, s)
	mustAppend(t, s, appendOf(id, headOf(t, s, id).LastSeq,
		encode(t, id, runID, 1, event.TurnStarted{}), encode(t, id, runID, 1, event.ModelRequested{Attempt: 1}),
		encode(t, id, runID, 1, event.AssistantStopped{Attempt: 1, Reason: "cancelled"})))
	var summary, actor string
	err := db.Pool.QueryRow(limit(t), `SELECT summary, actor FROM agentd.timeline WHERE type = 'assistant.stopped'`).Scan(&summary, &actor)
	if err != nil || summary != "cancelled" || actor != "principal:test" {
		t.Errorf("summary %q, actor %q, %v; want cancelled, principal:test", summary, actor, err)
	}
}
