package api_test

import (
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
)

func TestAHookAnswersOrRefusesAMessage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.withHooks(t)
	id := b.newSession(t)
	for range 2 {
		res, err := b.startRun(t, &agentdv1.StartRunRequest{SessionId: id, Text: "help", IdempotencyKey: "k"})
		if err != nil || !res.GetHandled() || res.GetReply() != "ask me anything" || res.GetRunId() != "" || res.GetMessageId() != "" {
			t.Errorf("handled: %v, %v", res, err)
		}
	}
	_, err := b.startRun(t, &agentdv1.StartRunRequest{SessionId: id, Text: "bad"})
	d := wantError(t, err, connect.CodePermissionDenied, "input_blocked")
	if d.GetBlocked().GetCode() != "rude" || d.GetBlocked().GetText() != "Be nice." || !strings.Contains(err.Error(), "Be nice.") {
		t.Errorf("blocked: %v, %v", d, err)
	}
	runs, err := b.runs.ListRuns(t.Context(), connect.NewRequest(&agentdv1.ListRunsRequest{SessionId: id}))
	if err != nil || len(runs.Msg.GetRuns()) != 0 {
		t.Errorf("runs: %v, %v", runs, err)
	}
}

func (b *bundle) decisions(t *testing.T, req *agentdv1.ListDecisionsRequest) []*agentdv1.Decision {
	t.Helper()
	var list []*agentdv1.Decision
	for {
		res, err := b.ledger.ListDecisions(t.Context(), connect.NewRequest(req))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, res.Msg.GetDecisions()...)
		if req.PageToken = res.Msg.GetNextPageToken(); req.GetPageToken() == "" {
			return list
		}
	}
}

func ofSession(id string) *agentdv1.ListDecisionsRequest {
	return &agentdv1.ListDecisionsRequest{Of: &agentdv1.ListDecisionsRequest_SessionId{SessionId: id}}
}

func ofRun(id string) *agentdv1.ListDecisionsRequest {
	return &agentdv1.ListDecisionsRequest{Of: &agentdv1.ListDecisionsRequest_RunId{RunId: id}}
}

func TestDecisionsOfARunAndOfASession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sessionID, runID, _ := b.waiting(t, b.withHooks(t))
	paged := ofSession(sessionID)
	paged.PageSize = 1
	all := b.decisions(t, paged)
	if len(all) != 3 {
		t.Fatalf("%d decisions, want 3: %v", len(all), all)
	}
	input, call := all[0], all[1]
	if input.GetGate() != "BeforeInput" || input.GetRunId() != "" || input.GetHookId() != "greeter" || input.GetHookVersion() != "3" ||
		input.GetAction() != "continue" || input.GetPrevHash() != strings.Repeat("0", 64) || input.GetLedgerSeq() != 1 {
		t.Errorf("about the message: %v", input)
	}
	if call.GetGate() != "BeforeToolCall" || call.GetRunId() != runID || call.GetTurn() != 1 || call.GetAction() != "transform" ||
		call.GetHookKind() != "go" || call.GetPhase() != "mutate" || call.GetPosition() != 1 || call.GetChainLength() != 1 ||
		!call.GetEffective() || call.GetOutcome() != "ok" || call.GetFailurePolicy() != "closed" || call.GetFailedOpen() ||
		call.GetReasonCode() != "loud" || call.GetReason() != "Louder." || call.GetAnnotationsJson() != `{"was":"{\"text\":\"hi\"}"}` ||
		patched(t, call.GetPatchJson()) != `{"text":"HI"}` || len(call.GetFieldsChanged()) != 1 || call.GetToolName() != toolName ||
		call.GetInputSha256() == call.GetOutputSha256() || call.GetInputBytes() == 0 || call.GetOutputBytes() == 0 ||
		call.GetPrevHash() != input.GetRowHash() || call.GetRowHash() == "" || call.GetHookSetDigest() != b.Asker.HookSet ||
		call.GetEventSeq() == 0 || call.GetEpoch() == 0 || call.GetWorkerId() == "" || call.GetDeadlineMs() != 2000 || call.GetAt() == nil ||
		call.GetSessionId() != sessionID || call.GetAttempt() != 1 || call.GetPayloadErased() {
		t.Errorf("about the call: %v", call)
	}
	if list := b.decisions(t, ofRun(runID)); len(list) != 2 || list[0].GetId() != call.GetId() {
		t.Errorf("of the run: %v", list)
	}
}

