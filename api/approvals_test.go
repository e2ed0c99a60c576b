package api_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/seed-2ca4966b/agentd/api"
	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

const (
	approve = agentdv1.ApprovalDecision_APPROVAL_DECISION_APPROVE
	deny    = agentdv1.ApprovalDecision_APPROVAL_DECISION_DENY
)

func (b *bundle) decide(t *testing.T, req *agentdv1.DecideApprovalRequest) (*agentdv1.Approval, error) {
	t.Helper()
	res, err := b.approvalsClient.DecideApproval(t.Context(), connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	return res.Msg.GetApproval(), nil
}

func TestApprovalsAreListedAndDecidedOneByOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sessionID, runID, asked := b.waiting(t, b.withHooks(t))
	other, otherRun, _ := b.waiting(t, b.withHooks(t))

	list := func(req *agentdv1.ListApprovalsRequest) []string {
		t.Helper()
		var ids []string
		for {
			res, err := b.approvalsClient.ListApprovals(t.Context(), connect.NewRequest(req))
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range res.Msg.GetApprovals() {
				ids = append(ids, a.GetId())
			}
			if req.PageToken = res.Msg.GetNextPageToken(); req.GetPageToken() == "" {
				return ids
			}
		}
	}
	first, second := asked[0].ID, asked[1].ID
	if got := list(&agentdv1.ListApprovalsRequest{SessionId: sessionID, PageSize: 1}); !slices.Equal(got, []string{second, first}) {
		t.Errorf("of the session: %v, want %v and %v", got, second, first)
	}
	if got := list(&agentdv1.ListApprovalsRequest{RunId: runID}); !slices.Equal(got, []string{second, first}) {
		t.Errorf("of the run: %v", got)
	}
	if got := list(&agentdv1.ListApprovalsRequest{PendingOnly: true}); len(got) != 4 {
		t.Errorf("of all: %v, want 4", got)
	}

	run, err := b.runs.GetRun(t.Context(), connect.NewRequest(&agentdv1.GetRunRequest{RunId: runID}))
	if err != nil || run.Msg.GetRun().GetStatus() != agentdv1.RunStatus_RUN_STATUS_WAITING {
		t.Errorf("run: %v, %v, want it to wait", run, err)
	}
	got, err := b.approvalsClient.GetApproval(t.Context(), connect.NewRequest(&agentdv1.GetApprovalRequest{ApprovalId: first}))
	if err != nil {
		t.Fatal(err)
	}
	if a := got.Msg.GetApproval(); a.GetStatus() != agentdv1.ApprovalStatus_APPROVAL_STATUS_PENDING || a.GetToolName() != toolName ||
		a.GetArguments() != `{"text":"HI"}` || a.GetArgumentsSha256() != asked[0].ArgumentsSHA256 || a.GetRequestedBy() != "permission" || a.GetKind() != agentdv1.ApprovalKind_APPROVAL_KIND_CALL ||
		a.GetSessionId() != sessionID || a.GetRunId() != runID || a.GetTurn() != 1 || a.GetCallId() == "" ||
		a.GetRequestedAt() == nil || a.GetDecidedAt() != nil || a.GetDecidedBy() != nil || a.GetReason() != "Louder." {
		t.Errorf("pending: %v", a)
	}

	denied, err := b.decide(t, &agentdv1.DecideApprovalRequest{ApprovalId: second, Decision: deny, Reason: "not today"})
	if err != nil || denied.GetStatus() != agentdv1.ApprovalStatus_APPROVAL_STATUS_DENIED || denied.GetDecidedBy().GetId() != "local" ||
		denied.GetDecisionReason() != "not today" || denied.GetDecidedAt() == nil {
		t.Errorf("denied: %v, %v", denied, err)
	}
	if got := list(&agentdv1.ListApprovalsRequest{SessionId: sessionID, PendingOnly: true}); !slices.Equal(got, []string{first}) {
		t.Errorf("open: %v, want only %v", got, first)
	}
	approved, err := b.decide(t, &agentdv1.DecideApprovalRequest{
		ApprovalId: first, Decision: approve, ArgumentsSha256: strings.ToUpper(asked[0].ArgumentsSHA256),
	})
	if err != nil || approved.GetStatus() != agentdv1.ApprovalStatus_APPROVAL_STATUS_APPROVED {
		t.Errorf("approved: %v, %v", approved, err)
	}

	if _, err := b.runs.CancelRun(t.Context(), connect.NewRequest(&agentdv1.CancelRunRequest{RunId: otherRun})); err != nil {
		t.Fatal(err)
	}
	res, err := b.approvalsClient.ListApprovals(t.Context(), connect.NewRequest(&agentdv1.ListApprovalsRequest{SessionId: other}))
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range res.Msg.GetApprovals() {
		if a.GetStatus() != agentdv1.ApprovalStatus_APPROVAL_STATUS_CANCELLED {
			t.Errorf("the run is cancelled, and its approval %v", a)
		}
	}
	_, err = b.decide(t, &agentdv1.DecideApprovalRequest{ApprovalId: res.Msg.GetApprovals()[0].GetId(), Decision: approve})
	if d := wantError(t, err, connect.CodeAborted, "already_decided").GetDecided(); d.GetDecision() != "cancelled" {
		t.Errorf("decided %v, want cancelled", d)
	}
}

func TestOneApprovalHasOneAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sessionID, _, asked := b.waiting(t, b.withHooks(t))
	type answer struct {
		decision agentdv1.ApprovalDecision
		approval *agentdv1.Approval
		err      error
	}
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		answers []answer
	)
	for i := range 40 {
		decision := approve
		if i%2 == 1 {
			decision = deny
		}
		wg.Go(func() {
			a, err := b.decide(t, &agentdv1.DecideApprovalRequest{ApprovalId: asked[0].ID, Decision: decision})
			mu.Lock()
			defer mu.Unlock()
			answers = append(answers, answer{decision, a, err})
		})
	}
	wg.Wait()
	stored, err := b.GetApproval(t.Context(), tenant, asked[0].ID)
	if err != nil || stored.Decision == "" {
		t.Fatalf("%+v, %v", stored, err)
	}
	won := deny
	if stored.Decision == event.DecisionApproved {
		won = approve
	}
	var body *agentdv1.Approval
	for _, a := range answers {
		if a.decision != won {
			d := wantError(t, a.err, connect.CodeAborted, "already_decided")
			if e := d.GetDecided(); e.GetDecision() != string(stored.Decision) || e.GetBy().GetId() != "local" || !e.GetAt().AsTime().Equal(*stored.DecidedAt) {
				t.Errorf("the one who was late is told %v, want %+v", e, stored)
			}
			continue
		}
		if a.err != nil {
			t.Errorf("repeated: %v", a.err)
			continue
		}
		if body == nil {
			body = a.approval
		}
		if !proto.Equal(body, a.approval) {
			t.Errorf("two answers to the same: %v and %v", body, a.approval)
		}
	}
	decided := 0
	for _, e := range b.events(t, sessionID) {
		if e.Type == event.TypeApprovalDecided {
			decided++
		}
	}
	if decided != 1 {
		t.Errorf("%d decisions", decided)
	}
}

func TestApprovalsRefuseWhatIsWrong(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sessionID, runID, asked := b.waiting(t, b.withHooks(t))
	for field, req := range map[string]*agentdv1.DecideApprovalRequest{
		"approval_id":      {Decision: approve},
		"decision":         {ApprovalId: asked[0].ID},
		"reason":           {ApprovalId: asked[0].ID, Decision: deny, Reason: strings.Repeat("x", 1001)},
		"arguments_sha256": {ApprovalId: asked[0].ID, Decision: approve, ArgumentsSha256: strings.Repeat("0", 64)},
	} {
		_, err := b.decide(t, req)
		if d := wantError(t, err, connect.CodeInvalidArgument, "invalid_argument"); d.GetField() != field {
			t.Errorf("%s: field %q", field, d.GetField())
		}
	}
	for _, outcome := range []agentdv1.ApprovalDecision{agentdv1.ApprovalDecision_APPROVAL_DECISION_HAPPENED, agentdv1.ApprovalDecision_APPROVAL_DECISION_DID_NOT_HAPPEN} {
		_, err := b.decide(t, &agentdv1.DecideApprovalRequest{ApprovalId: asked[0].ID, Decision: outcome})
		if d := wantError(t, err, connect.CodeInvalidArgument, "invalid_argument"); d.GetField() != "decision" {
			t.Errorf("%s: field %q", outcome, d.GetField())
		}
	}
	_, err := b.decide(t, &agentdv1.DecideApprovalRequest{ApprovalId: asked[0].ID, Decision: 17})
	wantError(t, err, connect.CodeInvalidArgument, "invalid_argument")
	for _, id := range []string{"nope", uuid.NewString(), runID} {
		_, err := b.decide(t, &agentdv1.DecideApprovalRequest{ApprovalId: id, Decision: approve})
		wantError(t, err, connect.CodeNotFound, "not_found")
		_, err = b.approvalsClient.GetApproval(t.Context(), connect.NewRequest(&agentdv1.GetApprovalRequest{ApprovalId: id}))
		wantError(t, err, connect.CodeNotFound, "not_found")
	}
	_, err = b.approvalsClient.GetApproval(t.Context(), connect.NewRequest(&agentdv1.GetApprovalRequest{}))
	wantError(t, err, connect.CodeInvalidArgument, "invalid_argument")
	for reason, req := range map[string]*agentdv1.ListApprovalsRequest{
		"not_found":         {SessionId: "nope"},
		"not_found ":        {RunId: "nope"},
		"not_found  ":       {SessionId: uuid.NewString()},
		"not_found   ":      {RunId: uuid.NewString(), PageToken: uuid.NewString()},
		"bad_page_token":    {PageToken: uuid.NewString()},
		"bad_page_token ":   {PageToken: "nope"},
		"bad_page_token  ":  {SessionId: sessionID, PageToken: uuid.NewString()},
		"bad_page_token   ": {RunId: runID, PageToken: uuid.NewString()},
	} {
		_, err := b.approvalsClient.ListApprovals(t.Context(), connect.NewRequest(req))
		code := connect.CodeNotFound
		if strings.HasPrefix(reason, "bad") {
			code = connect.CodeInvalidArgument
		}
		wantError(t, err, code, strings.TrimSpace(reason))
	}
	open, err := b.ListApprovals(t.Context(), tenant, loop.ApprovalFilter{SessionID: sessionID, PendingOnly: true}, loop.Page{Limit: 9})
	if err != nil || len(open) != 2 {
		t.Errorf("%d approvals are open, %v, want both", len(open), err)
	}
}

