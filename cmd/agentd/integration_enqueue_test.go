package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// said lists a conversation as the API has it, what is enqueued with a mark.
func (s *stack) said(t *testing.T, sessionID string, pageSize int32) (lines []string) {
	t.Helper()
	request := &agentdv1.ListMessagesRequest{SessionId: sessionID, PageSize: pageSize}
	for {
		page, err := s.sessions.ListMessages(t.Context(), connect.NewRequest(request))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range page.Msg.GetMessages() {
			line := strings.ToLower(strings.TrimPrefix(m.GetRole().String(), "ROLE_")) + " "
			for _, p := range m.GetParts() {
				line += p.GetText()
			}
			if m.GetPartial() {
				line += " (partial)"
			}
			if m.GetEnqueued() {
				line += " (enqueued)"
			}
			if m.GetEnqueued() != (m.GetPosition() == 0) {
				t.Errorf("message %v: a position, or enqueued", m)
			}
			lines = append(lines, line)
		}
		if request.PageToken = page.Msg.GetNextPageToken(); request.GetPageToken() == "" {
			return lines
		}
	}
}

func (s *stack) run(t *testing.T, id string) *agentdv1.Run {
	t.Helper()
	res, err := s.runs.GetRun(t.Context(), connect.NewRequest(&agentdv1.GetRunRequest{RunId: id}))
	if err != nil {
		t.Fatal(err)
	}
	return res.Msg.GetRun()
}

func (s *stack) cancelRun(t *testing.T, id string) {
	t.Helper()
	if _, err := s.runs.CancelRun(t.Context(), connect.NewRequest(&agentdv1.CancelRunRequest{RunId: id})); err != nil {
		t.Fatal(err)
	}
}

func TestOfManyMessagesAtOnceEachIsEnqueuedOnce(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	here, there := newStack(t, db), newStack(t, db)
	id := here.Session(t)
	first := here.Start(t, id, "first")
	const messages = 25
	answers := startTogether(t, 2*messages, func(i int) *agentdv1.StartRunRequest {
		n := fmt.Sprint("message ", i/2)
		return &agentdv1.StartRunRequest{SessionId: id, Text: n, IdempotencyKey: n, Policy: "enqueue"}
	}, here, there)
	runs, fresh := map[string]bool{}, 0
	for i, a := range answers {
		if a.err != nil {
			t.Fatal(a.err)
		}
		if !a.run.GetEnqueued() || a.run.GetRunId() != answers[i/2*2].run.GetRunId() {
			t.Errorf("request %d is told %v, its twin %v", i, a.run, answers[i/2*2].run)
		}
		if !a.run.GetAlreadyStarted() {
			fresh++
		}
		runs[a.run.GetRunId()] = true
	}
	if len(runs) != messages || fresh != messages {
		t.Errorf("%d runs and %d fresh answers, want %d of each", len(runs), fresh, messages)
	}
	if n := scalar[int](t, db, `SELECT count(*) FROM agentd.river_job WHERE args ->> 'session_id' = $1`, id); n != 1 {
		t.Errorf("%d jobs, want that of the active run", n)
	}
	// Workers take the runs as their jobs come.
	idle := there.listen(t, id, "?until=idle", fromStart)
	here.work(t)
	there.work(t)
	told := idle.facts(t, toTheEnd)
	if n := scalar[int](t, db, `SELECT count(*) FROM agentd.runs WHERE session_id = $1 AND status = 'completed'`, id); n != 1+messages {
		t.Errorf("the stream ended when %d runs had completed, want %d", n, 1+messages)
	}
	if all := stored(t, db, id); told[len(told)-1].Seq != int64(len(all)) {
		t.Errorf("the stream ended at %d, want %d", told[len(told)-1].Seq, len(all))
	}
	if there.run(t, first.RunID).GetStatus() != agentdv1.RunStatus_RUN_STATUS_COMPLETED {
		t.Error("the first run has not completed")
	}
	// The order is that of arrival, and answers stand behind their messages.
	var want []string
	for _, f := range stored(t, db, id) {
		if f.Type == event.TypeMessageCreated {
			want = append(want, "user "+textOf(decoded[event.MessageCreated](t, []fact{f})[0].Parts), "assistant Hello.")
		}
	}
	if got := here.said(t, id, 7); !slices.Equal(got, want) {
		t.Errorf("the conversation is %q\nwant %q", got, want)
	}
}

