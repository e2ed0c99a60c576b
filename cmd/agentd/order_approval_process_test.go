package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// rolesVariable names the file to which the hooks of the tool book write.
const rolesVariable = "AGENTD_TEST_ROLES"

const toolBook = "book"

func init() {
	if path := os.Getenv(rolesVariable); path != "" {
		for i := range len(roles) {
			extraHooks = extraHooks.Then(hooks.Hooks{BeforeToolCall: hooks.Named(fmt.Sprint("role-", i+1), "1", roleHook(path, i))})
		}
		extraTools = append(extraTools, bookTool(os.Getenv(effectsVariable)))
	}
}

// roles are what a hook may be there for: M rewrites the zone, N says nothing,
// A wants a person to decide, D denies UTC.
const roles = "MNAD"

// booking are the arguments of the tool.
type booking struct {
	// Order has the role of each hook, the first one's first: so one process
	// has hooks in every order.
	Order string `json:"order"`
	Zone  string `json:"zone"`
}

// roleHook is the ith hook of the chain.
func roleHook(path string, i int) hooks.BeforeToolCallFunc {
	return func(ctx context.Context, in hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
		var b booking
		if err := json.Unmarshal([]byte(in.Call.Arguments), &b); err != nil {
			return hooks.BeforeToolCallResult{}, err
		}
		if err := noteAsked(ctx, path, hooks.GateBeforeToolCall, in.SessionID, in.RunID); err != nil {
			return hooks.BeforeToolCallResult{}, err
		}
		out := hooks.BeforeToolCallResult{Action: hooks.ActionContinue}
		switch role := b.Order[i]; {
		case role == 'M':
			arguments := strings.Replace(in.Call.Arguments, b.Zone, "UTC", 1)
			out.Action, out.Arguments = hooks.ActionTransform, &arguments
		case role == 'A':
			out.Action, out.Reason = hooks.ActionAsk, hooks.Reason{Code: "who_books", Text: "Somebody has to say yes."}
		case role == 'D' && b.Zone == "UTC":
			out.Action, out.Reason = hooks.ActionBlock, hooks.Reason{Code: "utc", Text: "Not in UTC."}
		}
		return out, nil
	}
}

// bookTool answers with the arguments that it ran with.
func bookTool(path string) loop.Tool {
	return looptest.Tool{Name: toolBook, Run: func(_ context.Context, in loop.ToolInput) (loop.ToolOutput, error) {
		return loop.ToolOutput{Content: string(in.Arguments)}, note(path, noteEffect, in)
	}}
}

// orders are all orders of the letters.
func orders(letters string) []string {
	if letters == "" {
		return []string{""}
	}
	var out []string
	for i := range len(letters) {
		for _, rest := range orders(letters[:i] + letters[i+1:]) {
			out = append(out, letters[i:i+1]+rest)
		}
	}
	return out
}

// TestHooksInEveryOrderHaveTheSameSayAfterAKill: a call that is rewritten and
// asked about before the process dies runs in another one as it was rewritten,
// and no hook is asked again. One that is denied stays denied.
func TestHooksInEveryOrderHaveTheSameSayAfterAKill(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	file := filepath.Join(f.dir, "asked")
	f.env = append(f.env, rolesVariable+"="+file)
	first := f.add(t)
	before := f.bookAll(t, first)
	f.kill(t, first)
	second := f.add(t)
	// The same without an interruption.
	whole := f.bookAll(t, second)
	for _, b := range slices.Concat(before, whole) {
		b.asked = askedOf(t, file, b.session)
		f.approveBooked(t, second, b)
	}
	for i, b := range before {
		f.checkBooked(t, b)
		f.checkBooked(t, whole[i])
		if again := askedOf(t, file, b.session); !slices.Equal(again, b.asked) {
			t.Errorf("%s: asked %v, and later %v", b.order, b.asked, again)
		}
		said, saidOfWhole := saidOf(t, f.db, b.session), saidOf(t, f.db, whole[i].session)
		if !slices.Equal(said, saidOfWhole) || len(said) != len(b.asked) {
			t.Errorf("%s: %d calls of hooks\n%s\nwithout a kill\n%s", b.order, len(b.asked), said, saidOfWhole)
		}
	}
	f.verify(t)
}

