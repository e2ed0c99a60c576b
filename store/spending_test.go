package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	guards "github.com/seed-2ca4966b/agentd/hooks/guard"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/migrations"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// answered stores a run whose calls took so many tokens, each of them also in
// millionths, and 0 for one that did not say.
func answered(t *testing.T, log loop.Log, tokens ...int64) hooks.RunRef {
	t.Helper()
	id, run := started(t, log)
	in := func(turn int, p event.Payload) event.Event { return encode(t, id, run, turn, p) }
	for i, n := range tokens {
		mustAppend(t, log, appendOf(id, headOf(t, log, id).LastSeq,
			in(i+1, event.TurnStarted{}), in(i+1, event.ModelRequested{Attempt: 1, Model: "m"})))
		done := event.AssistantCompleted{Attempt: 1, MessageID: looptest.NewID(), Finish: stream.FinishStop}
		if n > 0 {
			done.Usage, done.Cost = stream.Usage{InputTokens: n - 1, OutputTokens: 1}, &event.Cost{Micros: n}
		}
		mustAppend(t, log, appendOf(id, headOf(t, log, id).LastSeq, in(i+1, done), in(i+1, event.TurnCompleted{})))
	}
	return hooks.RunRef{TenantID: looptest.Tenant, SessionID: id, RunID: run, Agent: "demo"}
}

