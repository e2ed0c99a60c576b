package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// foreignRequests are requests with ids that are not the caller's: $NAME is an
// id of another tenant or nobody's, $OWN a session of the caller's.
var foreignRequests = map[string][]string{
	"/agentd.v1.SessionService/GetSession":    {`{"sessionId":"$SESSION"}`, `{"externalId":"$EXTERNAL"}`},
	"/agentd.v1.SessionService/UpdateSession": {`{"sessionId":"$SESSION","title":"mine"}`},
	"/agentd.v1.SessionService/ListSessions": {
		`{}`, `{"pageToken":"$SESSION"}`, `{"user":"$USER"}`, `{"query":"secret"}`, `{"metadata":{"k":"secret"}}`, `{"activeOnly":true}`,
	},
	"/agentd.v1.SessionService/DeleteSession": {`{"sessionId":"$SESSION"}`},
	"/agentd.v1.SessionService/ListMessages": {
		`{"sessionId":"$SESSION"}`, `{"sessionId":"$SESSION","pageToken":"$MESSAGE","includeReplaced":true}`, `{"sessionId":"$OWN","pageToken":"$MESSAGE"}`,
	},
	"/agentd.v1.SessionService/ListEvents":  {`{"sessionId":"$SESSION"}`, `{"sessionId":"$SESSION","after":"1000000"}`},
	"/agentd.v1.SessionService/WatchEvents": {`{"sessionId":"$SESSION"}`, `{"sessionId":"$SESSION","after":"1000000","untilIdle":true}`},
	"/agentd.v1.RunService/StartRun": {
		`{"sessionId":"$SESSION","text":"mine"}`, `{"sessionId":"$SESSION","text":"a secret","idempotencyKey":"$KEY"}`,
		`{"sessionId":"$SESSION","replaceFrom":"$MESSAGE"}`, `{"sessionId":"$OWN","replaceFrom":"$MESSAGE"}`,
	},
	"/agentd.v1.RunService/GetRun":             {`{"runId":"$RUN"}`},
	"/agentd.v1.RunService/ListRuns":           {`{}`, `{"sessionId":"$SESSION"}`, `{"pageToken":"$RUN"}`, `{"sessionId":"$OWN","pageToken":"$RUN"}`},
	"/agentd.v1.RunService/CancelRun":          {`{"runId":"$RUN"}`},
	"/agentd.v1.RunService/RetryRun":           {`{"runId":"$RUN"}`},
	"/agentd.v1.ApprovalService/ListApprovals": {`{}`, `{"sessionId":"$SESSION"}`, `{"runId":"$RUN"}`, `{"pageToken":"$APPROVAL"}`, `{"pendingOnly":true}`},
	"/agentd.v1.ApprovalService/GetApproval":   {`{"approvalId":"$APPROVAL"}`},
	"/agentd.v1.ApprovalService/DecideApproval": {
		`{"approvalId":"$APPROVAL","decision":"APPROVAL_DECISION_APPROVE"}`,
		`{"approvalId":"$APPROVAL","decision":"APPROVAL_DECISION_EDIT","arguments":"{}"}`, `{"approvalId":"$APPROVAL","decision":"APPROVAL_DECISION_EDIT","arguments":"{"}`,
	},
	"/agentd.v1.LedgerService/ListDecisions": {`{"sessionId":"$SESSION"}`, `{"runId":"$RUN"}`, `{"sessionId":"$OWN","pageToken":"$DECISION"}`, `{"runId":"$RUN","pageToken":"$DECISION"}`},
	"/agentd.v1.AdminService/FailRun":        {`{"runId":"$RUN","reason":"mine"}`},
	"/agentd.v1.AdminService/Pause":          {`{"scope":"PAUSE_SCOPE_TENANT"}`},
	"/agentd.v1.AdminService/Resume":         {`{"scope":"PAUSE_SCOPE_AGENT","agent":"none"}`},
	"/agentd.v1.AdminService/ListPauses":     {`{}`},
	"/v1/sessions/{id}/events":               {"$SESSION", "$SESSION?until=idle&after=1", "$EXTERNAL", "$SESSION?after=1000000"},
	"/v1/runs/{id}/events":                   {"$RUN", "$RUN?after=1000000", "$SESSION"},
}

// createSession takes names that another tenant may have, too.
const createSession = "/agentd.v1.SessionService/CreateSession"

// noIDs are fields that name nothing that somebody could own.
var noIDs = map[protoreflect.Name]bool{"agent": true, "text": true, "policy": true, "reason": true, "title": true, "types": true, "channel": true, "arguments": true, "arguments_sha256": true, "remove_metadata": true}

// services are those of the protos.
var services = []protoreflect.FileDescriptor{
	agentdv1.File_agentd_v1_session_service_proto, agentdv1.File_agentd_v1_run_service_proto,
	agentdv1.File_agentd_v1_approval_service_proto, agentdv1.File_agentd_v1_ledger_service_proto, agentdv1.File_agentd_v1_admin_service_proto,
}

