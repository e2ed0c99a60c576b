package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// askedVariable names the file to which the hooks of an agentd that is going to
// be killed add a line whenever they are asked. Like the one for effects, it
// counts what happened, whatever the ledger says.
const askedVariable = "AGENTD_TEST_ASKED"

// pureVariable says that these hooks are declared pure. They are not, quite: they
// write down that they were asked.
const pureVariable = "AGENTD_TEST_PURE"

// shadowVariable says that they are shadows, which let nothing through.
const shadowVariable = "AGENTD_TEST_SHADOW"

func init() {
	if path := os.Getenv(askedVariable); path != "" {
		var opts []hooks.Option
		if os.Getenv(pureVariable) != "" {
			opts = append(opts, hooks.Pure())
		}
		no, withhold := hooks.ActionContinue, hooks.ActionContinue
		if os.Getenv(shadowVariable) != "" {
			opts = append(opts, hooks.Shadow())
			no, withhold = hooks.ActionBlock, hooks.ActionWithhold
		}
		extraHooks = extraHooks.Then(witness(path, no, withhold, opts...))
	}
}

// witness is a hook at every gate that always answers the same: withhold about
// outputs, no about all else.
func witness(path string, no, withhold hooks.Action, opts ...hooks.Option) hooks.Hooks {
	const id, version = "witness", "1"
	seen := func(ctx context.Context, gate hooks.Gate, session, run string) error {
		return noteAsked(ctx, path, gate, session, run)
	}
	return hooks.Hooks{
		BeforeInput: hooks.Named(id, version, func(ctx context.Context, in hooks.BeforeInput) (hooks.BeforeInputResult, error) {
			return hooks.BeforeInputResult{Action: no}, seen(ctx, hooks.GateBeforeInput, in.SessionID, "-")
		}, opts...),
		BeforeRunStart: hooks.Named(id, version, func(ctx context.Context, in hooks.BeforeRunStart) (hooks.BeforeRunStartResult, error) {
			return hooks.BeforeRunStartResult{Action: no}, seen(ctx, hooks.GateBeforeRunStart, in.SessionID, in.RunID)
		}, opts...),
		TransformContext: hooks.Named(id, version, func(ctx context.Context, in hooks.TransformContext) (hooks.TransformContextResult, error) {
			return hooks.TransformContextResult{Action: no}, seen(ctx, hooks.GateTransformContext, in.SessionID, in.RunID)
		}, opts...),
		BeforeProviderHeaders: hooks.Named(id, version, func(ctx context.Context, in hooks.BeforeProviderHeaders) (hooks.BeforeProviderHeadersResult, error) {
			return hooks.BeforeProviderHeadersResult{Action: no}, seen(ctx, hooks.GateBeforeProviderHeaders, in.SessionID, in.RunID)
		}, opts...),
		BeforeProviderRequest: hooks.Named(id, version, func(ctx context.Context, in hooks.BeforeProviderRequest) (hooks.BeforeProviderRequestResult, error) {
			return hooks.BeforeProviderRequestResult{Action: no}, seen(ctx, hooks.GateBeforeProviderRequest, in.SessionID, in.RunID)
		}, opts...),
		AfterProviderResponse: hooks.Named(id, version, func(ctx context.Context, in hooks.AfterProviderResponse) (hooks.AfterProviderResponseResult, error) {
			return hooks.AfterProviderResponseResult{Action: no}, seen(ctx, hooks.GateAfterProviderResponse, in.SessionID, in.RunID)
		}, opts...),
		BeforeToolCall: hooks.Named(id, version, func(ctx context.Context, in hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
			return hooks.BeforeToolCallResult{Action: no}, seen(ctx, hooks.GateBeforeToolCall, in.SessionID, in.RunID)
		}, opts...),
		BeforeExecute: hooks.Named(id, version, func(ctx context.Context, in hooks.BeforeExecute) (hooks.BeforeExecuteResult, error) {
			return hooks.BeforeExecuteResult{Action: no}, seen(ctx, hooks.GateBeforeExecute, in.SessionID, in.RunID)
		}, opts...),
		AfterToolCall: hooks.Named(id, version, func(ctx context.Context, in hooks.AfterToolCall) (hooks.AfterToolCallResult, error) {
			return hooks.AfterToolCallResult{Action: withhold}, seen(ctx, hooks.GateAfterToolCall, in.SessionID, in.RunID)
		}, opts...),
	}
}

