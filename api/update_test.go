package api_test

import (
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

const updateSession = "/agentd.v1.SessionService/UpdateSession"

func (b *bundle) create(t *testing.T, req *agentdv1.CreateSessionRequest) string {
	t.Helper()
	res, err := b.sessions.CreateSession(t.Context(), connect.NewRequest(req))
	if err != nil {
		t.Fatal(err)
	}
	return res.Msg.GetSessionId()
}

func (b *bundle) update(t *testing.T, req *agentdv1.UpdateSessionRequest) (*agentdv1.Session, error) {
	t.Helper()
	res, err := b.sessions.UpdateSession(t.Context(), connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	return res.Msg.GetSession(), nil
}

func TestWhatAClientSaysOfASessionIsKeptAndChanged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.create(t, &agentdv1.CreateSessionRequest{
		ExternalId: "e", Title: "Trip to Oslo", User: "ada", Metadata: map[string]string{"a": "1", "b": "2"},
	})
	want := func(s *agentdv1.Session, title string, metadata map[string]string, seq uint64) {
		t.Helper()
		if s.GetTitle() != title || !maps.Equal(s.GetMetadata(), metadata) || s.GetUser() != "ada" || s.GetLastSeq() != seq || s.GetExternalId() != "e" {
			t.Errorf("got %v", s)
		}
	}
	got, err := b.sessions.GetSession(t.Context(), connect.NewRequest(&agentdv1.GetSessionRequest{Name: &agentdv1.GetSessionRequest_SessionId{SessionId: id}}))
	if err != nil {
		t.Fatal(err)
	}
	want(got.Msg.GetSession(), "Trip to Oslo", map[string]string{"a": "1", "b": "2"}, 1)

	for _, step := range []struct {
		change   *agentdv1.UpdateSessionRequest
		title    string
		metadata map[string]string
		seq      uint64
	}{
		{&agentdv1.UpdateSessionRequest{Title: new("Trip to Rome")}, "Trip to Rome", map[string]string{"a": "1", "b": "2"}, 2},
		{&agentdv1.UpdateSessionRequest{Metadata: map[string]string{"c": "3"}, RemoveMetadata: []string{"a", "never"}}, "Trip to Rome", map[string]string{"b": "2", "c": "3"}, 3},
		{&agentdv1.UpdateSessionRequest{}, "Trip to Rome", map[string]string{"b": "2", "c": "3"}, 3},
		{&agentdv1.UpdateSessionRequest{Title: new("Trip to Rome"), RemoveMetadata: []string{"a"}}, "Trip to Rome", map[string]string{"b": "2", "c": "3"}, 3},
		{&agentdv1.UpdateSessionRequest{Title: new(""), RemoveMetadata: []string{"b", "c"}}, "", nil, 4},
	} {
		step.change.SessionId = id
		s, err := b.update(t, step.change)
		if err != nil {
			t.Fatal(err)
		}
		want(s, step.title, step.metadata, step.seq)
	}
	if got := b.events(t, id)[1]; got.Type != event.TypeSessionUpdated || got.Actor.ID != "local" {
		t.Errorf("got %v, want session.updated by local", got)
	}
}

func TestUpdateSessionRefusesWhatIsWrong(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.newSession(t)
	many := map[string]string{}
	for range 17 {
		many[uuid.NewString()] = ""
	}
	for field, req := range map[string]*agentdv1.UpdateSessionRequest{
		"session_id":      {},
		"title":           {SessionId: id, Title: new(strings.Repeat("ä", 201))},
		"metadata":        {SessionId: id, Metadata: many},
		"metadata/key":    {SessionId: id, Metadata: map[string]string{strings.Repeat("k", 65): ""}},
		"metadata/value":  {SessionId: id, Metadata: map[string]string{"k": strings.Repeat("v", 513)}},
		"remove_metadata": {SessionId: id, Metadata: map[string]string{"k": "v"}, RemoveMetadata: []string{"j", "k"}},
	} {
		_, err := b.update(t, req)
		if d := wantError(t, err, connect.CodeInvalidArgument, "invalid_argument"); d.GetField() != strings.Split(field, "/")[0] {
			t.Errorf("%s: field %q, %v", field, d.GetField(), err)
		}
	}
	for _, unknown := range []string{"nope", uuid.NewString()} {
		_, err := b.update(t, &agentdv1.UpdateSessionRequest{SessionId: unknown, Title: new("x")})
		wantError(t, err, connect.CodeNotFound, "not_found")
	}
	for field, req := range map[string]*agentdv1.CreateSessionRequest{
		"title": {Title: strings.Repeat("ä", 201)}, "user": {User: strings.Repeat("u", 201)}, "metadata": {Metadata: many}, "user/NUL": {User: "a\x00"},
	} {
		_, err := b.sessions.CreateSession(t.Context(), connect.NewRequest(req))
		if d := wantError(t, err, connect.CodeInvalidArgument, "invalid_argument"); d.GetField() != strings.Split(field, "/")[0] {
			t.Errorf("%s: field %q, %v", field, d.GetField(), err)
		}
	}
	if n := len(b.events(t, id)); n != 1 {
		t.Errorf("%d events, want only session.created", n)
	}
}

func TestTitlesAndValuesAreMadeValidAndKeysAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.newSession(t)
	body := `{"sessionId":"` + id + `","title":"half \ud83d","metadata":{"k":"` + "\xff" + `"}}`
	if res := b.post(t, updateSession, body); res.status != 200 {
		text, _ := io.ReadAll(res.body)
		t.Fatalf("status %d, %s", res.status, text)
	}
	u := payload[event.SessionUpdated](t, b.events(t, id), event.TypeSessionUpdated)
	if *u.Title != "half \uFFFD" || *u.Metadata["k"] != "\uFFFD" || !u.Sanitized {
		t.Errorf("%+v, want it sanitized", u)
	}
	for field, body := range map[string]string{
		"metadata":        `{"sessionId":"` + id + `","metadata":{"\ud83d":"v"}}`,
		"remove_metadata": `{"sessionId":"` + id + `","removeMetadata":["k","\ud83d"]}`,
	} {
		if got := wantConnectError(t, b.post(t, updateSession, body), 400, "invalid_argument", "invalid_argument"); got != field {
			t.Errorf("field %q, want %s", got, field)
		}
	}
	for body, want := range map[string]string{
		`{"metadata":{"k":1}}`:    "a map of text to text",
		`{"metadata":["k"]}`:      "a map of text to text",
		`{"removeMetadata":{}}`:   "a list of string",
		`{"removeMetadata":[{}]}`: "a list of string",
	} {
		res := b.post(t, updateSession, body)
		text, err := io.ReadAll(res.body)
		if err != nil || res.status != 400 || !strings.Contains(string(text), "is not "+want+", as it should be") {
			t.Errorf("%s: %d %s", body, res.status, text)
		}
	}
}