func spent(t *testing.T, s *store.Store, run hooks.RunRef, per guards.Per, since func(time.Time) time.Time) guards.Spent {
	t.Helper()
	got, err := s.Spent(limit(t), guards.Expense{RunRef: run, Per: per, Since: since})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestSpentIsWhatFinishedCallsTook(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s, other := startStore(t, db, store.Options{Queue: jobs{}}), startStore(t, db, store.Options{Queue: jobs{}})
	first, second := answered(t, s, 100, 20), answered(t, other, 3, 0)
	hour := func(now time.Time) time.Time { return now.Add(-time.Hour) }
	for _, c := range []struct {
		run        hooks.RunRef
		per        guards.Per
		since      func(time.Time) time.Time
		tokens     int64
		unreported int64
	}{
		{first, guards.PerRun, nil, 120, 0},
		{second, guards.PerRun, nil, 3, 1},
		{first, guards.PerSession, nil, 120, 0},
		{second, guards.PerSession, hour, 3, 1},
		{first, guards.PerTenant, hour, 123, 1},
		{second, guards.PerAgent, hour, 123, 1},
		{hooks.RunRef{TenantID: looptest.Tenant, Agent: "another"}, guards.PerAgent, hour, 0, 0},
		{hooks.RunRef{TenantID: "another"}, guards.PerTenant, hour, 0, 0},
		{hooks.RunRef{TenantID: "another", RunID: first.RunID}, guards.PerRun, nil, 0, 0},
	} {
		got := spent(t, s, c.run, c.per, c.since)
		if got.Tokens != c.tokens || got.Cost != hooks.Micros(c.tokens) || got.Unreported != c.unreported {
			t.Errorf("%+v per %s: %+v; want %d tokens, %d calls that did not say", c.run, c.per, got, c.tokens, c.unreported)
		}
	}
	// What was spent was spent, whatever becomes of the conversation.
	exec(t, db, `UPDATE agentd.runs SET status = 'completed', worker_id = NULL, reason = 'stop', ended_at = agentd.clock(), ended_seq = 100 WHERE id = '`+first.RunID+`'`)
	exec(t, db, `SELECT agentd.purge_session('`+first.SessionID+`', 'test')`)
	if got := spent(t, s, second, guards.PerTenant, hour); got.Tokens != 123 {
		t.Errorf("after a purge: %+v", got)
	}
}

// TestSpentIsOfThePeriodOfTheDatabasesClock: a call counts from when its end was
// stored.
func TestSpentIsOfThePeriodOfTheDatabasesClock(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	midnight := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	today := func(now time.Time) time.Time { return now.Truncate(24 * time.Hour) }
	for _, c := range []struct {
		at   time.Duration
		took int64
		want int64
	}{{-time.Microsecond, 100, 100}, {0, 7, 7}, {15 * time.Minute, 1, 8}, {24*time.Hour - time.Microsecond, 2, 10}, {24 * time.Hour, 4, 4}} {
		db.SetClock(t, midnight.Add(c.at))
		run := answered(t, s, c.took)
		got := spent(t, s, run, guards.PerTenant, today)
		if got.Tokens != c.want || !got.Now.Equal(midnight.Add(c.at)) {
			t.Errorf("at %s: %+v; want %d tokens", c.at, got, c.want)
		}
	}
	db.ShiftClock(t, 0)
	run := answered(t, s, 5)
	later := func(now time.Time) time.Time { return now.Add(time.Hour) }
	if got := spent(t, s, run, guards.PerSession, later); got.Tokens != 0 {
		t.Errorf("of a session since the future: %+v", got)
	}
}

func TestSpentThatNobodyKnowsIsAnError(t *testing.T) {
	t.Parallel()
	s := startStore(t, storetest.New(t), store.Options{Queue: jobs{}})
	run := answered(t, s, 1)
	now := func(now time.Time) time.Time { return now }
	for what, e := range map[string]guards.Expense{
		"a run by another name": {RunRef: hooks.RunRef{TenantID: looptest.Tenant, RunID: "r"}, Per: guards.PerRun},
		"a strange tenant":      {RunRef: hooks.RunRef{TenantID: "\x00"}, Per: guards.PerTenant},
		"an unheard-of per":     {RunRef: run, Per: guards.PerUser},
	} {
		if got, err := s.Spent(limit(t), e); err == nil {
			t.Errorf("%s: %+v", what, got)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, since := range []func(time.Time) time.Time{nil, now} {
		if _, err := s.Spent(ctx, guards.Expense{RunRef: run, Per: guards.PerTenant, Since: since}); !errors.Is(err, context.Canceled) {
			t.Errorf("without a database: %v", err)
		}
	}
}

// TestUsageIsWhatTurnsSay: calls that failed, and two in one append, included;
// and what is too much for 64 bits is still a number.
func TestUsageIsWhatTurnsSay(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	id, run := started(t, s)
	in := func(p event.Payload) event.Event { return encode(t, id, run, 1, p) }
	mustAppend(t, s, appendOf(id, headOf(t, s, id).LastSeq, in(event.TurnStarted{}), in(event.ModelRequested{Attempt: 1, Model: "m"}),
		in(event.AssistantDiscarded{Attempt: 1, Reason: "failed", Usage: &stream.Usage{InputTokens: 10, OutputTokens: 1}}),
		in(event.ModelRequested{Attempt: 2, Model: "m"}),
		in(event.AssistantCompleted{Attempt: 2, MessageID: looptest.NewID(), Finish: stream.FinishStop, Usage: stream.Usage{InputTokens: 3, OutputTokens: 5}})))
	answered(t, s, 4, 0, 9)
	wantLines(t, "usage", lines(t, db, `
		SELECT sum(input_tokens)::text, sum(output_tokens)::text, sum(cost_micros)::text, sum(calls)::text, sum(unreported)::text FROM agentd.usage`),
		lines(t, db, `SELECT sum(input_tokens)::text, sum(output_tokens)::text, sum(cost_micros)::text, '4', '1' FROM agentd.turns`))
	exec(t, db, `INSERT INTO agentd.usage SELECT tenant_id, quarter, 'demo', -n, 1, 0, 9223372036854775807, 0, 9223372036854775807 FROM (SELECT tenant_id, quarter FROM agentd.usage LIMIT 1) AS u, generate_series(1, 3) AS n`)
	got := spent(t, s, hooks.RunRef{TenantID: looptest.Tenant}, guards.PerTenant, nil)
	if got.Tokens != 1<<63-1 || got.Cost != 1<<63-1 {
		t.Errorf("of too much: %+v", got)
	}
}

// TestUsageCostsByTimeAndNotByCalls: a month of a tenant is as many rows as there
// were quarters of an hour, whatever others have.
func TestUsageCostsByTimeAndNotByCalls(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	exec(t, db, `INSERT INTO agentd.tenants (id, name) SELECT 't' || n, 'T' FROM generate_series(1, 20) AS n`)
	exec(t, db, `
		INSERT INTO agentd.usage SELECT 't' || t, timestamptz '2026-01-01Z' + q * interval '15 minutes', 'demo', 1, 1000, 0, 100000, 1000, 0
		FROM generate_series(1, 20) AS t, generate_series(0, 1999) AS q`)
	for days, most := range map[int]int{0: 60, 15: 200} {
		since := time.Date(2026, 1, 20, 0, 0, 0, 0, time.UTC).AddDate(0, 0, -days)
		if pages := pagesOf(t, db, store.SpentByTenantSQL, "t7", since); pages > most {
			t.Errorf("%d days: it read %d pages; want at most %d", days, pages, most)
		}
	}
	if got := fmt.Sprint(spent(t, startStore(t, db, store.Options{}), hooks.RunRef{TenantID: "t7"}, guards.PerTenant, func(time.Time) time.Time {
		return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	}).Tokens); got != "202000000" {
		t.Errorf("a month has %s tokens", got)
	}
}

// TestUsageBeginsWithWhatTurnsHad: the migration counts what there was.
func TestUsageBeginsWithWhatTurnsHad(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	answered(t, s, 4, 0, 9)
	answered(t, s, 1)
	const sums = `SELECT tenant_id, agent, sum(calls)::text, sum(unreported)::text, sum(input_tokens)::text, sum(output_tokens)::text, sum(cost_micros)::text
		FROM agentd.usage GROUP BY tenant_id, agent`
	counted := lines(t, db, sums)
	text, err := migrations.FS.ReadFile("00023_guards.sql")
	if err != nil {
		t.Fatal(err)
	}
	_, backfill, ok := strings.Cut(string(text), "EXECUTE FUNCTION agentd.count_usage();\n\n")
	if !ok || !strings.HasPrefix(backfill, "INSERT INTO agentd.usage") {
		t.Fatalf("no statement that counts: %s", backfill)
	}
	backfill, _, _ = strings.Cut(backfill, "\n\n")
	exec(t, db, `DELETE FROM agentd.usage`)
	exec(t, db, backfill)
	wantLines(t, "usage", lines(t, db, sums), counted)
}

// TestUsageCountsEachTurnOfAStatement: of two agents, and those that took nothing
// more are not among them.
func TestUsageCountsEachTurnOfAStatement(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Unverified) // the tables say what no log does
	s := startStore(t, db, store.Options{Queue: jobs{}})
	for range 3 {
		calling(t, s)
	}
	exec(t, db, `UPDATE agentd.runs SET agent = 'other' WHERE id = (SELECT min(id::text)::uuid FROM agentd.runs)`)
	const query = `SELECT agent, sum(calls)::text, sum(unreported)::text, sum(input_tokens)::text, sum(output_tokens)::text, sum(cost_micros)::text FROM agentd.usage GROUP BY agent ORDER BY agent`
	exec(t, db, `UPDATE agentd.turns SET status = 'calling'`)
	wantLines(t, "nothing took anything", lines(t, db, query), []string{})
	exec(t, db, `UPDATE agentd.turns SET input_tokens = input_tokens + 3, output_tokens = 2, cost_micros = 7`)
	exec(t, db, `UPDATE agentd.turns SET finish_reason = 'stop', message_id = gen_random_uuid() FROM agentd.runs AS r WHERE r.id = run_id AND r.agent = 'other'`)
	wantLines(t, "usage", lines(t, db, query), []string{"demo|2|0|6|4|14", "other|2|1|3|2|7"})
}
