package api_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/google/uuid"
	"google.golang.org/protobuf/reflect/protoreflect"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// openAPI is the part of the document that tests look at.
type openAPI struct {
	Paths map[string]map[string]struct {
		OperationID, Description string
	}
	Components struct{ Schemas map[string]map[string]any }
}

// documented asks a server for its document.
func (b *bundle) documented(t *testing.T) (openAPI, []byte) {
	t.Helper()
	res := b.get(t, "/openapi.json", nil)
	text, err := io.ReadAll(res.body)
	if err != nil || res.status != http.StatusOK || res.header.Get("Content-Type") != "application/json" {
		t.Fatalf("status %d, headers %v, %v", res.status, res.header, err)
	}
	var d openAPI
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d, text
}

// routes calls f with every route of the document but those that need no key,
// and with what the protos say of it; nil if it is no call.
func (d openAPI) routes(f func(method, path string, call protoreflect.MethodDescriptor)) {
	calls := procedures()
	for path, item := range d.Paths {
		if path == "/healthz" || path == "/readyz" {
			continue
		}
		for method := range item {
			f(method, path, calls[path])
		}
	}
}

// procedures are the calls of the protos: path and method.
func procedures() map[string]protoreflect.MethodDescriptor {
	all := map[string]protoreflect.MethodDescriptor{}
	for _, f := range []protoreflect.FileDescriptor{
		agentdv1.File_agentd_v1_session_service_proto, agentdv1.File_agentd_v1_run_service_proto,
		agentdv1.File_agentd_v1_approval_service_proto, agentdv1.File_agentd_v1_ledger_service_proto, agentdv1.File_agentd_v1_admin_service_proto,
	} {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				m := s.Methods().Get(j)
				all[fmt.Sprintf("/%s/%s", s.FullName(), m.Name())] = m
			}
		}
	}
	return all
}

func TestTheDocumentHasEveryRouteAndNoOther(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d, text := b.documented(t)
	committed, err := os.ReadFile("openapi/openapi.json")
	if err != nil || string(text) != string(committed) {
		t.Errorf("%v, or what is served is not what is committed", err)
	}
	calls := procedures()
	if len(calls) < 15 {
		t.Errorf("saw only the calls %v", calls)
	}
	for path := range calls {
		if _, ok := d.Paths[path]; !ok {
			t.Errorf("%s is missing: make generate", path)
		}
	}
	ids := map[string]bool{}
	for path, item := range d.Paths {
		for method, operation := range item {
			if operation.OperationID == "" || ids[operation.OperationID] {
				t.Errorf("%s %s has the id %q, want one of its own", method, path, operation.OperationID)
			}
			ids[operation.OperationID] = true
		}
	}
	d.routes(func(method, path string, call protoreflect.MethodDescriptor) {
		res := b.tryOut(t, method, path, call)
		if reason := res.header.Get("Agentd-Reason"); reason == "no_route" || res.status == http.StatusMethodNotAllowed || res.status == http.StatusUnsupportedMediaType {
			t.Errorf("%s %s: status %d, reason %q", method, path, res.status, reason)
		}
	})
}

// tryOut sends an empty request to a documented route; call is nil if it is none.
func (b *bundle) tryOut(t *testing.T, method, path string, call protoreflect.MethodDescriptor) answer {
	t.Helper()
	switch {
	case call == nil:
		return b.get(t, strings.ReplaceAll(path, "{id}", "x"), nil)
	case method == "get":
		return b.get(t, path+"?encoding=json&message="+url.QueryEscape("{}"), nil)
	case call.IsStreamingServer():
		return b.raw(t, http.MethodPost, path, "", http.Header{"Content-Type": {"application/connect+json"}})
	default:
		return b.post(t, path, "{}")
	}
}

func TestTheDocumentExplainsEverythingThatItNames(t *testing.T) {
	t.Parallel()
	d, text := setup(t).documented(t)
	var whole any
	if err := json.Unmarshal(text, &whole); err != nil {
		t.Fatal(err)
	}
	references := 0
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if to, ok := v["$ref"].(string); ok {
				references++
				if !resolves(whole, to) {
					t.Errorf("%s: %s is not there", at, to)
				}
			}
			for name, inner := range v {
				walk(at+"/"+name, inner)
			}
		case []any:
			for i, inner := range v {
				walk(fmt.Sprint(at, "/", i), inner)
			}
		}
	}
	walk("", whole)
	if references < 50 {
		t.Errorf("only %d references", references)
	}
	for name, schema := range d.Components.Schemas {
		if schema["description"] == nil {
			t.Errorf("%s has no description", name)
		}
		properties, _ := schema["properties"].(map[string]any)
		for field, property := range properties {
			if p := property.(map[string]any); p["description"] == nil && p["$ref"] == nil && name != "CallError" {
				t.Errorf("%s.%s has no description", name, field)
			}
		}
	}
}

// resolves reports whether a reference within the document leads to something.
func resolves(document any, reference string) bool {
	for _, step := range strings.Split(strings.TrimPrefix(reference, "#/"), "/") {
		object, ok := document.(map[string]any)
		if !ok {
			return false
		}
		if document, ok = object[step]; !ok {
			return false
		}
	}
	return true
}

