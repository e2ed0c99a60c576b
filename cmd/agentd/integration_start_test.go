package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// startAnswer is what one of many who start a run is told.
type startAnswer struct {
	run *agentdv1.StartRunResponse
	err error
}

// startTogether sends n requests at once, in turn to each stack.
func startTogether(t *testing.T, n int, request func(i int) *agentdv1.StartRunRequest, stacks ...*stack) []startAnswer {
	t.Helper()
	answers := make([]startAnswer, n)
	begin := make(chan struct{})
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() {
			<-begin
			res, err := stacks[i%len(stacks)].runs.StartRun(t.Context(), connect.NewRequest(request(i)))
			if err == nil {
				answers[i].run = res.Msg
			}
			answers[i].err = err
		})
	}
	close(begin)
	all.Wait()
	return answers
}

func TestOfManyStartsAtOnceOneRunsAndTheOthersAreToldWhich(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	here, there := newStack(t, db), newStack(t, db)
	for range 5 {
		id := here.Session(t)
		answers := startTogether(t, 50, func(i int) *agentdv1.StartRunRequest {
			return &agentdv1.StartRunRequest{SessionId: id, Text: fmt.Sprint("start ", i), Policy: []string{"", "reject"}[i/2%2]}
		}, here, there)
		var winner string
		for _, a := range answers {
			if a.err == nil {
				if winner != "" {
					t.Errorf("runs %s and %s both started", winner, a.run.GetRunId())
				}
				winner = a.run.GetRunId()
			}
		}
		if winner == "" {
			t.Fatal("none has started")
		}
		for _, a := range answers {
			if a.err == nil {
				continue
			}
			if detail := wantRefused(t, a.err, connect.CodeAborted, "session_busy"); detail.GetActiveRunId() != winner {
				t.Errorf("told of run %q, want %q", detail.GetActiveRunId(), winner)
			}
		}
		if n := scalar[int](t, db, `SELECT count(*) FROM agentd.runs WHERE session_id = $1`, id); n != 1 {
			t.Errorf("%d runs, want 1", n)
		}
		// The others have left nothing: a created session, a message, a run.
		if n := len(stored(t, db, id)); n != 4 {
			t.Errorf("%d events, want 4", n)
		}
		if n := scalar[int](t, db, `SELECT count(*) FROM agentd.river_job WHERE args ->> 'session_id' = $1`, id); n != 1 {
			t.Errorf("%d jobs, want 1", n)
		}
	}
}

// post sends JSON as a client without a library does.
func (s *stack) post(t *testing.T, procedure, body string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/agentd.v1."+procedure, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func TestABusySessionIsAConflictInHTTP(t *testing.T) {
	t.Parallel()
	s := newStack(t, storetest.New(t))
	id := s.Session(t)
	job := s.Start(t, id, "first")
	status, body := s.post(t, "RunService/StartRun", `{"sessionId": "`+id+`", "text": "second"}`)
	var e struct{ Code, Message string }
	if err := json.Unmarshal([]byte(body), &e); err != nil {
		t.Fatal(err)
	}
	if status != http.StatusConflict || e.Code != "aborted" || !strings.Contains(body, job.RunID) {
		t.Errorf("%d %s, want 409, aborted, and the id of the active run", status, body)
	}
}

func TestPoliciesThatAreNotThereAreRefusedByName(t *testing.T) {
	t.Parallel()
	s := newStack(t, storetest.New(t))
	id := s.Session(t)
	for _, policy := range []string{"REJECT", "Enqueue", "roll back", "whatever"} {
		for _, busy := range []bool{false, true} {
			_, err := s.runs.StartRun(t.Context(), connect.NewRequest(&agentdv1.StartRunRequest{SessionId: id, Text: "x", Policy: policy}))
			detail := wantRefused(t, err, connect.CodeInvalidArgument, "invalid_argument")
			if detail.GetField() != "policy" || !strings.Contains(err.Error(), policy) || !strings.Contains(err.Error(), "reject") {
				t.Errorf("%s, busy %t: %v, want the policy and what to send instead", policy, busy, err)
			}
		}
	}
	if n := len(stored(t, s.db, id)); n != 1 {
		t.Errorf("%d events, want only session.created", n)
	}
}

func TestTheDatabaseRefusesASecondActiveRun(t *testing.T) {
	t.Parallel()
	s := newStack(t, storetest.New(t))
	id := s.Session(t)
	s.Start(t, id, "first")
	before := stored(t, s.db, id)
	// What a planner would append that does not know of the first run.
	message, run := looptest.NewID(), looptest.NewID()
	a := loop.Append{ID: looptest.NewID(), TenantID: looptest.Tenant, SessionID: id, Expected: int64(len(before))}
	for _, p := range []event.Payload{
		event.MessageCreated{MessageID: message, Role: hooks.RoleUser, Parts: []hooks.Part{{Type: hooks.PartText, Text: "second"}}},
		event.RunCreated{Agent: "demo", MessageID: message, AssistantMessageID: looptest.NewID()},
		event.RunQueued{Ticket: 1},
	} {
		e, err := event.New(event.Scope{SessionID: id, RunID: run, At: time.Now(), Actor: looptest.Tester}, p)
		if err != nil {
			t.Fatal(err)
		}
		a.Events = append(a.Events, e)
	}
	if _, err := s.store.Append(t.Context(), a); err == nil || !strings.Contains(err.Error(), "runs_one_active_per_session") {
		t.Errorf("append: %v, want the constraint", err)
	}
	sameStory(t, "the log after the refusal", stored(t, s.db, id), before)
}