func TestAReasonThatIsNoTextIsMadeValid(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sessionID, _, asked := b.waiting(t, b.withHooks(t))
	body := `{"approvalId":"` + asked[0].ID + `","decision":"APPROVAL_DECISION_DENY","reason":"no\ud83d"}`
	res, err := b.client.Post(b.url+agentdv1connect.ApprovalServiceDecideApprovalProcedure, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	events := b.events(t, sessionID)
	payload := string(events[len(events)-1].Payload)
	if res.StatusCode != http.StatusOK || !strings.Contains(payload, "\"reason\":\"no\uFFFD\"") || !strings.Contains(payload, `"sanitized":true`) {
		t.Errorf("status %d, the event says %s", res.StatusCode, payload)
	}
}

func TestAStreamUntilIdleEndsWhenPeopleAreWaitedFor(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config, _ *http.Server) { c.Heartbeat = time.Hour })
	advance := b.withHooks(t)
	sessionID := b.newSession(t)
	runID := b.start(t, sessionID, "go").RunID
	stream := readFrames(t, b.get(t, eventsPath(sessionID, "?until=idle"), nil).body)
	advance(t, sessionID, runID, 1)
	frames := stream.rest()
	newest := b.events(t, sessionID)
	if len(frames) != len(newest) || newest[len(newest)-1].Type != event.TypeRunSuspended {
		t.Fatalf("%d frames of %d events, the last is %s", len(frames), len(newest), newest[len(newest)-1].Type)
	}
	if res := b.get(t, eventsPath(sessionID, "?until=idle"), lastID(int64(len(newest)))); res.status != http.StatusNoContent {
		t.Errorf("nothing is left: status %d, want 204", res.status)
	}
	asked, err := b.approvals(t.Context(), tenant, sessionID)
	if err != nil {
		t.Fatal(err)
	}
	// One of two answers leaves the run waiting.
	if _, err := b.decide(t, &agentdv1.DecideApprovalRequest{ApprovalId: asked[0].ID, Decision: approve}); err != nil {
		t.Fatal(err)
	}
	if n := len(readFrames(t, b.get(t, eventsPath(sessionID, "?until=idle"), lastID(int64(len(newest)))).body).rest()); n != 1 {
		t.Errorf("%d frames, want the answer alone", n)
	}
	if _, err := b.decide(t, &agentdv1.DecideApprovalRequest{ApprovalId: asked[1].ID, Decision: approve}); err != nil {
		t.Fatal(err)
	}
	stream = readFrames(t, b.get(t, eventsPath(sessionID, "?until=idle"), lastID(int64(len(newest)))).body)
	advance(t, sessionID, runID, 2)
	frames = stream.rest()
	newest = b.events(t, sessionID)
	if last := newest[len(newest)-1]; last.Type != event.TypeRunCompleted || frames[len(frames)-1].id != last.Seq {
		t.Errorf("the last event is %s, the last frame %d of %d", last.Type, frames[len(frames)-1].id, last.Seq)
	}
}
