package event_test

import (
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

var update = flag.Bool("update", false, "create the golden files that are missing; existing ones are never rewritten")

var cost = &event.Cost{Micros: 90, InputPrice: 2_500_000, OutputPrice: 15_000_000}

var mark = event.LedgerMark{LedgerSeq: 4, LedgerHead: "00ff"}

// samples has a payload per type with every field set. A type that got fields
// after it was released has another sample behind its first one, which stays as
// it is.
var samples = []event.Payload{
	event.SessionCreated{TenantID: "acme", ExternalID: "chat <1> & more", Sanitized: true},
	event.SessionDeleted{},
	event.MessageCreated{MessageID: "m-1", Role: hooks.RoleUser, Parts: []hooks.Part{{Type: hooks.PartText, Text: "héllo <b> & \u2028 🙂"}}, Sanitized: true},
	event.RunCreated{Agent: "demo", MessageID: "m-1", AssistantMessageID: "m-2", IdempotencyKey: "k", RequestSHA256: "00ff", Sanitized: true},
	event.RunQueued{Ticket: 2, Cause: "job_lost"},
	event.RunStarted{WorkerID: "w-1", Epoch: 1, Ticket: 1},
	event.RunResumed{WorkerID: "w-2", Epoch: 3, Ticket: 2, Cause: event.ResumeTakeover},
	event.RunReleased{Cause: event.ReleaseWorkerDead, WorkerID: "w-1", Epoch: 2, Ticket: 2, NotBefore: new(time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC))},
	event.TurnStarted{},
	event.ModelRequested{Attempt: 1, Model: "some-model", MessageIDs: []string{"m-1"}, Tools: []string{"look"}},
	event.AssistantDelta{Attempt: 1, Lane: stream.LaneText, BlockID: "0", Text: "let me ", Sanitized: true},
	event.AssistantDiscarded{Attempt: 1, Reason: "interrupted"},
	event.AssistantDiscarded{
		Attempt: 1, Reason: "failed", Error: "the provider is busy", Code: "overloaded", Status: 529,
		RetryAt: new(time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)), Sanitized: true,
	},
	event.AssistantCompleted{
		Attempt: 2, MessageID: "m-3", Finish: stream.FinishToolCalls, FinishRaw: "tool_use",
		Usage: stream.Usage{InputTokens: 3, OutputTokens: 5}, FirstSeq: 9, Sanitized: true,
		Parts: []hooks.Part{
			{Type: hooks.PartReasoning, Text: "hm"},
			{Type: hooks.PartText, Text: "let me look"},
			{Type: hooks.PartToolCall, ToolCall: &hooks.ToolCall{ID: "c-1", ProviderID: "call_1", Name: "look", Arguments: `{"n": 9007199254740993}`}},
		},
	},
	event.AssistantStopped{Attempt: 1, MessageID: "m-3", Parts: []hooks.Part{{Type: hooks.PartText, Text: "let"}}, Reason: "cancelled", FirstSeq: 9, Sanitized: true},
	event.ToolProposed{CallID: "c-1", Number: 1, Name: "look", Arguments: `{"n": 9007199254740993}`, ProviderCallID: "call_1", Sanitized: true},
	event.ToolStarted{CallID: "c-1", Attempt: 1},
	event.ToolExecuted{CallID: "c-1", Attempt: 1, Success: true, SHA256: "00ff", Bytes: 4},
	event.ToolResult{CallID: "c-1", MessageID: "m-4", Name: "look", Content: "seen", IsError: true, Reason: hooks.ReasonToolError, Sanitized: true},
	event.TurnCompleted{},
	event.RunCancelRequested{Reason: "changed my mind", Sanitized: true},
	event.RunCompleted{Reason: stream.FinishStop},
	event.RunFailed{Reason: event.FailModel, Error: "the provider said no", Sanitized: true},
	event.RunCancelled{Reason: "changed my mind"},
	event.RunCompleted{LedgerMark: mark, Reason: stream.FinishStop},
	event.RunFailed{LedgerMark: mark, Reason: event.FailBlocked, Error: "not on Sundays", Sanitized: true},
	event.RunFailed{LedgerMark: mark, Reason: event.FailModel, Error: "the provider is busy", Code: "overloaded", Status: 529, Sanitized: true},
	event.RunCancelled{LedgerMark: mark, Reason: "changed my mind"},
	event.RunStarted{WorkerID: "w-1", Epoch: 1, Ticket: 1, HookSet: "00ff"},
	event.RunResumed{WorkerID: "w-2", Epoch: 3, Ticket: 2, Cause: event.ResumeApproval, HookSet: "00ff"},
	event.ModelRequested{
		Attempt: 1, Model: "some-model", MessageIDs: []string{"m-1"}, Tools: []string{"look"},
		Messages: []hooks.Message{{ID: "m-1", RunID: "r-1", Role: hooks.RoleUser, Parts: []hooks.Part{{Type: hooks.PartText, Text: "[removed]"}}, Position: 2}},
	},
	event.ToolStarted{CallID: "c-1", Attempt: 1, Arguments: new(`{"n": 1}`), ArgumentsSHA256: "00ff"},
	event.InputHandled{
		InputID: "i-1", Agent: "demo", Input: event.Digest{SHA256: "00ff", Bytes: 4}, Reply: "hello <b>", IdempotencyKey: "k", RequestSHA256: "ff00", Sanitized: true,
	},
	event.InputBlocked{InputID: "i-1", Agent: "demo", Input: event.Digest{SHA256: "00ff", Bytes: 4}, ReasonCode: "secret", Reason: "no keys here", IdempotencyKey: "k", RequestSHA256: "ff00", Sanitized: true},
	event.InputRejected{InputID: "i-1", Agent: "demo", Input: event.Digest{SHA256: "00ff", Bytes: 4}, Policy: "reject", ActiveRunID: "r-1", IdempotencyKey: "k", RequestSHA256: "ff00", Sanitized: true},
	event.RunPrepared{
		System: new("be brief"), Tools: &[]string{"look"}, Sanitized: true,
		Messages: []event.PreparedMessage{{MessageID: "m-2", Role: hooks.RoleSystem, Text: "it is Sunday"}},
	},
	event.RunSuspended{Reason: "approval", ApprovalIDs: []string{"a-1"}},
	event.ToolBlocked{CallID: "c-1", By: "BeforeToolCall", ReasonCode: "tool_denied", Reason: "not on Sundays", Sanitized: true},
	event.ApprovalRequested{
		ApprovalID: "a-1", CallID: "c-1", Name: "pay", Arguments: `{"n": 9007199254740993}`, ArgumentsSHA256: "00ff", By: "permission",
		Reason: "more than 100", Sanitized: true,
	},
	event.ApprovalDecided{ApprovalID: "a-1", CallID: "c-1", Decision: event.DecisionDenied, ArgumentsSHA256: "00ff", Reason: "too much", Sanitized: true},
	event.SessionCreated{
		TenantID: "acme", ExternalID: "chat 1", Title: "Trip to <Rome>", Metadata: map[string]string{"team": "a&b", "plan": ""}, User: "u-1", Sanitized: true,
	},
	event.SessionUpdated{Title: new("Trip to Rome"), Metadata: map[string]*string{"team": nil, "plan": new("gold")}, Sanitized: true},
	event.MessagesReplaced{FromMessageID: "m-3", MessageIDs: []string{"m-3", "m-4"}},
	event.MessageCreated{MessageID: "m-1", Role: hooks.RoleUser, Parts: []hooks.Part{{Type: hooks.PartText, Text: "and then?"}}, Sanitized: true, Enqueued: true},
	event.RunCreated{
		Agent: "demo", MessageID: "m-1", AssistantMessageID: "m-2", IdempotencyKey: "k", RequestSHA256: "00ff", Sanitized: true, Policy: event.PolicyEnqueue,
	},
	event.AssistantDiscarded{
		Attempt: 1, Reason: "failed", Error: "the provider is busy", Code: "overloaded", Status: 529,
		RetryAt: new(time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)), Usage: &stream.Usage{InputTokens: 3}, Cost: cost, Sanitized: true,
	},
	event.AssistantCompleted{
		Attempt: 2, MessageID: "m-3", Finish: stream.FinishStop, FinishRaw: "end_turn",
		Usage: stream.Usage{InputTokens: 3, OutputTokens: 5}, Cost: cost, FirstSeq: 9, Sanitized: true,
		Parts: []hooks.Part{{Type: hooks.PartText, Text: "done"}},
	},
	event.AssistantStopped{
		Attempt: 1, MessageID: "m-3", Parts: []hooks.Part{{Type: hooks.PartText, Text: "let"}}, Reason: "model_error", FirstSeq: 9,
		Usage: &stream.Usage{InputTokens: 3, OutputTokens: 1}, Cost: cost, Sanitized: true,
	},
	event.ApprovalRequested{
		ApprovalID: "a-2", Kind: event.ApprovalOfOutcome, CallID: "c-1", Name: "pay", Arguments: `{"n": 9007199254740993}`, ArgumentsSHA256: "00ff", By: "on_unknown",
		Reason: "attempt 1 was interrupted", Sanitized: true,
	},
	event.RunCancelRequested{Reason: "changed my mind", Sanitized: true, Rollback: true},
	event.ApprovalRequested{
		ApprovalID: "a-3", Kind: event.ApprovalOfOutcome, CallID: "c-1", Name: "pay", Arguments: `{"n": 9007199254740993}`, ArgumentsSHA256: "00ff", By: "BeforeToolCall",
		Reason: "more than 100", Sanitized: true, ChangedFrom: new(`{"n": 9007199254740994}`), Approvers: []string{"ops-*", "local"}, TimeoutMS: 259_200_000,
	},
	event.Emission{
		Attempt: 1, Observer: "metrics", Channel: "tokens", Chunk: 7, Sanitized: true,
		Envelope: json.RawMessage(`{"n":9007199254740993,"b":1.50,"a":"<&>","n":1}`),
	},
	event.AssistantStopped{
		Attempt: 1, MessageID: "m-3", Parts: []hooks.Part{{Type: hooks.PartText, Text: "let"}}, Reason: event.StoppedByObserver, FirstSeq: 9,
		Usage: &stream.Usage{InputTokens: 3, OutputTokens: 1}, Cost: cost, Sanitized: true, Observer: "refusals", Chunk: 7, Accepted: 3, Policy: stream.StopRetry,
		Notice: &event.PreparedMessage{MessageID: "m-4", Role: hooks.RoleSystem, Text: "the answer was stopped"},
	},
	event.ToolsNarrowed{Required: true, By: "policy", DecisionID: "d-1", CallID: "c-1", Tools: []string{"ping", "look"}},
	event.ToolProgress{CallID: "c-1", Attempt: 1, Number: 3, Text: "half <of> it", Withheld: true, Sanitized: true},
	event.ApprovalDecided{
		ApprovalID: "a-1", CallID: "c-1", Decision: event.DecisionEdited, ArgumentsSHA256: "00ff", Reason: "less", Sanitized: true,
		EditedArguments: new(`{ "n": 9007199254740994 }`), EditedSHA256: "ff00",
	},
}