// sent is one "send message" with a key.
func sent(sessionID, key, text string) func(int) *agentdv1.StartRunRequest {
	return func(int) *agentdv1.StartRunRequest {
		return &agentdv1.StartRunRequest{SessionId: sessionID, Text: text, IdempotencyKey: key}
	}
}

func TestARetriedMessageIsOneMessageAndOneRun(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	here, there := newStack(t, db), newStack(t, db)
	id := here.Session(t)
	var run *agentdv1.StartRunResponse
	same := func(t *testing.T, answers []startAnswer, fresh int) {
		t.Helper()
		for _, a := range answers {
			if a.err != nil {
				t.Fatal(a.err)
			}
			if run == nil {
				run = a.run
			}
			if a.run.GetRunId() != run.GetRunId() || a.run.GetMessageId() != run.GetMessageId() ||
				a.run.GetAssistantMessageId() != run.GetAssistantMessageId() || a.run.GetAfter() != run.GetAfter() {
				t.Errorf("answer %v, another is %v", a.run, run)
			}
			if !a.run.GetAlreadyStarted() {
				fresh--
			}
		}
		if fresh != 0 {
			t.Errorf("%d answers too few or too many say that they started the run", fresh)
		}
		for what, query := range map[string]string{
			"messages": `SELECT count(*) FROM agentd.messages WHERE session_id = $1 AND role = 'user'`,
			"runs":     `SELECT count(*) FROM agentd.runs WHERE session_id = $1`,
			"keys":     `SELECT count(*) FROM agentd.events WHERE session_id = $1 AND payload ->> 'idempotency_key' = 'k 1'`,
		} {
			if n := scalar[int](t, db, query, id); n != 1 {
				t.Errorf("%d %s, want 1", n, what)
			}
		}
	}
	same(t, startTogether(t, 20, sent(id, "k 1", "pay"), here, there), 1)
	same(t, startTogether(t, 2, sent(id, "k 1", "pay"), here, there), 0)

	here = here.again(t)
	same(t, startTogether(t, 2, sent(id, "k 1", "pay"), here, there), 0)
	here.Advance(t, loop.Job{TenantID: looptest.Tenant, SessionID: id, RunID: run.GetRunId(), Ticket: 1})
	// Ended or not, it stays the same request.
	same(t, startTogether(t, 2, sent(id, "k 1", "pay"), here, there), 0)

	for _, a := range startTogether(t, 4, sent(id, "k 1", "pay twice"), here, there) {
		wantRefused(t, a.err, connect.CodeAlreadyExists, "idempotency_key_reused")
	}
	status, _ := here.post(t, "RunService/StartRun", `{"sessionId": "`+id+`", "text": "pay thrice", "idempotencyKey": "k 1"}`)
	if status != http.StatusConflict {
		t.Errorf("another body under the key: status %d, want 409", status)
	}
	same(t, startTogether(t, 2, sent(id, "k 1", "pay"), here, there), 0)
}

func TestAKeyBelongsToATenantAndASession(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	execute(t, db, `INSERT INTO agentd.tenants (id, name) VALUES ('other', 'Other')`)
	s := newStack(t, db)
	run := s.start(t, sent(s.Session(t), "k 1", "pay")(0))
	theirs, err := s.Commands.CreateSession(t.Context(), loop.CreateSession{TenantID: "other", Actor: looptest.Tester})
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Commands.StartRun(t.Context(), loop.StartRun{
		TenantID: "other", SessionID: theirs.SessionID, Text: "pay", IdempotencyKey: "k 1", Actor: looptest.Tester,
	})
	if err != nil || got.Repeated || got.RunID == run.GetRunId() {
		t.Errorf("another tenant: %+v, %v, want a run of its own", got, err)
	}
	again := s.start(t, sent(s.Session(t), "k 1", "pay")(0))
	if again.GetAlreadyStarted() || again.GetRunId() == run.GetRunId() {
		t.Errorf("another session: %v, want a run of its own", again)
	}
}

func TestWithoutAKeyTheSameMessageIsAnotherRun(t *testing.T) {
	t.Parallel()
	s := newStack(t, storetest.New(t))
	id := s.Session(t)
	for want := 1; want <= 3; want++ {
		next := s.start(t, sent(id, "", "pay")(0))
		s.Advance(t, loop.Job{TenantID: looptest.Tenant, SessionID: id, RunID: next.GetRunId(), Ticket: 1})
		if n := scalar[int](t, s.db, `SELECT count(*) FROM agentd.runs WHERE session_id = $1`, id); n != want {
			t.Errorf("%d runs, want %d", n, want)
		}
	}
}

func TestManyCreationsOfOneSessionAreOneSession(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	stacks := []*stack{newStack(t, db), newStack(t, db)}
	var mu sync.Mutex
	ids, created := map[string]int{}, 0
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			res, err := stacks[i%2].sessions.CreateSession(t.Context(), connect.NewRequest(&agentdv1.CreateSessionRequest{ExternalId: "chat 7"}))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			ids[res.Msg.GetSessionId()]++
			if res.Msg.GetCreated() {
				created++
			}
		})
	}
	all.Wait()
	if len(ids) != 1 || created != 1 {
		t.Errorf("%d sessions, %d created: %v", len(ids), created, ids)
	}
}