func TestDecisionsComeWithTheHooksThatMadeThemIfAskedFor(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sessionID, _, _ := b.waiting(t, b.withHooks(t))
	req := ofSession(sessionID)
	res, err := b.ledger.ListDecisions(t.Context(), connect.NewRequest(req))
	if err != nil || len(res.Msg.GetHooks()) != 0 {
		t.Errorf("without being asked for: %v, %v", res.Msg.GetHooks(), err)
	}
	req.WithHooks = true
	res, err = b.ledger.ListDecisions(t.Context(), connect.NewRequest(req))
	if err != nil || len(res.Msg.GetHooks()) != 2 {
		t.Fatalf("%v, %v; want one of each hook that decided", res.Msg.GetHooks(), err)
	}
	greeter, shout := res.Msg.GetHooks()[0], res.Msg.GetHooks()[1]
	if greeter.GetId() != "greeter" || greeter.GetGate() != "BeforeInput" || greeter.GetKind() != "rule" || greeter.GetVersion() != "3" || greeter.GetDigest() != "dd" ||
		greeter.GetText() != `{"id":"greeter"}` || greeter.GetOnFailure() != "closed" || greeter.GetTimeLimitUs() != 1000000 || greeter.GetShadow() ||
		greeter.GetPhase() != "mutate" || greeter.GetHookSetDigest() != b.Asker.HookSet || shout.GetId() != "shout" {
		t.Errorf("%v\n%v", greeter, shout)
	}
	b.brokenSets = true
	if _, err := b.ledger.ListDecisions(t.Context(), connect.NewRequest(req)); err == nil {
		t.Error("a set that cannot be read: no error")
	}
}

func TestDecisionsRefuseWhatIsWrong(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sessionID, runID := b.finishedSession(t)
	bad := func(req *agentdv1.ListDecisionsRequest, token string, size int32) *agentdv1.ListDecisionsRequest {
		req.PageToken, req.PageSize = token, size
		return req
	}
	for _, tt := range []struct {
		req    *agentdv1.ListDecisionsRequest
		code   connect.Code
		reason string
	}{
		{&agentdv1.ListDecisionsRequest{}, connect.CodeInvalidArgument, "invalid_argument"},
		{ofSession(""), connect.CodeInvalidArgument, "invalid_argument"},
		{ofRun(""), connect.CodeInvalidArgument, "invalid_argument"},
		{ofRun("nope"), connect.CodeNotFound, "not_found"},
		{ofRun(uuid.NewString()), connect.CodeNotFound, "not_found"},
		{ofSession(uuid.NewString()), connect.CodeNotFound, "not_found"},
		{bad(ofSession(sessionID), "nope", 0), connect.CodeInvalidArgument, "bad_page_token"},
		{bad(ofSession(sessionID), uuid.NewString(), 0), connect.CodeInvalidArgument, "bad_page_token"},
		{bad(ofRun(runID), uuid.NewString(), 0), connect.CodeInvalidArgument, "bad_page_token"},
		{bad(ofRun(uuid.NewString()), uuid.NewString(), 0), connect.CodeNotFound, "not_found"},
		{bad(ofRun(runID), "", -1), connect.CodeInvalidArgument, "invalid_argument"},
	} {
		_, err := b.ledger.ListDecisions(t.Context(), connect.NewRequest(tt.req))
		wantError(t, err, tt.code, tt.reason)
	}
	if list := b.decisions(t, ofRun(runID)); len(list) != 0 {
		t.Errorf("without hooks: %v", list)
	}
}