func TestGolden(t *testing.T) {
	t.Parallel()
	byType := map[event.Type][]event.Payload{}
	for _, p := range samples {
		byType[p.EventType()] = append(byType[p.EventType()], p)
	}
	for _, typ := range event.Types() {
		t.Run(string(typ), func(t *testing.T) {
			t.Parallel()
			all := byType[typ]
			if len(all) == 0 {
				t.Fatal("no sample: add one with every field set")
			}
			newest := reflect.ValueOf(all[len(all)-1])
			for i := range newest.NumField() {
				if newest.Field(i).IsZero() {
					t.Errorf("the newest sample does not set %s", newest.Type().Field(i).Name)
				}
			}
			for i, p := range all {
				isGolden(t, goldenName(typ, i+1), p)
			}
		})
	}
}

// goldenName is the file of a type's nth sample.
func goldenName(typ event.Type, n int) string {
	if n == 1 {
		return string(typ) + ".json"
	}
	return string(typ) + "." + strconv.Itoa(n) + ".json"
}

func isGolden(t *testing.T, name string, p event.Payload) {
	t.Helper()
	e, err := event.New(event.Scope{}, p)
	if err != nil {
		t.Fatal(err)
	}
	if want := golden(t, name, e.Payload); string(e.Payload) != want {
		t.Errorf("a released payload has changed\n got %s\nwant %s", e.Payload, want)
	}
	got, err := event.Decode(e)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, p) {
		t.Errorf("decoded %+v; want %+v", got, p)
	}
}

func golden(t *testing.T, file string, payload []byte) string {
	t.Helper()
	name := filepath.Join("testdata", "golden", file)
	if *update {
		if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
			if err := os.WriteFile(name, append(payload, '\n'), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatalf("%v: run this test with -update", err)
	}
	return strings.TrimSuffix(string(want), "\n")
}

func TestGoldenFilesAreOfKnownSamples(t *testing.T) {
	t.Parallel()
	known, count := map[string]bool{}, map[event.Type]int{}
	for _, p := range samples {
		count[p.EventType()]++
		known[goldenName(p.EventType(), count[p.EventType()])] = true
	}
	files, err := os.ReadDir(filepath.Join("testdata", "golden"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !known[f.Name()] {
			t.Errorf("%s belongs to no sample: a released type never goes away", f.Name())
		}
	}
}