func TestListSessionsThatPassAFilter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	oslo := b.create(t, &agentdv1.CreateSessionRequest{Title: "Oslo", User: "ada", Metadata: map[string]string{"team": "a", "x": "y"}})
	rome := b.create(t, &agentdv1.CreateSessionRequest{Title: "Rome", User: "bob", Metadata: map[string]string{"team": "a"}})
	b.start(t, rome, "hi")
	for _, tt := range []struct {
		req  *agentdv1.ListSessionsRequest
		want []string
	}{
		{&agentdv1.ListSessionsRequest{}, []string{rome, oslo}},
		{&agentdv1.ListSessionsRequest{User: "ada"}, []string{oslo}},
		{&agentdv1.ListSessionsRequest{Query: "rom"}, []string{rome}},
		{&agentdv1.ListSessionsRequest{Metadata: map[string]string{"team": "a"}}, []string{rome, oslo}},
		{&agentdv1.ListSessionsRequest{Metadata: map[string]string{"team": "a"}, PageSize: 1, PageToken: rome}, []string{oslo}},
		{&agentdv1.ListSessionsRequest{Metadata: map[string]string{"team": "a", "x": "y"}}, []string{oslo}},
		{&agentdv1.ListSessionsRequest{ActiveOnly: true}, []string{rome}},
		{&agentdv1.ListSessionsRequest{ActiveOnly: true, User: "ada"}, nil},
	} {
		res, err := b.sessions.ListSessions(t.Context(), connect.NewRequest(tt.req))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range res.Msg.GetSessions() {
			got = append(got, s.GetId())
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%v: got %v, want %v", tt.req, got, tt.want)
		}
	}
}

