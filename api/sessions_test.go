package api_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

func TestCreateSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	create := func(external string) (*agentdv1.CreateSessionResponse, error) {
		res, err := b.sessions.CreateSession(t.Context(), connect.NewRequest(&agentdv1.CreateSessionRequest{ExternalId: external}))
		if err != nil {
			return nil, err
		}
		return res.Msg, nil
	}
	first, err := create("chat-7")
	if err != nil || !first.GetCreated() || uuid.Validate(first.GetSessionId()) != nil {
		t.Fatalf("%v, %v, want a new session with a UUID", first, err)
	}
	again, err := create("chat-7")
	if err != nil || again.GetCreated() || again.GetSessionId() != first.GetSessionId() {
		t.Errorf("%v, %v, want the session %s again", again, err, first.GetSessionId())
	}
	other, err := create("")
	if err != nil || !other.GetCreated() || other.GetSessionId() == first.GetSessionId() {
		t.Errorf("%v, %v, want another session", other, err)
	}
	if got := b.events(t, first.GetSessionId())[0].Actor; got != (event.Actor{Kind: event.ActorPrincipal, ID: "local"}) {
		t.Errorf("actor %v, want principal local", got)
	}
	for name, external := range map[string]string{"NUL": "a\x00b", "too long": strings.Repeat("ä", 201)} {
		_, err := create(external)
		if d := wantError(t, err, connect.CodeInvalidArgument, "invalid_argument"); d.GetField() != "external_id" {
			t.Errorf("%s: field %q, want external_id", name, d.GetField())
		}
	}
	if _, err := create(strings.Repeat("ä", 200)); err != nil {
		t.Errorf("200 characters: %v, want a session", err)
	}
}

func TestGetSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	created, err := b.sessions.CreateSession(t.Context(), connect.NewRequest(&agentdv1.CreateSessionRequest{ExternalId: "mine"}))
	if err != nil {
		t.Fatal(err)
	}
	id := created.Msg.GetSessionId()
	run := b.start(t, id, "hi").RunID
	get := func(req *agentdv1.GetSessionRequest) (*agentdv1.Session, error) {
		res, err := b.sessions.GetSession(t.Context(), connect.NewRequest(req))
		if err != nil {
			return nil, err
		}
		return res.Msg.GetSession(), nil
	}
	byID := func(id string) *agentdv1.GetSessionRequest {
		return &agentdv1.GetSessionRequest{Name: &agentdv1.GetSessionRequest_SessionId{SessionId: id}}
	}
	byExternal := func(id string) *agentdv1.GetSessionRequest {
		return &agentdv1.GetSessionRequest{Name: &agentdv1.GetSessionRequest_ExternalId{ExternalId: id}}
	}
	for _, req := range []*agentdv1.GetSessionRequest{byID(id), byID(strings.ToUpper(id)), byExternal("mine")} {
		s, err := get(req)
		if err != nil {
			t.Fatalf("%v: %v", req, err)
		}
		if s.GetId() != id || s.GetExternalId() != "mine" || s.GetLastSeq() != 4 || s.GetActiveRunId() != run ||
			s.GetCreatedAt().AsTime().IsZero() || s.GetUpdatedAt().AsTime().Before(s.GetCreatedAt().AsTime()) {
			t.Errorf("%v: got %v", req, s)
		}
	}
	for _, id := range []string{"nope", uuid.NewString(), "urn:uuid:" + id, "{" + id + "}", strings.ReplaceAll(id, "-", "")} {
		_, err := get(byID(id))
		wantError(t, err, connect.CodeNotFound, "not_found")
	}
	_, err = get(byExternal("other"))
	wantError(t, err, connect.CodeNotFound, "not_found")
	_, err = get(byExternal("a\x00"))
	wantError(t, err, connect.CodeInvalidArgument, "invalid_argument")
	_, err = get(&agentdv1.GetSessionRequest{})
	if d := wantError(t, err, connect.CodeInvalidArgument, "invalid_argument"); d.GetField() != "session_id" {
		t.Errorf("field %q, want session_id", d.GetField())
	}
}