func TestTheQueueOfASessionIsShownAndBounded(t *testing.T) {
	t.Parallel()
	s := newStack(t, storetest.New(t))
	id := s.Session(t)
	s.Start(t, id, "first")
	var enqueued []*agentdv1.StartRunResponse
	for i := range loop.MaxEnqueued {
		enqueued = append(enqueued, s.start(t, &agentdv1.StartRunRequest{SessionId: id, Text: fmt.Sprint("more ", i), Policy: "enqueue"}))
	}
	for i, e := range enqueued {
		if r := s.run(t, e.GetRunId()); r.GetAhead() != uint32(i) || r.GetStatus() != agentdv1.RunStatus_RUN_STATUS_ENQUEUED {
			t.Errorf("run %d has %d ahead and is %s", i, r.GetAhead(), r.GetStatus())
		}
	}
	said := s.said(t, id, 10)
	if want := 1 + loop.MaxEnqueued; len(said) != want || said[0] != "user first" || said[1] != "user more 0 (enqueued)" || said[want-1] != fmt.Sprintf("user more %d (enqueued)", want-2) {
		t.Errorf("the conversation is %q", said)
	}
	status, body := s.post(t, "RunService/StartRun", `{"sessionId": "`+id+`", "text": "one more", "policy": "enqueue"}`)
	if status != http.StatusTooManyRequests || !strings.Contains(body, "resource_exhausted") || !strings.Contains(body, "too many runs of the session are enqueued") {
		t.Errorf("%d %s, want 429", status, body)
	}
	s.cancelRun(t, enqueued[1].GetRunId())
	if r := s.run(t, enqueued[2].GetRunId()); r.GetAhead() != 1 {
		t.Errorf("%d runs ahead, want 1", r.GetAhead())
	}
	if said := s.said(t, id, 10); len(said) != loop.MaxEnqueued || said[2] != "user more 2 (enqueued)" {
		t.Errorf("the conversation is %q", said[:3])
	}
	if run := s.start(t, &agentdv1.StartRunRequest{SessionId: id, Text: "one more", Policy: "enqueue"}); !run.GetEnqueued() {
		t.Errorf("%v, want it enqueued", run)
	}
	// Whoever deletes a session has to stop what is active first; nothing is
	// deleted under those that wait.
	if _, err := s.sessions.DeleteSession(t.Context(), connect.NewRequest(&agentdv1.DeleteSessionRequest{SessionId: id})); connect.CodeOf(err) != connect.CodeAborted {
		t.Errorf("delete: %v, want aborted", err)
	}
}

// TestAModelIsNotShownWhatIsEnqueued, and a client that pages while the queue
// moves sees each message once.
func TestAModelIsNotShownWhatIsEnqueued(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	goOn := make(chan struct{})
	var sent []string
	model := looptest.Model(func(_ context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		var texts []string
		for _, m := range req.Messages {
			texts = append(texts, m.Text())
		}
		sent = append(sent, strings.Join(texts, " | "))
		if !yield(looptest.Text("I heard "), nil) {
			return
		}
		<-goOn
		yield(looptest.Text(texts[len(texts)-1]), nil)
		yield(looptest.Finish(stream.FinishStop), nil)
	})
	here, there := newStack(t, db, playing(model)), newStack(t, db, playing(model))
	id := here.Session(t)
	first := here.Start(t, id, "one")
	working := here.advance(t, first)
	awaitRow(t, db, `SELECT 'x' FROM agentd.events WHERE type = 'assistant.delta'`)
	second := there.start(t, &agentdv1.StartRunRequest{SessionId: id, Text: "two", Policy: "enqueue"})
	page, err := here.sessions.ListMessages(t.Context(), connect.NewRequest(&agentdv1.ListMessagesRequest{SessionId: id, PageSize: 1}))
	if err != nil {
		t.Fatal(err)
	}
	close(goOn)
	working.wait(t)
	if r := there.run(t, second.GetRunId()); r.GetStatus() != agentdv1.RunStatus_RUN_STATUS_QUEUED {
		t.Errorf("the second run is %s when the first has ended", r.GetStatus())
	}
	there.Advance(t, loop.Job{TenantID: looptest.Tenant, SessionID: id, RunID: second.GetRunId(), Ticket: 1})
	if want := []string{"one", "one | I heard one | two"}; !slices.Equal(sent, want) {
		t.Errorf("the model was sent %q, want %q", sent, want)
	}
	want := []string{"user one", "assistant I heard one", "user two", "assistant I heard two"}
	if got := here.said(t, id, 3); !slices.Equal(got, want) {
		t.Errorf("the conversation is %q, want %q", got, want)
	}
	rest, err := there.sessions.ListMessages(t.Context(), connect.NewRequest(&agentdv1.ListMessagesRequest{SessionId: id, PageToken: page.Msg.GetNextPageToken()}))
	if err != nil || len(rest.Msg.GetMessages()) != 3 || rest.Msg.GetMessages()[0].GetRole() != agentdv1.Role_ROLE_ASSISTANT {
		t.Errorf("behind the first page: %v, %v; want the three others", rest, err)
	}
}