// checkForeignRequests finds calls, and fields of their requests, that have no
// case.
func checkForeignRequests(t *testing.T) {
	t.Helper()
	for _, file := range services {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				path := fmt.Sprintf("/%s/%s", methods.Get(j).Parent().FullName(), methods.Get(j).Name())
				fields := methods.Get(j).Input().Fields()
				for k := range fields.Len() {
					fd := fields.Get(k)
					if fd.Kind() != protoreflect.StringKind || noIDs[fd.Name()] || path == createSession {
						continue
					}
					if !strings.Contains(strings.Join(foreignRequests[path], ""), `"`+fd.JSONName()+`"`) {
						t.Errorf("%s has no case for a foreign %s", path, fd.Name())
					}
				}
				if len(foreignRequests[path]) == 0 && path != createSession {
					t.Errorf("%s has no case", path)
				}
			}
		}
	}
}

var uuidPattern = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// ask sends a request, and returns the status and the answer without its ids.
func (s *stack) ask(t *testing.T, path, request string) (answer string) {
	t.Helper()
	ctx := patient(t)
	method, contentType := http.MethodPost, "application/json"
	switch {
	case strings.HasPrefix(path, "/v1/"):
		method, path, request = http.MethodGet, strings.Replace(path, "{id}", request, 1), ""
	case strings.HasSuffix(path, "/WatchEvents"):
		contentType = "application/connect+json"
		request = string([]byte{0, 0, 0, 0, byte(len(request))}) + request
	}
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(request))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	res, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(res.StatusCode, " ", res.Header.Get("Agentd-Reason"), " ", uuidPattern.ReplaceAllString(string(body), "ID"))
}

func TestEveryRouteHidesWhatIsAnotherTenants(t *testing.T) {
	t.Parallel()
	checkForeignRequests(t)
	db := storetest.New(t)
	execute(t, db, `INSERT INTO agentd.tenants (id, name) VALUES ('other', 'Other')`)
	s := newStack(t, db, playing(looptest.Answers(looptest.Answer(looptest.ToolCall("a", "send", `{"to": "a secret"}`), looptest.Finish(stream.FinishToolCalls))),
		looptest.Tool{Name: "send"}))
	s.askingFor("send")
	s.checked(t, hooks.Hooks{BeforeInput: hooks.Named("reader", "1", func(context.Context, hooks.BeforeInput) (hooks.BeforeInputResult, error) {
		return hooks.BeforeInputResult{Action: hooks.ActionContinue}, nil
	})})
	foreign, err := s.Commands.CreateSession(t.Context(), loop.CreateSession{
		TenantID: "other", ExternalID: "theirs", Title: "a secret", User: "ada", Metadata: map[string]string{"k": "secret"}, Actor: looptest.Tester,
	})
	if err != nil {
		t.Fatal(err)
	}
	run, err := s.Commands.StartRun(t.Context(), loop.StartRun{TenantID: "other", SessionID: foreign.SessionID, Text: "a secret", IdempotencyKey: "key", Actor: looptest.Tester})
	if err != nil {
		t.Fatal(err)
	}
	s.advance(t, loop.Job{TenantID: "other", SessionID: foreign.SessionID, RunID: run.RunID, Ticket: 1}).wait(t)
	if _, err := s.store.Pause(t.Context(), loop.Pause{TenantID: "other", Reason: "a secret", By: looptest.Tester}); err != nil {
		t.Fatal(err)
	}
	own := s.Session(t)
	before := stored(t, db, foreign.SessionID)

	theirs := map[string]string{
		"OWN": own, "SESSION": foreign.SessionID, "RUN": run.RunID, "MESSAGE": run.MessageID, "EXTERNAL": "theirs", "USER": "ada", "KEY": "key",
		"APPROVAL": scalar[string](t, db, `SELECT id::text FROM agentd.approvals WHERE run_id = $1`, run.RunID),
		"DECISION": scalar[string](t, db, `SELECT decision_id::text FROM agentd.hook_decisions WHERE session_id = $1 LIMIT 1`, foreign.SessionID),
	}
	nobodys := map[string]string{
		"OWN": own, "SESSION": newID(), "RUN": newID(), "MESSAGE": newID(), "EXTERNAL": "nobodys", "USER": "bob", "KEY": "none",
		"APPROVAL": newID(), "DECISION": newID(),
	}
	check := func(path, request string) {
		t.Helper()
		got := s.ask(t, path, os.Expand(request, func(name string) string { return theirs[name] }))
		want := s.ask(t, path, os.Expand(request, func(name string) string { return nobodys[name] }))
		if got != want {
			t.Errorf("%s %s: of another tenant\n%s\nof nobody\n%s", path, request, got, want)
		}
		if strings.Contains(got, "secret") || strings.Contains(got, "theirs") {
			t.Errorf("%s %s tells of another tenant: %s", path, request, got)
		}
	}
	for path, requests := range foreignRequests {
		for _, request := range requests {
			check(path, request)
		}
	}
	// The name is free for the caller.
	check(createSession, `{"externalId":"$EXTERNAL","user":"$USER"}`)
	sameStory(t, "the log after all that", stored(t, db, foreign.SessionID), before)
}
