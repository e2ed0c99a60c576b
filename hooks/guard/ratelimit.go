package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/setting"
)

// Per says whose limit it is: each of them has one of its own.
type Per string

// What a limit can be per. The words are stored.
const (
	PerRun     Per = "run"
	PerSession Per = "session"
	// PerUser is whoever started the run, within its tenant.
	PerUser   Per = "user"
	PerTenant Per = "tenant"
	// PerAgent is an agent of a tenant.
	PerAgent Per = "agent"
)

// checkPer refuses what is none of some words.
func checkPer(kind string, p Per, of ...Per) error {
	if slices.Contains(of, p) {
		return nil
	}
	var words []string
	for _, w := range of {
		words = append(words, string(w))
	}
	return setting.Errorf(kind, "per", "%q is none of %s", shorten(string(p), maxShown), strings.Join(words, ", "))
}

// RateLimitConfig says how many tool calls may start.
type RateLimitConfig struct {
	// Calls is how many, at least 1 and at most 10,000.
	Calls int `json:"calls" yaml:"calls"`
	// Per is run, session, user, tenant or agent.
	Per Per `json:"per" yaml:"per"`
	// Window is the time in which they may be so many: any such time, not one by
	// the clock. 0 is for as long as there is the run or the session, and for the
	// others not possible. A second is the shortest, and 31 days are the longest.
	Window time.Duration `json:"window,omitempty" yaml:"window"`
	// EachTool gives each tool a limit of its own.
	EachTool bool `json:"each_tool,omitempty" yaml:"each_tool"`
}

// MarshalJSON writes the window as it is given, since people read what is stored.
func (c RateLimitConfig) MarshalJSON() ([]byte, error) {
	type fields RateLimitConfig
	written := struct {
		fields
		Window string `json:"window,omitempty"`
	}{fields: fields(c)}
	if c.Window != 0 {
		written.Window = c.Window.String()
	}
	return json.Marshal(written)
}

// Slot is one place of a limit that a call wants to take.
type Slot struct {
	hooks.RunRef
	// CallID is what the place is for: a call has one, however often it asks.
	CallID string
	// Guard names the limit, and Tool is not "" where each has its own.
	Guard string
	Per   Per
	Tool  string
	// Calls and Window are those of the config.
	Calls  int
	Window time.Duration
}

// Taken is what came of asking for a [Slot].
type Taken struct {
	// OK says that the call has its place.
	OK bool
	// Used is how many places are taken, this one included; never more than
	// there are.
	Used int
	// FreeAt is when the next place is free again; zero if none will be.
	FreeAt time.Time
	// Now is the clock by which it was decided.
	Now time.Time
}

// Slots are the places of limits, for all processes together.
type Slots interface {
	// TakeSlot takes a place if one is free, and is true as well for a call that
	// has one. Of any number of callers at once no more are told that they have
	// one than there are places. An error is neither a yes nor a no.
	TakeSlot(ctx context.Context, s Slot) (Taken, error)
}

const (
	maxCalls  = 10_000
	maxWindow = 31 * 24 * time.Hour
)

// RateLimit refuses a call beyond the limit, with the code rate_limited, just
// before it would start: after any approval. What it counts are the calls that
// it let through, those that it was asked about alone: a hook with a scope has
// a count of its own, and so has each hook with another id.
//
// It is exact: never do more calls start than the limit says, in however many
// processes, whichever of them die. A call that is asked about or run again
// counts once. One that has its place and then does not start, because a hook
// behind this one refused it or the run was cancelled meanwhile, has used it: so
// fewer may start.
func RateLimit(c RateLimitConfig, slots Slots, opts ...hooks.Option) (hooks.Hooks, error) {
	const kind, id = "rate_limit", "rate-limit"
	err := checkPer(kind, c.Per, PerRun, PerSession, PerUser, PerTenant, PerAgent)
	switch {
	case slots == nil:
		return hooks.Hooks{}, errNoCounter
	case c.Calls < 1 || c.Calls > maxCalls:
		return hooks.Hooks{}, setting.Errorf(kind, "calls", "is %d; expected a number from 1 to %d", c.Calls, maxCalls)
	case err != nil:
		return hooks.Hooks{}, err
	case c.Window == 0 && c.Per != PerRun && c.Per != PerSession:
		return hooks.Hooks{}, setting.Errorf(kind, "window", "is not given; expected a time such as 1h: without one nothing is ever free again")
	case c.Window != 0 && (c.Window < time.Second || c.Window > maxWindow):
		return hooks.Hooks{}, setting.Errorf(kind, "window", "is %s; expected a time from 1s to %s", c.Window, spell(maxWindow))
	}
	opts = given(c, hooks.PhaseValidate, opts)
	l := rateLimit{config: c, slots: slots, guard: c.key(registered(id, opts))}
	return hooks.Hooks{BeforeExecute: hooks.Named(id, "1", l.take, opts...)}, nil
}

