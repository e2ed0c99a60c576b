package api_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

func (b *bundle) startRun(t *testing.T, req *agentdv1.StartRunRequest) (*agentdv1.StartRunResponse, error) {
	t.Helper()
	res, err := b.runs.StartRun(t.Context(), connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}

func TestStartRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.newSession(t)
	started, err := b.startRun(t, &agentdv1.StartRunRequest{SessionId: id, Text: "hi", Policy: "reject"})
	if err != nil {
		t.Fatal(err)
	}
	if uuid.Validate(started.GetRunId()) != nil || uuid.Validate(started.GetMessageId()) != nil ||
		uuid.Validate(started.GetAssistantMessageId()) != nil || started.GetAfter() != 1 || started.GetAlreadyStarted() {
		t.Errorf("got %v, want three ids and the cursor 1", started)
	}
	if e := b.events(t, id)[1]; e.Type != event.TypeMessageCreated || e.Seq != int64(started.GetAfter())+1 {
		t.Errorf("the first event behind the cursor is %v, want the message", e)
	}
	_, err = b.startRun(t, &agentdv1.StartRunRequest{SessionId: id, Text: "hi"})
	if d := wantError(t, err, connect.CodeAborted, "session_busy"); d.GetActiveRunId() != started.GetRunId() {
		t.Errorf("active_run_id %q, want %q", d.GetActiveRunId(), started.GetRunId())
	}
}

func TestStartRunRefusesWhatIsWrong(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.newSession(t)
	for _, policy := range []string{"roll back", "Reject"} {
		_, err := b.startRun(t, &agentdv1.StartRunRequest{SessionId: id, Text: "hi", Policy: policy})
		d := wantError(t, err, connect.CodeInvalidArgument, "invalid_argument")
		if d.GetField() != "policy" || !strings.Contains(err.Error(), policy) || !strings.Contains(err.Error(), "use one of reject, enqueue, interrupt, rollback") {
			t.Errorf("policy %s: field %q, %v, want the word and what is supported", policy, d.GetField(), err)
		}
	}
	long := strings.Repeat("k", 201)
	for field, req := range map[string]*agentdv1.StartRunRequest{
		"text":            {SessionId: id},
		"text ":           {SessionId: id, Text: " \n"},
		"text  ":          {SessionId: id, Text: strings.Repeat("x", 256<<10+1)},
		"agent":           {SessionId: id, Text: "hi", Agent: "nobody"},
		"agent ":          {SessionId: id, Text: "hi", Agent: long},
		"idempotency_key": {SessionId: id, Text: "hi", IdempotencyKey: long},
		"idempotency_key ": {
			SessionId: id, Text: "hi", IdempotencyKey: "a\x00",
		},
		"session_id": {Text: "hi"},
	} {
		_, err := b.startRun(t, req)
		if d := wantError(t, err, connect.CodeInvalidArgument, "invalid_argument"); d.GetField() != strings.TrimSpace(field) {
			t.Errorf("%s: field %q, %v", field, d.GetField(), err)
		}
	}
	for _, unknown := range []string{"nope", uuid.NewString()} {
		_, err := b.startRun(t, &agentdv1.StartRunRequest{SessionId: unknown, Text: "hi"})
		wantError(t, err, connect.CodeNotFound, "not_found")
	}
	if n := len(b.events(t, id)); n != 1 {
		t.Errorf("%d events, want only session.created", n)
	}
	_, err := b.startRun(t, &agentdv1.StartRunRequest{SessionId: id, Text: strings.Repeat("x", 2<<20)})
	if got := connect.CodeOf(err); got != connect.CodeResourceExhausted {
		t.Errorf("a body of 2 MiB: %v, want resource_exhausted", err)
	}
}

func TestStartRunNULInTextIsReplaced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.newSession(t)
	b.start(t, id, "a\x00b")
	res, err := b.sessions.ListMessages(t.Context(), connect.NewRequest(&agentdv1.ListMessagesRequest{SessionId: id}))
	if err != nil {
		t.Fatal(err)
	}
	if got := res.Msg.GetMessages()[0].GetParts()[0].GetText(); got != "a\uFFFDb" {
		t.Errorf("text %q, want the NUL replaced", got)
	}
}

func TestStartRunRepeatedWithAKeyIsOneRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.newSession(t)
	req := &agentdv1.StartRunRequest{SessionId: id, Text: "hi", IdempotencyKey: "k"}
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		answers []*agentdv1.StartRunResponse
	)
	for range 20 {
		wg.Go(func() {
			res, err := b.runs.StartRun(t.Context(), connect.NewRequest(req))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			answers = append(answers, res.Msg)
		})
	}
	wg.Wait()
	fresh := 0
	for _, a := range answers {
		if a.GetRunId() != answers[0].GetRunId() || a.GetMessageId() != answers[0].GetMessageId() ||
			a.GetAssistantMessageId() != answers[0].GetAssistantMessageId() || a.GetAfter() != answers[0].GetAfter() {
			t.Errorf("got %v and %v, want the same ids", a, answers[0])
		}
		if !a.GetAlreadyStarted() {
			fresh++
		}
	}
	if len(answers) != 20 || fresh != 1 {
		t.Errorf("%d answers, %d of them fresh, want 20 and 1", len(answers), fresh)
	}
	_, err := b.startRun(t, &agentdv1.StartRunRequest{SessionId: id, Text: "other", IdempotencyKey: "k"})
	wantError(t, err, connect.CodeAlreadyExists, "idempotency_key_reused")
}

func TestGetRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sessionID, runID := b.finishedSession(t)
	get := func(id string) (*agentdv1.Run, error) {
		res, err := b.runs.GetRun(t.Context(), connect.NewRequest(&agentdv1.GetRunRequest{RunId: id}))
		if err != nil {
			return nil, err
		}
		return res.Msg.GetRun(), nil
	}
	r, err := get(runID)
	if err != nil {
		t.Fatal(err)
	}
	if r.GetSessionId() != sessionID || r.GetStatus() != agentdv1.RunStatus_RUN_STATUS_COMPLETED || r.GetAgent() != "main" ||
		r.GetReason() != "stop" || r.GetTurns() != 1 || r.GetInputTokens() != 3 || r.GetOutputTokens() != 5 ||
		r.GetCreatedAt() == nil || r.GetEndedAt() == nil || r.GetStartedAt() != nil || r.GetMessageId() == "" || r.GetAssistantMessageId() == "" {
		t.Errorf("got %v", r)
	}
	for _, id := range []string{"nope", uuid.NewString(), sessionID} {
		_, err := get(id)
		wantError(t, err, connect.CodeNotFound, "not_found")
	}
	_, err = get("")
	wantError(t, err, connect.CodeInvalidArgument, "invalid_argument")
}

func TestListRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var want []string
	sessionID := b.newSession(t)
	for range 3 {
		run := b.start(t, sessionID, "hi").RunID
		b.append(t, sessionID, run, 0, event.RunFailed{Reason: event.FailModel, Error: "no"})
		want = append(want, run)
	}
	slices.Reverse(want)
	_, elsewhere := b.finishedSession(t)
	list := func(req *agentdv1.ListRunsRequest) ([]string, string, error) {
		res, err := b.runs.ListRuns(t.Context(), connect.NewRequest(req))
		if err != nil {
			return nil, "", err
		}
		var ids []string
		for _, r := range res.Msg.GetRuns() {
			ids = append(ids, r.GetId())
		}
		return ids, res.Msg.GetNextPageToken(), nil
	}
	first, token, err := list(&agentdv1.ListRunsRequest{SessionId: sessionID, PageSize: 2})
	if err != nil || !slices.Equal(first, want[:2]) {
		t.Fatalf("%v, %v, want %v", first, err, want[:2])
	}
	rest, token, err := list(&agentdv1.ListRunsRequest{SessionId: sessionID, PageSize: 2, PageToken: token})
	if err != nil || !slices.Equal(rest, want[2:]) || token != "" {
		t.Errorf("%v, %q, %v, want %v and no more", rest, token, err, want[2:])
	}
	all, _, err := list(&agentdv1.ListRunsRequest{})
	if err != nil || !slices.Equal(all, append([]string{elsewhere}, want...)) {
		t.Errorf("of all sessions: %v, %v", all, err)
	}
	_, _, err = list(&agentdv1.ListRunsRequest{SessionId: uuid.NewString()})
	wantError(t, err, connect.CodeNotFound, "not_found")
	_, _, err = list(&agentdv1.ListRunsRequest{SessionId: "nope"})
	wantError(t, err, connect.CodeNotFound, "not_found")
	_, _, err = list(&agentdv1.ListRunsRequest{PageToken: uuid.NewString()})
	wantError(t, err, connect.CodeInvalidArgument, "bad_page_token")
	_, _, err = list(&agentdv1.ListRunsRequest{PageSize: -1})
	wantError(t, err, connect.CodeInvalidArgument, "invalid_argument")
}

func TestCancelRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cancel := func(id, reason string) error {
		_, err := b.runs.CancelRun(t.Context(), connect.NewRequest(&agentdv1.CancelRunRequest{RunId: id, Reason: reason}))
		return err
	}
	sessionID := b.newSession(t)
	runID := b.start(t, sessionID, "hi").RunID
	for range 2 {
		if err := cancel(runID, "changed my mind"); err != nil {
			t.Fatal(err)
		}
	}
	events := b.events(t, sessionID)
	if last := events[len(events)-1]; last.Type != event.TypeRunCancelled || !strings.Contains(string(last.Payload), "changed my mind") {
		t.Errorf("the last event is %v, want run.cancelled with the reason", last)
	}
	_, ended := b.finishedSession(t)
	wantError(t, cancel(ended, ""), connect.CodeFailedPrecondition, "run_ended")
	wantError(t, cancel(uuid.NewString(), ""), connect.CodeNotFound, "not_found")
	if d := wantError(t, cancel(runID, strings.Repeat("x", 1001)), connect.CodeInvalidArgument, "invalid_argument"); d.GetField() != "reason" {
		t.Errorf("field %q, want reason", d.GetField())
	}
}
