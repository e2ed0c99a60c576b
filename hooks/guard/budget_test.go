package guard_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/guard"
)

// spending answers what it is told to, and remembers what it was asked.
type spending struct {
	answer guard.Spent
	err    error
	asked  guard.Expense
	since  time.Time
}

func (s *spending) Spent(_ context.Context, e guard.Expense) (guard.Spent, error) {
	s.asked = e
	if e.Since != nil {
		s.since = e.Since(s.answer.Now)
	}
	return s.answer, s.err
}

func moment(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestBudgetSaysWhatIsUsedAndWhenItIsFull(t *testing.T) {
	t.Parallel()
	now := moment(t, "2026-03-04T12:00:00Z")
	daily := guard.BudgetConfig{Tokens: 1000, Per: guard.PerTenant, Every: guard.PeriodDay, Zone: "Europe/Berlin"}
	money := guard.BudgetConfig{Cost: 2_500_000, Per: guard.PerRun}
	careless := money
	careless.IgnoreUnreported = true
	for _, c := range []struct {
		config     guard.BudgetConfig
		spent      guard.Spent
		code, text string
	}{
		{daily, guard.Spent{Tokens: 999, Cost: 1 << 60, Now: now}, "", ""},
		{
			daily, guard.Spent{Tokens: 1000, Now: now}, "budget_exhausted",
			"The budget of this tenant for the day is used up: 1000 tokens were taken, of 1000. It is full again in 11 hours, at 2026-03-04 23:00:00 UTC.",
		},
		{money, guard.Spent{Tokens: 1 << 60, Cost: 2_499_999}, "", ""},
		{money, guard.Spent{Cost: 2_500_001}, "budget_exhausted", "The budget of this run is used up: 2.500001 was spent, of 2.5."},
		{
			money, guard.Spent{Unreported: 1}, "usage_unknown",
			"The budget of this run is used up: of 1 model calls the provider did not say what they took, so it cannot be kept.",
		},
		{careless, guard.Spent{Unreported: 1}, "", ""},
		{careless, guard.Spent{Unreported: 1, Cost: 2_500_000}, "budget_exhausted", "The budget of this run is used up: 2.5 was spent, of 2.5."},
	} {
		h := made(t)(guard.Budget(c.config, &spending{answer: c.spent}))
		model, ds := ask(t, h.TransformContext, hooks.TransformContext{RunRef: run, Turn: 1, Attempt: 1})
		tool, _ := ask(t, h.BeforeExecute, executing("look"))
		want := hooks.ActionBlock
		if c.code == "" {
			want = hooks.ActionContinue
		}
		expect(t, "model call", []any{model.Action, model.Reason}, []any{want, hooks.Reason{Code: c.code, Text: c.text}})
		expect(t, "tool call", []any{tool.Action, tool.Reason}, []any{want, hooks.Reason{Code: c.code, Text: c.text}})
		if ds[0].Payload.Annotations == "" {
			t.Error("the ledger does not have what was spent")
		}
	}
}

// TestBudgetPeriodsAreOfTheCalendarOfAZone: days that begin elsewhere on another
// date, have 23 or 25 hours, or have no midnight.
func TestBudgetPeriodsAreOfTheCalendarOfAZone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		every           guard.Period
		zone            string
		now, start, end string
	}{
		{guard.PeriodHour, "", "2026-03-04T12:59:59Z", "2026-03-04T12:00:00Z", "2026-03-04T13:00:00Z"},
		{guard.PeriodHour, "Asia/Kathmandu", "2026-03-04T12:20:00Z", "2026-03-04T12:15:00Z", "2026-03-04T13:15:00Z"},
		{guard.PeriodDay, "", "2026-03-04T00:00:00Z", "2026-03-04T00:00:00Z", "2026-03-05T00:00:00Z"},
		{guard.PeriodDay, "", "2026-03-03T23:59:59Z", "2026-03-03T00:00:00Z", "2026-03-04T00:00:00Z"},
		{guard.PeriodDay, "Pacific/Auckland", "2026-03-04T12:00:00Z", "2026-03-04T11:00:00Z", "2026-03-05T11:00:00Z"},
		{guard.PeriodDay, "Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},
		{guard.PeriodDay, "Europe/Berlin", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{guard.PeriodDay, "Africa/Cairo", "2026-04-24T12:00:00Z", "2026-04-23T22:00:00Z", "2026-04-24T21:00:00Z"},     // begins at 01:00
		{guard.PeriodDay, "Atlantic/Azores", "2026-10-25T12:00:00Z", "2026-10-25T00:00:00Z", "2026-10-26T01:00:00Z"},  // 00:00 is there twice
		{guard.PeriodDay, "America/Santiago", "2026-09-06T12:00:00Z", "2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z"}, // begins at 01:00
		{guard.PeriodWeek, "", "2026-03-01T23:59:59Z", "2026-02-23T00:00:00Z", "2026-03-02T00:00:00Z"},
		{guard.PeriodWeek, "", "2026-03-02T00:00:00Z", "2026-03-02T00:00:00Z", "2026-03-09T00:00:00Z"},
		{guard.PeriodMonth, "", "2028-02-29T12:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"},
		{guard.PeriodMonth, "America/New_York", "2026-03-01T04:59:59Z", "2026-02-01T05:00:00Z", "2026-03-01T05:00:00Z"},
		{guard.PeriodMonth, "America/New_York", "2026-12-31T12:00:00Z", "2026-12-01T05:00:00Z", "2027-01-01T05:00:00Z"},
	} {
		s := &spending{answer: guard.Spent{Tokens: 9, Now: moment(t, c.now)}}
		h := made(t)(guard.Budget(guard.BudgetConfig{Tokens: 1, Per: guard.PerTenant, Every: c.every, Zone: c.zone}, s))
		v, _ := ask(t, h.BeforeExecute, executing("look"))
		if !s.since.Equal(moment(t, c.start)) {
			t.Errorf("the %s of %s in %s begins at %s; want %s", c.every, c.now, c.zone, s.since.UTC(), c.start)
		}
		if want := moment(t, c.end).Format("at 2006-01-02 15:04:05 UTC."); len(v.Reason.Text) < len(want) || v.Reason.Text[len(v.Reason.Text)-len(want):] != want {
			t.Errorf("the %s of %s in %s: %s; want %s", c.every, c.now, c.zone, v.Reason.Text, want)
		}
	}
}

func TestBudgetWithoutItsSumIsClosedAndNeverPure(t *testing.T) {
	t.Parallel()
	h := made(t)(guard.Budget(guard.BudgetConfig{Tokens: 1, Per: guard.PerSession}, &spending{err: errors.New("no database")}))
	tool, ds := ask(t, h.BeforeExecute, executing("look"))
	model, _ := ask(t, h.TransformContext, hooks.TransformContext{RunRef: run})
	expect(t, "verdicts", []any{tool.Action, model.Action, ds[0].Outcome}, []any{hooks.ActionBlock, hooks.ActionBlock, hooks.OutcomeError})
	for _, r := range h.Set().Hooks {
		if r.Pure || r.OnFailure != hooks.FailClosed {
			t.Errorf("registered as %+v", r)
		}
	}
}

func TestBudgetRefusesAConfigThatCannotBeMeant(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		field  string
		config guard.BudgetConfig
	}{
		{"", guard.BudgetConfig{Per: guard.PerRun}},
		{"tokens", guard.BudgetConfig{Tokens: -1, Per: guard.PerRun}},
		{"cost", guard.BudgetConfig{Cost: -1, Per: guard.PerRun}},
		{"per", guard.BudgetConfig{Tokens: 1}},
		{"per", guard.BudgetConfig{Tokens: 1, Per: guard.PerUser, Every: guard.PeriodDay}},
		{"every", guard.BudgetConfig{Tokens: 1, Per: guard.PerTenant}},
		{"every", guard.BudgetConfig{Tokens: 1, Per: guard.PerTenant, Every: "year"}},
		{"every", guard.BudgetConfig{Tokens: 1, Per: guard.PerRun, Every: guard.PeriodDay}},
		{"zone", guard.BudgetConfig{Tokens: 1, Per: guard.PerTenant, Every: guard.PeriodDay, Zone: "Mars/Olympus_Mons"}},
		{"zone", guard.BudgetConfig{Tokens: 1, Per: guard.PerTenant, Every: guard.PeriodDay, Zone: "Local"}},
		{"zone", guard.BudgetConfig{Tokens: 1, Per: guard.PerRun, Zone: "UTC"}},
	} {
		h, err := guard.Budget(c.config, &spending{})
		refused(t, h, err, c.field)
	}
	if _, err := guard.Budget(guard.BudgetConfig{Tokens: 1, Per: guard.PerRun}, nil); err == nil {
		t.Error("a budget without a sum")
	}
}