func TestAMessageIsReplacedAndAFailedRunIsRetried(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, first := b.finishedSession(t)
	messages := func(replaced bool) []*agentdv1.Message {
		t.Helper()
		res, err := b.sessions.ListMessages(t.Context(), connect.NewRequest(&agentdv1.ListMessagesRequest{SessionId: id, IncludeReplaced: replaced}))
		if err != nil {
			t.Fatal(err)
		}
		return res.Msg.GetMessages()
	}
	before := messages(false)
	answer := before[len(before)-1]
	again, err := b.startRun(t, &agentdv1.StartRunRequest{SessionId: id, ReplaceFrom: answer.GetId()})
	if err != nil {
		t.Fatal(err)
	}
	if now := messages(false); len(now) != 1 || now[0].GetId() != again.GetMessageId() || now[0].GetParts()[0].GetText() != before[0].GetParts()[0].GetText() {
		t.Errorf("the conversation is %v", now)
	}
	all := messages(true)
	if len(all) != 3 || all[0].GetReplacedSeq() != again.GetAfter()+1 || all[1].GetReplacedSeq() != again.GetAfter()+1 || all[2].GetReplacedSeq() != 0 {
		t.Errorf("all that was said is %v", all)
	}
	b.append(t, id, again.GetRunId(), 0, event.RunCancelRequested{}, event.RunCancelled{})
	for field, req := range map[string]*agentdv1.StartRunRequest{
		"replace_from":      {SessionId: id, ReplaceFrom: answer.GetId(), Text: "x"},
		"replace_from/nope": {SessionId: id, ReplaceFrom: "nope"},
		"text":              {SessionId: id, ReplaceFrom: again.GetMessageId(), Text: " "},
	} {
		_, err := b.startRun(t, req)
		if d := wantError(t, err, connect.CodeInvalidArgument, "invalid_argument"); d.GetField() != strings.Split(field, "/")[0] {
			t.Errorf("%s: field %q, %v", field, d.GetField(), err)
		}
	}

	retry := func(runID string) (*agentdv1.RetryRunResponse, error) {
		res, err := b.runs.RetryRun(t.Context(), connect.NewRequest(&agentdv1.RetryRunRequest{RunId: runID}))
		if err != nil {
			return nil, err
		}
		return res.Msg, nil
	}
	run := b.start(t, id, "once more").RunID
	_, err = retry(first)
	if d := wantError(t, err, connect.CodeAborted, "session_busy"); d.GetActiveRunId() != run {
		t.Errorf("active_run_id %q, want %q", d.GetActiveRunId(), run)
	}
	_, err = retry(run)
	wantError(t, err, connect.CodeAborted, "session_busy")
	b.append(t, id, run, 0, event.RunFailed{Reason: event.FailModel, Error: "no"})
	failedAt := b.events(t, id)[len(b.events(t, id))-1].Seq
	_, err = retry(first)
	wantError(t, err, connect.CodeFailedPrecondition, "not_retryable")
	if !strings.Contains(err.Error(), "it is completed, and only a failed run can be") {
		t.Errorf("%v, want it to say why", err)
	}
	for i := range 2 {
		if got, err := retry(run); err != nil || !proto.Equal(got, &agentdv1.RetryRunResponse{After: uint64(failedAt), AlreadyRetried: i == 1}) {
			t.Errorf("%v, %v", got, err)
		}
	}
	res, err := b.runs.GetRun(t.Context(), connect.NewRequest(&agentdv1.GetRunRequest{RunId: run}))
	if r := res.Msg.GetRun(); err != nil || r.GetRetries() != 1 || r.GetEndedSeq() != 0 || r.GetStatus() != agentdv1.RunStatus_RUN_STATUS_QUEUED {
		t.Errorf("%v, %v", r, err)
	}
	for _, unknown := range []string{"nope", uuid.NewString()} {
		_, err := retry(unknown)
		wantError(t, err, connect.CodeNotFound, "not_found")
	}
}
