package event_test

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

var update = flag.Bool("update", false, "create the golden files that are missing; existing ones are never rewritten")

// samples has one payload per type with every field set.
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
}

func TestGolden(t *testing.T) {
	t.Parallel()
	byType := map[event.Type]event.Payload{}
	for _, p := range samples {
		byType[p.EventType()] = p
	}
	for _, typ := range event.Types() {
		t.Run(string(typ), func(t *testing.T) {
			t.Parallel()
			p, ok := byType[typ]
			if !ok {
				t.Fatal("no sample: add one with every field set")
			}
			for i := range reflect.TypeOf(p).NumField() {
				if reflect.ValueOf(p).Field(i).IsZero() {
					t.Errorf("the sample does not set %s", reflect.TypeOf(p).Field(i).Name)
				}
			}
			e, err := event.New(event.Scope{}, p)
			if err != nil {
				t.Fatal(err)
			}
			if want := golden(t, typ, e.Payload); string(e.Payload) != want {
				t.Errorf("a released payload has changed\n got %s\nwant %s", e.Payload, want)
			}
			got, err := event.Decode(e)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, p) {
				t.Errorf("decoded %+v; want %+v", got, p)
			}
		})
	}
}

func golden(t *testing.T, typ event.Type, payload []byte) string {
	t.Helper()
	name := filepath.Join("testdata", "golden", string(typ)+".json")
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

func TestGoldenFilesAreOfKnownTypes(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, typ := range event.Types() {
		known[string(typ)+".json"] = true
	}
	files, err := os.ReadDir(filepath.Join("testdata", "golden"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !known[f.Name()] {
			t.Errorf("%s belongs to no event type: a released type never goes away", f.Name())
		}
	}
}