var errNoCounter = errors.New("a guard that counts needs something to count with")

// key is under which the limit counts: what makes it another limit makes it
// another key. How many calls it lets through does not.
func (c RateLimitConfig) key(r hooks.Registration) string {
	parts := []string{r.ID, "per " + string(c.Per)}
	if c.Window > 0 {
		parts = append(parts, "in "+c.Window.String())
	}
	if c.EachTool {
		parts = append(parts, "each tool")
	}
	if s := r.Only; s != nil {
		parts = append(parts, fmt.Sprintf("only %q %q %q", s.Tenants, s.Agents, s.Tools))
	}
	return strings.Join(parts, ", ")
}

type rateLimit struct {
	config RateLimitConfig
	slots  Slots
	guard  string
}

func (l *rateLimit) take(ctx context.Context, in hooks.BeforeExecute) (hooks.BeforeExecuteResult, error) {
	s := Slot{RunRef: in.RunRef, CallID: in.Call.ID, Guard: l.guard, Per: l.config.Per, Calls: l.config.Calls, Window: l.config.Window}
	if l.config.EachTool {
		s.Tool = in.Call.Name
	}
	got, err := l.slots.TakeSlot(ctx, s)
	if err != nil {
		return hooks.BeforeExecuteResult{}, fmt.Errorf("take a place of the limit: %w", err)
	}
	used := map[string]string{"used": strconv.Itoa(got.Used), "limit": strconv.Itoa(l.config.Calls)}
	if got.OK {
		return hooks.BeforeExecuteResult{Action: hooks.ActionContinue, Annotations: used}, nil
	}
	text := fmt.Sprintf("At most %d calls%s may start per %s", l.config.Calls, l.of(in.Call.Name), l.config.Per)
	if l.config.Window > 0 {
		text += " in " + spell(l.config.Window)
	}
	text += fmt.Sprintf(", and %d have.", got.Used)
	if got.FreeAt.IsZero() {
		text += fmt.Sprintf(" No more will in this %s.", l.config.Per)
	} else {
		text += " The next may start " + when(got.FreeAt, got.Now) + "."
	}
	return hooks.BeforeExecuteResult{
		Action: hooks.ActionBlock, Annotations: used, Reason: hooks.Reason{Code: "rate_limited", Text: text},
	}, nil
}

// of says which calls count.
func (l *rateLimit) of(tool string) string {
	if l.config.EachTool {
		return " of " + shorten(tool, maxShown)
	}
	return ""
}

// when says a time as a model and a person can use it.
func when(at, now time.Time) string {
	wait := max(at.Sub(now).Round(time.Second), time.Second)
	return fmt.Sprintf("in %s, at %s UTC", spell(wait), at.UTC().Format("2006-01-02 15:04:05"))
}

// spell writes a duration in words, its two largest units.
func spell(d time.Duration) string {
	var parts []string
	for _, u := range []struct {
		name string
		size time.Duration
	}{{"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute}, {"second", time.Second}} {
		n := d / u.size
		d -= n * u.size
		if n == 0 {
			continue
		}
		name := u.name
		if n > 1 {
			name += "s"
		}
		if parts = append(parts, fmt.Sprintf("%d %s", n, name)); len(parts) == 2 {
			break
		}
	}
	if len(parts) == 0 {
		return "less than a second"
	}
	return strings.Join(parts, " ")
}
