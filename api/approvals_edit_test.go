package api_test

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
	"github.com/seed-2ca4966b/agentd/loop"
)

const edit = agentdv1.ApprovalDecision_APPROVAL_DECISION_EDIT

func sha(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func (b *bundle) approval(t *testing.T, id string) *agentdv1.Approval {
	t.Helper()
	res, err := b.approvalsClient.GetApproval(t.Context(), connect.NewRequest(&agentdv1.GetApprovalRequest{ApprovalId: id}))
	if err != nil {
		t.Fatal(err)
	}
	return res.Msg.GetApproval()
}

// TestAnEditShowsBothArgumentsAndWhatDiffers, and so does the question that a hook
// makes of it.
func TestAnEditShowsBothArgumentsAndWhatDiffers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	advance := b.withHooks(t)
	sessionID, runID, asked := b.waiting(t, advance)
	const given = "{ \"text\": \"Psst\", \"n\": 9007199254740993.0 }"
	req := &agentdv1.DecideApprovalRequest{
		ApprovalId: asked[0].ID, Decision: edit, Arguments: given, Reason: "quietly", ArgumentsSha256: asked[0].ArgumentsSHA256,
	}
	got, err := b.decide(t, req)
	if err != nil {
		t.Fatal(err)
	}
	const patch = `[{"op":"replace","path":"/text","value":"Psst"},{"op":"add","path":"/n","value":9007199254740993.0}]`
	if got.GetStatus() != agentdv1.ApprovalStatus_APPROVAL_STATUS_EDITED || got.GetArguments() != `{"text":"HI"}` || got.GetEditedArguments() != given ||
		got.GetEditedSha256() != sha(given) || got.GetEditPatchJson() != patch || got.GetDecidedBy().GetId() != "local" || got.GetDecisionReason() != "quietly" || got.GetMayDecide() {
		t.Errorf("edited: %v", got)
	}
	if again, err := b.decide(t, req); err != nil || !proto.Equal(again, got) {
		t.Errorf("the same again: %v, %v", again, err)
	}
	for name, other := range map[string]*agentdv1.DecideApprovalRequest{
		"another edit": {ApprovalId: asked[0].ID, Decision: edit, Arguments: `{}`},
		"a yes":        {ApprovalId: asked[0].ID, Decision: approve},
	} {
		_, err := b.decide(t, other)
		if d := wantError(t, err, connect.CodeAborted, "already_decided").GetDecided(); d.GetDecision() != "edited" || d.GetBy().GetId() != "local" {
			t.Errorf("%s: told of %v", name, d)
		}
	}
	if _, err := b.decide(t, &agentdv1.DecideApprovalRequest{ApprovalId: asked[1].ID, Decision: deny}); err != nil {
		t.Fatal(err)
	}
	advance(t, sessionID, runID, 2)
	list, err := b.approvals(t.Context(), tenant, sessionID)
	if err != nil || len(list) != 3 {
		t.Fatalf("%d approvals, %v; want one more", len(list), err)
	}
	second := b.approval(t, list[0].ID)
	if second.GetStatus() != agentdv1.ApprovalStatus_APPROVAL_STATUS_PENDING || second.GetArguments() != `{"text":"HI"}` || second.GetChangedFrom() != given ||
		second.GetChangePatchJson() != `[{"op":"remove","path":"/n"},{"op":"replace","path":"/text","value":"HI"}]` || second.GetRequestedBy() != "BeforeToolCall" || !second.GetMayDecide() {
		t.Errorf("asked again: %v", second)
	}
	if first := b.approval(t, asked[0].ID); !proto.Equal(first, got) {
		t.Errorf("the first is %v now, was %v", first, got)
	}
}

func TestEditsThatAreWrongAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sessionID, _, asked := b.waiting(t, b.withHooks(t))
	before := len(b.events(t, sessionID))
	for name, req := range map[string]*agentdv1.DecideApprovalRequest{
		"no arguments":          {Decision: edit},
		"no JSON":               {Decision: edit, Arguments: `{"text"`},
		"no object":             {Decision: edit, Arguments: `"HI"`},
		"what was asked":        {Decision: edit, Arguments: `{"text":"HI"}`},
		"too long":              {Decision: edit, Arguments: `{"text":"` + strings.Repeat("x", loop.MaxArguments) + `"}`},
		"a yes with arguments":  {Decision: approve, Arguments: `{"text":"ho"}`},
		"a no with arguments":   {Decision: deny, Arguments: `{"text":"ho"}`},
		"nothing and arguments": {Arguments: `{"text":"ho"}`},
	} {
		req.ApprovalId = asked[0].ID
		_, err := b.decide(t, req)
		if d := wantError(t, err, connect.CodeInvalidArgument, "invalid_argument"); d.GetField() != "arguments" {
			t.Errorf("%s: field %q", name, d.GetField())
		}
	}
	// Arguments are bytes that somebody answers for: they are not made valid.
	body := `{"approvalId":"` + asked[0].ID + `","decision":"APPROVAL_DECISION_EDIT","arguments":"{\"text\":\"\ud83d\"}"}`
	res, err := b.client.Post(b.url+agentdv1connect.ApprovalServiceDecideApprovalProcedure, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	if said, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusBadRequest || !strings.Contains(string(said), "arguments: is not valid text") {
		t.Errorf("half a surrogate pair: %d, %s", res.StatusCode, said)
	}
	if n := len(b.events(t, sessionID)); n != before {
		t.Errorf("%d events were stored", n-before)
	}
}

// TestAnApprovalForOthersIsShownAndNotTaken: the caller is told whom it is for.
func TestAnApprovalForOthersIsShownAndNotTaken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.approvers = []string{"ops-*"}
	sessionID, _, asked := b.waiting(t, b.withHooks(t))
	before := len(b.events(t, sessionID))
	if a := b.approval(t, asked[0].ID); a.GetMayDecide() || len(a.GetApprovers()) != 1 || a.GetApprovers()[0] != "ops-*" {
		t.Errorf("shown %v", a)
	}
	for _, decision := range []agentdv1.ApprovalDecision{approve, deny, edit} {
		req := &agentdv1.DecideApprovalRequest{ApprovalId: asked[0].ID, Decision: decision}
		if decision == edit {
			req.Arguments = `{"text":"ho"}`
		}
		_, err := b.decide(t, req)
		wantError(t, err, connect.CodePermissionDenied, "not_an_approver")
		if !strings.Contains(err.Error(), "the approval is for ops-* to decide, and not for principal local") {
			t.Errorf("told %v", err)
		}
	}
	if n := len(b.events(t, sessionID)); n != before {
		t.Errorf("%d events were stored", n-before)
	}
}