// noteAsked is one write, so lines of several processes do not mix.
func noteAsked(ctx context.Context, path string, gate hooks.Gate, session, run string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(f, "%d %s %s %s %s\n", os.Getpid(), gate, session, run, hooks.DecisionID(ctx)); err != nil {
		return err
	}
	return f.Close()
}

// asked is a line of the file: a process asked at a gate.
type asked struct {
	pid                    int
	gate                   hooks.Gate
	session, run, decision string
}

// askedOf are the lines about one session, in order.
func askedOf(t *testing.T, path, session string) (out []asked) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var a asked
		if _, err := fmt.Sscan(line, &a.pid, &a.gate, &a.session, &a.run, &a.decision); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if a.session == session {
			out = append(out, a)
		}
	}
	return out
}

// ruled is a row of the ledger.
type ruled struct {
	Decision string `db:"decision_id"`
	Gate     hooks.Gate
	Run      string `db:"run_id"`
	Worker   string `db:"worker_id"` // "" if it was none
}

// ledgerOf is a session's ledger.
func ledgerOf(t *testing.T, db *storetest.DB, session string) []ruled {
	t.Helper()
	rows, err := db.Pool.Query(t.Context(), `
		SELECT decision_id::text, gate, coalesce(run_id::text, '-') AS run_id, coalesce(worker_id::text, '') AS worker_id
		FROM agentd.hook_decisions WHERE session_id = $1 ORDER BY ledger_seq`, session)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[ruled])
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// askings is what the file and the ledger tell of one decision.
type askings struct {
	gate        hooks.Gate
	dead, alive int  // how often the killed process asked, and the others
	rows        int  // of the ledger
	inherited   bool // the row was there before anybody took over
}

var afterTheFact = []hooks.Gate{hooks.GateAfterToolCall, hooks.GateAfterProviderResponse}

// checkAskings holds every line against the ledger. A decision that was
// recorded when the process died was asked once; any other that it had asked
// for was asked again, under the same id. It returns them by id.
//
// The exceptions are a tool's output and a provider's answer, one that is lost
// cannot be looked at again, and what others are asked about at the gates of
// lost.
func checkAskings(t *testing.T, lines []asked, ledger []ruled, pid int, inherited func(ruled) bool, lost ...hooks.Gate) map[string]*askings {
	t.Helper()
	all := map[string]*askings{}
	for _, l := range lines {
		a := all[l.decision]
		if a == nil {
			a = &askings{gate: l.gate}
			all[l.decision] = a
		}
		if a.gate != l.gate || l.decision == "" {
			t.Errorf("%s is asked for at %s and at %s", l.decision, a.gate, l.gate)
		}
		if l.pid == pid {
			a.dead++
		} else {
			a.alive++
		}
	}
	for _, row := range ledger {
		a := all[row.Decision]
		if a == nil || a.gate != row.Gate {
			t.Errorf("the ledger has %+v, the hook saw %+v", row, a)
			continue
		}
		a.rows++
		a.inherited = inherited(row)
	}
	for id, a := range all {
		switch {
		case a.rows == 1 && a.inherited && a.dead+a.alive == 1:
		case a.rows == 1 && !a.inherited && a.dead <= 1 && a.alive == 1:
		case a.rows == 0 && a.dead == 1 && a.alive == 0 && slices.Contains(append(lost, afterTheFact...), a.gate):
		default:
			t.Errorf("%s: %+v", id, *a)
		}
	}
	return all
}