func TestListSessions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var want []string
	for range 7 {
		want = append(want, b.newSession(t))
	}
	slices.Reverse(want)
	list := func(size int32, token string) (*agentdv1.ListSessionsResponse, error) {
		res, err := b.sessions.ListSessions(t.Context(), connect.NewRequest(&agentdv1.ListSessionsRequest{PageSize: size, PageToken: token}))
		if err != nil {
			return nil, err
		}
		return res.Msg, nil
	}
	// The pages join to the whole list while it grows.
	var got []string
	for token, first := "", true; first || token != ""; first = false {
		res, err := list(3, token)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range res.GetSessions() {
			got = append(got, s.GetId())
		}
		token = res.GetNextPageToken()
		b.newSession(t) // in front of what was read
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for range 100 {
		b.newSession(t)
	}
	for size, want := range map[int32]int{0: 50, 100: 100, 1 << 30: 100} {
		res, err := list(size, "")
		if err != nil || len(res.GetSessions()) != want || res.GetNextPageToken() == "" {
			t.Errorf("page_size %d: %d sessions, %v, want %d and a next page", size, len(res.GetSessions()), err, want)
		}
	}
	_, err := list(-1, "")
	wantError(t, err, connect.CodeInvalidArgument, "invalid_argument")
	for _, token := range []string{"x", uuid.NewString()} {
		_, err := list(0, token)
		wantError(t, err, connect.CodeInvalidArgument, "bad_page_token")
	}
}

func TestDeleteSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	del := func(id string) error {
		_, err := b.sessions.DeleteSession(t.Context(), connect.NewRequest(&agentdv1.DeleteSessionRequest{SessionId: id}))
		return err
	}
	id, _ := b.finishedSession(t)
	run := b.start(t, id, "again").RunID
	if d := wantError(t, del(id), connect.CodeAborted, "session_busy"); d.GetActiveRunId() != run {
		t.Errorf("active_run_id %q, want %q", d.GetActiveRunId(), run)
	}
	if _, err := b.runs.CancelRun(t.Context(), connect.NewRequest(&agentdv1.CancelRunRequest{RunId: run})); err != nil {
		t.Fatal(err)
	}
	if err := del(id); err != nil {
		t.Fatal(err)
	}
	// Nothing shows it any more.
	wantError(t, del(id), connect.CodeNotFound, "not_found")
	wantError(t, del("nope"), connect.CodeNotFound, "not_found")
	_, err := b.sessions.ListEvents(t.Context(), connect.NewRequest(&agentdv1.ListEventsRequest{SessionId: id}))
	wantError(t, err, connect.CodeNotFound, "not_found")
	_, err = b.sessions.ListMessages(t.Context(), connect.NewRequest(&agentdv1.ListMessagesRequest{SessionId: id}))
	wantError(t, err, connect.CodeNotFound, "not_found")
}