// booked is a run that books in some order.
type booked struct {
	order, session, run string
	asked               []asked // before anybody said yes
}

// denied: whoever denies UTC stands behind the one who rewrites to it.
func (b *booked) denied() bool { return strings.Index(b.order, "D") > strings.Index(b.order, "M") }

func (b *booked) rewritten() string { return `{"order": "` + b.order + `", "zone": "UTC"}` }

// bookAll returns when each run waits, or is at its end.
func (f *fleet) bookAll(t *testing.T, at *server) (all []*booked) {
	t.Helper()
	for _, order := range orders(roles) {
		b := &booked{order: order, session: newSession(t, at)}
		b.run, _ = startRun(t, at, b.session, toolBook+" "+order)
		all = append(all, b)
	}
	for _, b := range all {
		want := "waiting"
		if b.denied() {
			want = "completed"
		}
		status := awaitRow(t, f.db, fmt.Sprintf(`
			SELECT status FROM agentd.runs WHERE id = '%s' AND status IN ('waiting', 'completed', 'failed')`, b.run))
		if status != want {
			t.Fatalf("%s: the run is %s, want %s", b.order, status, want)
		}
	}
	return all
}

// approveBooked says yes to what a person is shown, if anybody is asked.
func (f *fleet) approveBooked(t *testing.T, at *server, b *booked) {
	t.Helper()
	if b.denied() {
		return
	}
	client := agentdv1connect.NewApprovalServiceClient(freshClient(), at.url)
	res, err := client.GetApproval(t.Context(), connect.NewRequest(&agentdv1.GetApprovalRequest{ApprovalId: f.pending(t, b.run)}))
	if err != nil {
		t.Fatal(err)
	}
	a := res.Msg.GetApproval()
	if a.GetArguments() != b.rewritten() || a.GetRequestedBy() != string(hooks.GateBeforeToolCall) || a.GetReason() != "Somebody has to say yes." {
		t.Errorf("%s: the person is shown %v", b.order, a)
	}
	_, err = client.DecideApproval(t.Context(), connect.NewRequest(&agentdv1.DecideApprovalRequest{
		ApprovalId: a.GetId(), Decision: agentdv1.ApprovalDecision_APPROVAL_DECISION_APPROVE, ArgumentsSha256: a.GetArgumentsSha256(),
	}))
	if err != nil {
		t.Fatal(err)
	}
}

// checkBooked looks at what became of the call.
func (f *fleet) checkBooked(t *testing.T, b *booked) {
	t.Helper()
	if status := f.awaitEnd(t, b.run); status != "completed" {
		t.Errorf("%s: the run is %s", b.order, status)
	}
	facts := ofRun(checkSession(t, f, b.session), b.run)
	checkRun(t, facts)
	ran, result := len(effects(t, f.effects, b.run)), only[event.ToolResult](t, facts)
	if b.denied() {
		if want := "This call was blocked and not run: Not in UTC."; ran != 0 || result.Reason != hooks.ReasonBlocked || result.Content != want {
			t.Errorf("%s: denied, and it ran %d times with %+v", b.order, ran, result)
		}
		return
	}
	if ran != 1 || result.IsError || result.Content != b.rewritten() {
		t.Errorf("%s: approved, and it ran %d times with %+v", b.order, ran, result)
	}
}

// saidOf is what the ledger has of BeforeToolCall, without what is another in
// every run.
func saidOf(t *testing.T, db *storetest.DB, session string) []string {
	t.Helper()
	rows, err := db.Pool.Query(t.Context(), `
		SELECT concat_ws(' ', position, chain_length, hook_id, action, outcome, reason_code, fields_changed, 'effective', effective)
		FROM agentd.hook_decisions WHERE session_id = $1 AND gate = 'BeforeToolCall' ORDER BY ledger_seq`, session)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return list
}