// schemaOf is a schema of the document, with all that it refers to. What it
// does not name is refused, unlike in the document, which says nothing of
// tomorrow's fields.
func schemaOf(t *testing.T, d openAPI, name string) *jsonschema.Resolved {
	t.Helper()
	definitions := map[string]map[string]any{}
	for other, schema := range d.Components.Schemas {
		schema = maps.Clone(schema)
		if schema["type"] == "object" {
			schema["additionalProperties"] = false
		}
		definitions[other] = schema
	}
	text, err := json.Marshal(map[string]any{"$defs": definitions, "$ref": "#/$defs/" + name})
	if err != nil {
		t.Fatal(err)
	}
	var root jsonschema.Schema
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(text), "#/components/schemas/", "#/$defs/")), &root); err != nil {
		t.Fatal(err)
	}
	resolved, err := root.Resolve(&jsonschema.ResolveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return resolved
}

func wantSchema(t *testing.T, schema *jsonschema.Resolved, what string, text []byte) {
	t.Helper()
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatalf("%s: %v in %s", what, err, text)
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("%s: %v in %s", what, err, text)
	}
}

// TestAnswersAreAsTheDocumentSays holds requests and answers of a real server
// against the schemas.
func TestAnswersAreAsTheDocumentSays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d, _ := b.documented(t)
	advance := b.withHooks(t)
	session, run, approvals := b.waiting(t, advance)
	other := b.newSession(t)
	failed := b.start(t, other, "hi").RunID
	b.append(t, other, failed, 0, event.RunFailed{Reason: event.FailModel, Error: "no"})
	calls := procedures()
	maps.DeleteFunc(calls, func(_ string, m protoreflect.MethodDescriptor) bool { return m.IsStreamingServer() })
	for _, ask := range []struct{ call, body string }{
		{"SessionService/CreateSession", `{"externalId":"mine","title":"t","user":"u","metadata":{"k":"v"}}`},
		{"SessionService/GetSession", `{"externalId":"mine"}`},
		{"SessionService/ListSessions", `{"pageSize":1,"metadata":{"k":"v"}}`},
		{"SessionService/UpdateSession", fmt.Sprintf(`{"sessionId":%q,"title":"x","metadata":{"l":"m"},"removeMetadata":["k"]}`, session)},
		{"SessionService/ListMessages", fmt.Sprintf(`{"sessionId":%q}`, session)},
		{"SessionService/ListEvents", fmt.Sprintf(`{"sessionId":%q,"after":"1"}`, session)},
		{"RunService/GetRun", fmt.Sprintf(`{"runId":%q}`, run)},
		{"RunService/ListRuns", `{}`},
		{"ApprovalService/ListApprovals", `{"pendingOnly":true}`},
		{"ApprovalService/DecideApproval", fmt.Sprintf(`{"approvalId":%q,"decision":"APPROVAL_DECISION_DENY","reason":"no"}`, approvals[0].ID)},
		{"ApprovalService/GetApproval", fmt.Sprintf(`{"approvalId":%q}`, approvals[0].ID)},
		{"LedgerService/ListDecisions", fmt.Sprintf(`{"sessionId":%q}`, session)},
		{"RunService/RetryRun", fmt.Sprintf(`{"runId":%q}`, failed)},
		{"RunService/CancelRun", fmt.Sprintf(`{"runId":%q}`, run)},
		{"AdminService/Pause", `{"scope":"PAUSE_SCOPE_AGENT","agent":"main","reason":"r"}`},
		{"AdminService/ListPauses", `{}`},
		{"AdminService/FailRun", fmt.Sprintf(`{"runId":%q,"reason":"r"}`, b.start(t, b.newSession(t), "hi").RunID)},
		{"SessionService/DeleteSession", fmt.Sprintf(`{"sessionId":%q}`, session)},
		{"RunService/StartRun", fmt.Sprintf(`{"sessionId":%q,"text":"hi"}`, b.newSession(t))},
		{"AdminService/Resume", `{"scope":"PAUSE_SCOPE_AGENT","agent":"main"}`},
	} {
		path := "/agentd.v1." + ask.call
		m, ok := calls[path]
		if !ok {
			t.Fatalf("%s is no call", path)
		}
		delete(calls, path)
		wantSchema(t, schemaOf(t, d, string(m.Input().Name())), ask.call, []byte(ask.body))
		res := b.post(t, path, ask.body)
		answer, err := io.ReadAll(res.body)
		if err != nil || res.status != http.StatusOK || len(answer) <= len("{}") && m.Output().Fields().Len() > 0 {
			t.Fatalf("%s: status %d, %s, %v", ask.call, res.status, answer, err)
		}
		wantSchema(t, schemaOf(t, d, string(m.Output().Name())), ask.call, answer)
	}
	for path := range calls {
		t.Errorf("%s is not held against the document", path)
	}
	refused, err := io.ReadAll(b.post(t, getRun, `{"runId":"`+uuid.NewString()+`"}`).body)
	if err != nil {
		t.Fatal(err)
	}
	wantSchema(t, schemaOf(t, d, "CallError"), "an error of a call", refused)
	if refused, err = io.ReadAll(b.get(t, runEventsPath("nope", ""), nil).body); err != nil {
		t.Fatal(err)
	}
	wantSchema(t, schemaOf(t, d, "RouteError"), "an error of a route", refused)
	other, _ = b.finishedSession(t)
	kinds := map[event.Type]bool{}
	for _, fr := range readFrames(t, b.get(t, eventsPath(other, "?until=idle"), nil).body).rest() {
		wantSchema(t, schemaOf(t, d, "StreamedEvent"), "an event", fr.data)
		var e struct{ Type event.Type }
		if err := json.Unmarshal(fr.data, &e); err != nil {
			t.Fatal(err)
		}
		kinds[e.Type] = true
	}
	if len(kinds) < 5 {
		t.Errorf("saw only events of %v", kinds)
	}
}