func TestListMessages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, runID := b.finishedSession(t)
	list := func(req *agentdv1.ListMessagesRequest) (*agentdv1.ListMessagesResponse, error) {
		res, err := b.sessions.ListMessages(t.Context(), connect.NewRequest(req))
		if err != nil {
			return nil, err
		}
		return res.Msg, nil
	}
	first, err := list(&agentdv1.ListMessagesRequest{SessionId: id, PageSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	m := first.GetMessages()[0]
	if m.GetRole() != agentdv1.Role_ROLE_USER || m.GetParts()[0].GetText() != "hello" || m.GetRunId() != runID || m.GetPosition() != 2 || m.GetTurn() != 0 {
		t.Errorf("got %v, want the user's hello", m)
	}
	second, err := list(&agentdv1.ListMessagesRequest{SessionId: id, PageToken: first.GetNextPageToken()})
	if err != nil || len(second.GetMessages()) != 1 || second.GetNextPageToken() != "" {
		t.Fatalf("%v, %v, want one last message", second, err)
	}
	m = second.GetMessages()[0]
	if m.GetRole() != agentdv1.Role_ROLE_ASSISTANT || m.GetParts()[0].GetReasoning() != "hm" ||
		m.GetParts()[1].GetText() != "Hello from the agent " || m.GetTurn() != 1 || m.GetPartial() {
		t.Errorf("got %v, want the answer", m)
	}
	_, err = list(&agentdv1.ListMessagesRequest{SessionId: id, PageToken: uuid.NewString()})
	wantError(t, err, connect.CodeInvalidArgument, "bad_page_token")
	_, err = list(&agentdv1.ListMessagesRequest{SessionId: id, PageToken: "x"})
	wantError(t, err, connect.CodeInvalidArgument, "bad_page_token")
	_, err = list(&agentdv1.ListMessagesRequest{SessionId: uuid.NewString(), PageToken: uuid.NewString()})
	wantError(t, err, connect.CodeNotFound, "not_found")
	_, err = list(&agentdv1.ListMessagesRequest{SessionId: "nope"})
	wantError(t, err, connect.CodeNotFound, "not_found")
}

func TestListEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, _ := b.finishedSession(t)
	stored := b.events(t, id)
	list := func(req *agentdv1.ListEventsRequest) (*agentdv1.ListEventsResponse, error) {
		res, err := b.sessions.ListEvents(t.Context(), connect.NewRequest(req))
		if err != nil {
			return nil, err
		}
		return res.Msg, nil
	}
	var got []*agentdv1.Event
	for more, after := true, uint64(0); more; after = got[len(got)-1].GetSeq() {
		res, err := list(&agentdv1.ListEventsRequest{SessionId: id, After: after, PageSize: 5})
		if err != nil {
			t.Fatal(err)
		}
		got, more = append(got, res.GetEvents()...), res.GetMore()
	}
	if len(got) != len(stored) {
		t.Fatalf("%d events, want %d", len(got), len(stored))
	}
	for i, e := range got {
		wantEvent(t, e, stored[i])
	}
	res, err := list(&agentdv1.ListEventsRequest{SessionId: id, After: uint64(len(stored))})
	if err != nil || len(res.GetEvents()) != 0 || res.GetMore() {
		t.Errorf("at the end: %v, %v, want nothing", res, err)
	}
	for _, after := range []uint64{uint64(len(stored)) + 1, 1 << 63, 1<<64 - 1} {
		_, err := list(&agentdv1.ListEventsRequest{SessionId: id, After: after})
		wantError(t, err, connect.CodeOutOfRange, "cursor_ahead")
	}
	_, err = list(&agentdv1.ListEventsRequest{SessionId: id, PageSize: -1})
	wantError(t, err, connect.CodeInvalidArgument, "invalid_argument")
	_, err = list(&agentdv1.ListEventsRequest{SessionId: "nope"})
	wantError(t, err, connect.CodeNotFound, "not_found")
}

// wantEvent compares all fields; the payload byte for byte.
func wantEvent(t *testing.T, got *agentdv1.Event, want event.Event) {
	t.Helper()
	if got.GetSeq() != uint64(want.Seq) || got.GetSessionId() != want.SessionID || got.GetRunId() != want.RunID ||
		got.GetTurn() != uint32(want.Turn) || got.GetType() != string(want.Type) || !got.GetAt().AsTime().Equal(want.At) ||
		got.GetActor().GetKind() != string(want.Actor.Kind) || got.GetActor().GetId() != want.Actor.ID {
		t.Errorf("got %v, want %+v", got, want)
	}
	if !bytes.Equal([]byte(got.GetDataJson()), want.Payload) {
		t.Errorf("seq %d: payload %q, want %q", want.Seq, got.GetDataJson(), want.Payload)
	}
}
