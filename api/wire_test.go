package api

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
)

func TestStatusesAndRolesKeepTheirWords(t *testing.T) {
	t.Parallel()
	for _, s := range []loop.RunStatus{loop.RunEnqueued, loop.RunQueued, loop.RunRunning, loop.RunCompleted, loop.RunFailed, loop.RunCancelled} {
		if got, want := wireStatus(s).String(), "RUN_STATUS_"+strings.ToUpper(string(s)); got != want {
			t.Errorf("%s: %s, want %s", s, got, want)
		}
	}
	for _, r := range []hooks.Role{hooks.RoleSystem, hooks.RoleUser, hooks.RoleAssistant, hooks.RoleTool} {
		if got, want := wireRole(r).String(), "ROLE_"+strings.ToUpper(string(r)); got != want {
			t.Errorf("%s: %s, want %s", r, got, want)
		}
	}
	if wireStatus("new") != agentdv1.RunStatus_RUN_STATUS_UNSPECIFIED || wireStatus(loop.RunNone) != 0 || wireRole("new") != agentdv1.Role_ROLE_UNSPECIFIED {
		t.Error("an unknown word is not unspecified")
	}
}

func TestPartsKeepTheirBytesAndUnknownOnesAreLeftOut(t *testing.T) {
	t.Parallel()
	const arguments = `{"id":9007199254740993, "id":1}`
	got := wireMessage(loop.MessageInfo{Message: hooks.Message{ID: "m", Partial: true, Parts: []hooks.Part{
		{Type: hooks.PartToolCall, ToolCall: &hooks.ToolCall{ID: "c", ProviderID: "p", Name: "n", Arguments: arguments}},
		{Type: "video"},
		{Type: hooks.PartToolCall},
		{Type: hooks.PartToolResult, ToolResult: &hooks.ToolResult{CallID: "c", Content: "no", IsError: true, Reason: hooks.ReasonCancelled}},
	}}})
	if !got.GetPartial() || len(got.GetParts()) != 2 {
		t.Fatalf("got %v, want a partial message of two parts", got)
	}
	if call := (&agentdv1.ToolCall{Id: "c", Name: "n", Arguments: arguments}); !proto.Equal(got.GetParts()[0].GetToolCall(), call) {
		t.Errorf("got %v, want %v", got.GetParts()[0], call)
	}
	if result := (&agentdv1.ToolResult{CallId: "c", Content: "no", IsError: true, Reason: "cancelled"}); !proto.Equal(got.GetParts()[1].GetToolResult(), result) {
		t.Errorf("got %v, want %v", got.GetParts()[1], result)
	}
}

func TestRunTimesAreUnsetUntilTheyAreKnown(t *testing.T) {
	t.Parallel()
	at := time.Unix(1, 0)
	if r := wireRun(loop.RunInfo{StartedAt: &at}); !r.GetStartedAt().AsTime().Equal(at) || r.GetEndedAt() != nil {
		t.Errorf("got %v", r)
	}
}

// Plain routes answer with the status that an RPC of the same code has.
func TestPlainRoutesHaveConnectsStatuses(t *testing.T) {
	t.Parallel()
	for code := connect.CodeCanceled; code <= connect.CodeUnauthenticated; code++ {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/", http.NoBody)
		r.Header.Set("Content-Type", "application/json")
		if err := rpcErrors.Write(w, r, connect.NewError(code, errors.New("x"))); err != nil {
			t.Fatal(err)
		}
		if got := httpStatus(code); got != w.Code {
			t.Errorf("%s: %d, want %d", code, got, w.Code)
		}
	}
}
