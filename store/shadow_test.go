package store_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// gateOf makes the decisions of one gate: each is one of said, in order, and a
// shadow if it begins with ~.
func gateOf(gate hooks.Gate, subject string, said ...string) []hooks.Decision {
	var out []hooks.Decision
	for i, s := range said {
		d := sparse(gate, subject)
		d.HookID, d.Index, d.ChainLength = fmt.Sprintf("h%d", i+1), i+1, len(said)
		if s[0] == '~' {
			s, d.Effective, d.FailurePolicy = s[1:], false, hooks.FailShadow
		}
		d.Action = hooks.Action(s)
		out = append(out, d)
	}
	return out
}

func TestShadowedIsWhatTheHooksInForceDidNotDo(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	id, _ := started(t, s)
	overruled := gateOf(hooks.GateBeforeToolCall, "overruled", "~ask", "ask", "block")
	overruled[1].Effective = false
	void := gateOf(hooks.GateBeforeToolCall, "void", "~block", "continue")
	void[1].Effective = false
	failed := gateOf(hooks.GateBeforeInput, "failed", "~block", "~continue")
	failed[0].Outcome, failed[0].ReasonCode, failed[1].Outcome = hooks.OutcomeTimeout, "hook.timeout", hooks.OutcomeError
	second := gateOf(hooks.GateBeforeToolCall, "blocked", "~block")
	second[0].Attempt = 2
	for _, gate := range [][]hooks.Decision{
		gateOf(hooks.GateBeforeToolCall, "alone", "~block"),
		gateOf(hooks.GateBeforeToolCall, "let", "continue", "~ask", "continue"),
		gateOf(hooks.GateBeforeToolCall, "quiet", "~continue", "continue"),
		gateOf(hooks.GateBeforeToolCall, "blocked", "~block", "~transform", "block"), second,
		gateOf(hooks.GateBeforeToolCall, "changed", "transform", "~transform", "~ask"),
		gateOf(hooks.GateAfterToolCall, "kept", "~withhold", "transform"),
		overruled, void, failed,
	} {
		h := headOf(t, s, id)
		mustAppend(t, s, with(say(t, id, h.LastSeq), h.Ledger, gate...))
	}
	wantLines(t, "shadowed", lines(t, db, `SELECT subject, attempt, hook_id, would, came_to, outcome FROM agentd.shadowed ORDER BY ledger_seq`), []string{
		"alone|1|h1|block|continue|ok", "let|1|h2|ask|continue|ok", "blocked|2|h1|block|continue|ok",
		"changed|1|h2|transform|transform|ok", "changed|1|h3|ask|transform|ok", "kept|1|h1|withhold|transform|ok", "failed|1|h1|block|continue|timeout",
	})
	wantLines(t, "shadow_hooks", lines(t, db, `
		SELECT gate, hook_id, action, decisions, differing, failures, first_at = last_at FROM agentd.shadow_hooks ORDER BY gate, hook_id, action`), []string{
		"AfterToolCall|h1|withhold|1|1|0|true",
		"BeforeInput|h1|block|1|1|1|true", "BeforeInput|h2|continue|1|0|1|true",
		"BeforeToolCall|h1|ask|1|0|0|true", "BeforeToolCall|h1|block|4|2|0|true", "BeforeToolCall|h1|continue|1|0|0|true",
		"BeforeToolCall|h2|ask|1|1|0|true", "BeforeToolCall|h2|transform|2|1|0|true", "BeforeToolCall|h3|ask|1|1|0|true",
	})
	wantLines(t, "timeline", lines(t, db, `SELECT actor, summary FROM agentd.timeline WHERE kind = 'decision' AND summary LIKE '%ask%' ORDER BY ledger_seq`), []string{
		"hook:h2|ask (shadow)", "hook:h3|ask (shadow)", "hook:h1|ask (shadow)", "hook:h2|ask (without effect)",
	})
	wantLines(t, "blocked", lines(t, db, `SELECT hook_id, subject FROM agentd.blocked ORDER BY subject`), []string{"h3|blocked", "h3|overruled"})
	wantLines(t, "fail_open", lines(t, db, `SELECT hook_id FROM agentd.fail_open`), nil)
	wantLines(t, "verify_ledger", lines(t, db, `SELECT * FROM agentd.verify_ledgers()`), nil)
}

// TestSchemaRefusesAShadowThatHasAnEffect: nobody can pass off a decision that
// bound as one that was only tried.
func TestSchemaRefusesAShadowThatHasAnEffect(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	id, _ := started(t, s)
	d := gateOf(hooks.GateBeforeInput, "i", "~block")[0]
	h := headOf(t, s, id)
	for _, wrong := range []func(hooks.Decision) hooks.Decision{
		func(d hooks.Decision) hooks.Decision { d.Effective = true; return d },
		func(d hooks.Decision) hooks.Decision { d.Outcome, d.FailedOpen = hooks.OutcomeError, true; return d },
		func(d hooks.Decision) hooks.Decision { d.FailurePolicy = "maybe"; return d },
	} {
		if _, err := s.Append(limit(t), with(say(t, id, h.LastSeq), h.Ledger, wrong(d))); err == nil {
			t.Errorf("it is taken: %+v", wrong(d))
		}
	}
	mustAppend(t, s, with(say(t, id, h.LastSeq), h.Ledger, d))
	if got := decisionsOf(t, s, id); len(got) != 1 || !got[0].Shadow() {
		t.Errorf("%+v", got)
	}
}

// TestVerifyWantsTheHooksThatBindACall: a shadow lets nothing through, and a
// hook that is about other calls is not missed.
func TestVerifyWantsTheHooksThatBindACall(t *testing.T) {
	t.Parallel()
	set := func(opts ...hooks.Option) hooks.HookSet {
		return hooks.Hooks{BeforeToolCall: hooks.Named("guard", "1", guard, opts...)}.Set()
	}
	for name, c := range map[string]struct {
		set     hooks.HookSet
		asked   []hooks.Decision
		missing bool
	}{
		"OnlyAShadow":     {set: set(hooks.Shadow()), asked: gateOf(hooks.GateBeforeToolCall, "", "~block")},
		"NothingAsked":    {set: set(), missing: true},
		"AShadowInItsWay": {set: set(), asked: gateOf(hooks.GateBeforeToolCall, "", "~continue"), missing: true},
		"AboutOtherTools": {set: set(hooks.Only(hooks.Scope{Tools: []string{"refund"}}))},
		"AboutThisTool":   {set: set(hooks.Only(hooks.Scope{Tools: []string{"lo*"}, Tenants: []string{looptest.Tenant}, Agents: []string{"demo"}})), missing: true},
		"OtherAgents":     {set: set(hooks.Only(hooks.Scope{Agents: []string{"other"}}))},
		"OtherTenants":    {set: set(hooks.Only(hooks.Scope{Tenants: []string{"other"}}))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t, storetest.Unverified)
			s := startStore(t, db, store.Options{Queue: jobs{}})
			if err := s.PutHookSet(limit(t), c.set); err != nil {
				t.Fatal(err)
			}
			call := looptest.NewID()
			a := startsTool(t, s, c.set.Digest, call)
			for i := range c.asked {
				c.asked[i].Subject = call
			}
			mustAppend(t, s, with(a, loop.LedgerHead{}, c.asked...))
			if report := verify(t, db); (len(report.Differences) > 0) != c.missing || c.missing && report.Differences[0].Row != call {
				t.Errorf("%v", report.Differences)
			}
		})
	}
}

func guard(context.Context, hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
	return hooks.BeforeToolCallResult{Action: hooks.ActionContinue}, nil
}
