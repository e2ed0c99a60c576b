package guard

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/setting"
)

// BudgetConfig says what model calls may take. Tokens and Cost may both be given.
type BudgetConfig struct {
	// Tokens is how many, input and output together.
	Tokens int64 `json:"tokens,omitempty" yaml:"tokens"`
	// Cost is what they may cost, in the unit of the prices that agentd is told.
	// Without prices nothing costs anything, and it is never reached.
	Cost hooks.Micros `json:"cost,omitempty" yaml:"cost"`
	// Per is run, session, tenant or agent.
	Per Per `json:"per" yaml:"per"`
	// Every is the time after which it is full again: hour, day, week or month.
	// "" is never, which is for a run or a session alone; a run has no other.
	Every Period `json:"every,omitempty" yaml:"every"`
	// Zone is the time zone of the calendar, "" is UTC.
	Zone string `json:"zone,omitempty" yaml:"zone"`
	// IgnoreUnreported goes on where a provider did not say what a call took,
	// which then counts as nothing. Without it such a call uses the budget up.
	IgnoreUnreported bool `json:"ignore_unreported,omitempty" yaml:"ignore_unreported"`
}

// Expense is what is asked about: what some model calls took.
type Expense struct {
	hooks.RunRef
	Per Per
	// Since is the first moment of the period that now is in; nil counts
	// everything.
	Since func(now time.Time) time.Time
}

// Spent is what they took.
type Spent struct {
	Tokens int64
	Cost   hooks.Micros
	// Unreported is how many calls did not say.
	Unreported int64
	// Now is the clock that Since was asked with.
	Now time.Time
}

// Spending knows what model calls took, for all processes together.
type Spending interface {
	// Spent sums up the calls whose end is stored. A call counts when that
	// happened; of a session, when its turn began.
	Spent(ctx context.Context, e Expense) (Spent, error)
}

// Budget refuses model calls and tool calls once the budget is used up, with
// the code budget_exhausted: a model call ends the run, a tool call gets the
// reason for a result.
//
// It is asked before each call and looks at what earlier ones took. What a
// call takes is known when it has ended, so the budget can be passed by the
// calls that are under way when it is reached: one of a run or a session, which
// make one at a time, and of a tenant or an agent one per run that is at work.
// None is begun after that was stored.
func Budget(c BudgetConfig, spending Spending, opts ...hooks.Option) (hooks.Hooks, error) {
	const kind, id = "budget", "budget"
	err := checkPer(kind, c.Per, PerRun, PerSession, PerTenant, PerAgent)
	zone := time.UTC
	if c.Zone != "" && err == nil {
		z, bad := zoneNamed(c.Zone)
		if zone = z; bad != nil {
			err = setting.Errorf(kind, "zone", "%v", bad)
		}
	}
	switch {
	case spending == nil:
		return hooks.Hooks{}, errNoCounter
	case c.Tokens < 0:
		return hooks.Hooks{}, setting.Errorf(kind, "tokens", "is %d; expected a number of at least 1", c.Tokens)
	case c.Cost < 0:
		return hooks.Hooks{}, setting.Errorf(kind, "cost", "is %s; expected more than 0", c.Cost)
	case c.Tokens == 0 && c.Cost == 0:
		return hooks.Hooks{}, setting.Errorf(kind, "", "has no tokens and no cost; expected one of them, or both")
	case err != nil:
		return hooks.Hooks{}, err
	case c.Every == "" && c.Per != PerRun && c.Per != PerSession:
		return hooks.Hooks{}, setting.Errorf(kind, "every", "is not given; expected hour, day, week or month: without one it is never full again")
	case c.Every != "" && !periods[c.Every]:
		return hooks.Hooks{}, setting.Errorf(kind, "every", "%q is none of hour, day, week, month", shorten(string(c.Every), maxShown))
	case c.Every != "" && c.Per == PerRun:
		return hooks.Hooks{}, setting.Errorf(kind, "every", "is for what goes on; a run has one budget for all of it")
	case c.Every == "" && c.Zone != "":
		return hooks.Hooks{}, setting.Errorf(kind, "zone", "is of a calendar, and there is no every")
	}
	b := budget{config: c, zone: zone, spending: spending}
	opts = given(c, hooks.PhaseValidate, opts)
	return hooks.Hooks{
		TransformContext: hooks.Named(id, "1", b.beforeModel, opts...),
		BeforeExecute:    hooks.Named(id, "1", b.beforeTool, opts...),
	}, nil
}

type budget struct {
	config   BudgetConfig
	zone     *time.Location
	spending Spending
}

func (b *budget) beforeModel(ctx context.Context, in hooks.TransformContext) (hooks.TransformContextResult, error) {
	a, err := b.look(ctx, in.RunRef)
	return hooks.TransformContextResult{Action: a.action, Reason: a.reason, Annotations: a.annotations}, err
}

func (b *budget) beforeTool(ctx context.Context, in hooks.BeforeExecute) (hooks.BeforeExecuteResult, error) {
	a, err := b.look(ctx, in.RunRef)
	return hooks.BeforeExecuteResult{Action: a.action, Reason: a.reason, Annotations: a.annotations}, err
}

// balance is what a look at a budget comes to.
type balance struct {
	action      hooks.Action
	reason      hooks.Reason
	annotations map[string]string
}

func (b *budget) look(ctx context.Context, run hooks.RunRef) (balance, error) {
	e := Expense{RunRef: run, Per: b.config.Per}
	if b.config.Every != "" {
		e.Since = func(now time.Time) time.Time {
			start, _ := b.config.Every.around(now, b.zone)
			return start
		}
	}
	got, err := b.spending.Spent(ctx, e)
	if err != nil {
		return balance{}, fmt.Errorf("look up what was spent: %w", err)
	}
	out := balance{action: hooks.ActionContinue, annotations: map[string]string{"tokens": strconv.FormatInt(got.Tokens, 10), "cost": got.Cost.String()}}
	code, why := "budget_exhausted", ""
	switch {
	case b.config.Tokens > 0 && got.Tokens >= b.config.Tokens:
		why = fmt.Sprintf("%d tokens were taken, of %d", got.Tokens, b.config.Tokens)
	case b.config.Cost > 0 && got.Cost >= b.config.Cost:
		why = fmt.Sprintf("%s was spent, of %s", got.Cost, b.config.Cost)
	case got.Unreported > 0 && !b.config.IgnoreUnreported:
		code, why = "usage_unknown", fmt.Sprintf("of %d model calls the provider did not say what they took, so it cannot be kept", got.Unreported)
	default:
		return out, nil
	}
	text := fmt.Sprintf("The budget of this %s", b.config.Per)
	if b.config.Every != "" {
		text += fmt.Sprintf(" for the %s", b.config.Every)
	}
	text += " is used up: " + why + "."
	if b.config.Every != "" {
		_, end := b.config.Every.around(got.Now, b.zone)
		text += " It is full again " + when(end, got.Now) + "."
	}
	out.action, out.reason = hooks.ActionBlock, hooks.Reason{Code: code, Text: text}
	return out, nil
}
