package store_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// approve parks a run, answers yes, and starts the call.
func approve(t *testing.T, log loop.Log) parked {
	t.Helper()
	p := park(t, log)
	arguments := safeArguments
	mustAppend(t, log, p.answer(t, log, event.DecisionApproved,
		encode(t, p.sessionID, p.runID, 0, event.RunQueued{Ticket: 2, Cause: "approval"})))
	mustAppend(t, log, appendOf(p.sessionID, headOf(t, log, p.sessionID).LastSeq,
		encode(t, p.sessionID, p.runID, 0, event.RunResumed{WorkerID: looptest.NewID(), Epoch: 2, Ticket: 2, Cause: event.ResumeApproval}),
		encode(t, p.sessionID, p.runID, 1, event.ToolStarted{CallID: p.asked, Attempt: 1, Arguments: &arguments, ArgumentsSHA256: digestOf(arguments)})))
	return p
}

// TestVerifyHoldsApprovalsToTheirBytes: who forges the log forges the
// projections with it, so that only the digests contradict each other.
func TestVerifyHoldsApprovalsToTheirBytes(t *testing.T) {
	t.Parallel()
	other := digestOf(proposedArguments)
	shown, digest := strings.ReplaceAll(safeArguments, `"`, `\"`), digestOf(safeArguments)
	forged := strings.ReplaceAll(proposedArguments, `"`, `\"`)
	in := func(kind event.Type, from, to string) string {
		return `UPDATE agentd.events SET payload = replace(payload::text, '` + from + `', '` + to + `')::json WHERE type = '` + string(kind) + `';`
	}
	for name, test := range map[string]struct {
		sql  string
		want []event.Type // whose digest is wrong
	}{
		"Nothing": {sql: `SELECT 1`},
		"ArgumentsOfTheRequest": {
			in(event.TypeApprovalRequested, shown, forged) + `UPDATE agentd.approvals SET arguments = '` + proposedArguments + `'`,
			[]event.Type{event.TypeApprovalRequested},
		},
		"DigestOfTheRequest": {
			in(event.TypeApprovalRequested, digest, other) + `UPDATE agentd.approvals SET arguments_sha256 = '` + other + `'`,
			[]event.Type{event.TypeApprovalRequested, event.TypeApprovalDecided, event.TypeToolStarted, event.TypeToolStarted},
		},
		"DigestOfTheAnswer": {in(event.TypeApprovalDecided, digest, other), []event.Type{event.TypeApprovalDecided}},
		"DigestOfTheStart":  {in(event.TypeToolStarted, digest, other), []event.Type{event.TypeToolStarted}},
		"ArgumentsOfTheStart": {
			in(event.TypeToolStarted, shown, forged) + `UPDATE agentd.tool_calls SET final_arguments = '` + proposedArguments + `' WHERE approval_id IS NOT NULL`,
			[]event.Type{event.TypeToolStarted},
		},
		"ArgumentsOfTheStartWithTheirDigest": {
			in(event.TypeToolStarted, shown, forged) + in(event.TypeToolStarted, digest, other) +
				`UPDATE agentd.tool_calls SET final_arguments = '` + proposedArguments + `' WHERE approval_id IS NOT NULL`,
			[]event.Type{event.TypeToolStarted, event.TypeToolStarted},
		},
		"NoDigestOfTheStart": {in(event.TypeToolStarted, digest, ""), []event.Type{event.TypeToolStarted}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t, storetest.Unverified)
			s := startStore(t, db, store.Options{Queue: jobs{}})
			p := approve(t, s)
			exec(t, db, `ALTER TABLE agentd.events DISABLE TRIGGER USER; `+test.sql)
			types := map[string]event.Type{}
			events, err := s.Events(limit(t), looptest.Tenant, p.sessionID, 0, 100)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				types[e.SessionID+"/"+strconv.FormatInt(e.Seq, 10)] = e.Type
			}
			var got []event.Type
			for _, d := range verify(t, db).Differences {
				if d.Table != "events" || d.Column != "payload arguments_sha256" || strings.HasPrefix(d.Want, d.Got) {
					t.Errorf("besides: %v", d)
				}
				got = append(got, types[d.Row])
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("wrong digests in %q, want %q", got, test.want)
			}
		})
	}
}
