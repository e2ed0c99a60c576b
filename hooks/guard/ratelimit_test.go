package guard_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/guard"
)

// slots answers what it is told to, and remembers what it was asked.
type slots struct {
	answer guard.Taken
	err    error
	asked  []guard.Slot
}

func (s *slots) TakeSlot(_ context.Context, slot guard.Slot) (guard.Taken, error) {
	s.asked = append(s.asked, slot)
	return s.answer, s.err
}

func executing(tool string) hooks.BeforeExecute {
	return hooks.BeforeExecute{RunRef: run, Turn: 1, Attempt: 1, Call: hooks.ToolCall{ID: "c", Name: tool, Arguments: "{}"}}
}

var tenOfAnHour = guard.RateLimitConfig{Calls: 10, Per: guard.PerTenant, Window: time.Hour}

func TestRateLimitSaysWhatIsUsedAndWhenItIsFree(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	full := guard.Taken{Used: 10, FreeAt: now.Add(3*time.Minute + 20*time.Second), Now: now}
	for _, c := range []struct {
		config guard.RateLimitConfig
		taken  guard.Taken
		want   string // "" for none
	}{
		{tenOfAnHour, guard.Taken{OK: true, Used: 10, Now: now}, ""},
		{tenOfAnHour, full, "At most 10 calls may start per tenant in 1 hour, and 10 have. The next may start in 3 minutes 20 seconds, at 2026-03-04 12:03:20 UTC."},
		{
			guard.RateLimitConfig{Calls: 1, Per: guard.PerUser, Window: 90 * time.Second, EachTool: true}, guard.Taken{Used: 1, FreeAt: now, Now: now},
			"At most 1 calls of look may start per user in 1 minute 30 seconds, and 1 have. The next may start in 1 second, at 2026-03-04 12:00:00 UTC.",
		},
		{guard.RateLimitConfig{Calls: 3, Per: guard.PerRun}, guard.Taken{Used: 3, Now: now}, "At most 3 calls may start per run, and 3 have. No more will in this run."},
	} {
		s := &slots{answer: c.taken}
		h := made(t)(guard.RateLimit(c.config, s))
		v, ds := ask(t, h.BeforeExecute, executing("look"))
		if c.want == "" {
			expect(t, "free", []any{v.Action, ds[0].Payload.Annotations}, []any{hooks.ActionContinue, `{"limit":"10","used":"10"}`})
			continue
		}
		expect(t, "full", []any{v.Action, v.Reason.Code, v.Reason.Text}, []any{hooks.ActionBlock, "rate_limited", c.want})
	}
}

func TestRateLimitCountsApartWhatIsAnotherLimit(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	each := tenOfAnHour
	each.EachTool = true
	perUser, longer, more := tenOfAnHour, tenOfAnHour, tenOfAnHour
	perUser.Per, longer.Window, more.Calls = guard.PerUser, 2*time.Hour, 20
	named := func(r *hooks.Registration) { r.ID = "mine" }
	for what, c := range map[string]struct {
		config guard.RateLimitConfig
		opts   []hooks.Option
		tool   string
	}{
		"plain": {tenOfAnHour, nil, ""}, "per user": {perUser, nil, ""}, "longer": {longer, nil, ""}, "each": {each, nil, "look"},
		"named": {tenOfAnHour, []hooks.Option{named}, ""}, "scoped": {tenOfAnHour, []hooks.Option{hooks.Only(hooks.Scope{Tools: []string{"look"}})}, ""},
	} {
		s := &slots{answer: guard.Taken{OK: true}}
		h := made(t)(guard.RateLimit(c.config, s, c.opts...))
		ask(t, h.BeforeExecute, executing("look"))
		got := s.asked[0]
		if prior, twice := seen[got.Guard]; twice {
			t.Errorf("%s and %s count together as %q", what, prior, got.Guard)
		}
		seen[got.Guard] = what
		if got.Tool != c.tool || got.CallID != "c" || got.RunRef != run || got.Calls != c.config.Calls || got.Window != c.config.Window || got.Per != c.config.Per {
			t.Errorf("%s: asked for %+v", what, got)
		}
	}
	s := &slots{answer: guard.Taken{OK: true}}
	ask(t, made(t)(guard.RateLimit(more, s)).BeforeExecute, executing("look"))
	if seen[s.asked[0].Guard] != "plain" {
		t.Errorf("a limit that is raised begins anew, as %q", s.asked[0].Guard)
	}
}

func TestRateLimitWithoutItsCountIsClosedAndNeverPure(t *testing.T) {
	t.Parallel()
	h := made(t)(guard.RateLimit(tenOfAnHour, &slots{err: errors.New("no database"), answer: guard.Taken{OK: true}}))
	v, ds := ask(t, h.BeforeExecute, executing("look"))
	expect(t, "verdict", []any{v.Action, ds[0].Outcome}, []any{hooks.ActionBlock, hooks.OutcomeError})
	if r := h.Set().Hooks[0]; r.Pure || r.Phase != hooks.PhaseValidate || r.OnFailure != hooks.FailClosed || r.Config != `{"calls":10,"per":"tenant","window":"1h0m0s"}` {
		t.Errorf("registered as %+v", r)
	}
}

func TestRateLimitRefusesAConfigThatCannotBeMeant(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		field  string
		config guard.RateLimitConfig
	}{
		{"calls", guard.RateLimitConfig{Per: guard.PerRun}},
		{"calls", guard.RateLimitConfig{Calls: -1, Per: guard.PerRun}},
		{"calls", guard.RateLimitConfig{Calls: 10_001, Per: guard.PerRun}},
		{"per", guard.RateLimitConfig{Calls: 1}},
		{"per", guard.RateLimitConfig{Calls: 1, Per: "planet"}},
		{"window", guard.RateLimitConfig{Calls: 1, Per: guard.PerTenant}},
		{"window", guard.RateLimitConfig{Calls: 1, Per: guard.PerRun, Window: -time.Hour}},
		{"window", guard.RateLimitConfig{Calls: 1, Per: guard.PerUser, Window: time.Millisecond}},
		{"window", guard.RateLimitConfig{Calls: 1, Per: guard.PerUser, Window: 32 * 24 * time.Hour}},
	} {
		h, err := guard.RateLimit(c.config, &slots{})
		refused(t, h, err, c.field)
	}
	if _, err := guard.RateLimit(tenOfAnHour, nil); err == nil {
		t.Error("a limit without a count")
	}
}
