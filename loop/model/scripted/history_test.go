package scripted_test

import (
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/model/scripted"
)

func TestAHistoryThatAProviderWouldRefuseIsRefused(t *testing.T) {
	t.Parallel()
	wrongPart := func(role hooks.Role, part hooks.PartType) hooks.Message {
		return hooks.Message{Role: role, Parts: []hooks.Part{{Type: part}}}
	}
	unnamed := calling("1")
	unnamed.Parts[0].ToolCall.Name = ""
	tests := []struct {
		name    string
		history []hooks.Message
		want    string
	}{
		{"Empty", nil, "there is no user message"},
		{"CallWithoutResult", []hooks.Message{user("x"), calling("1")}, "tool call 1 has no result"},
		{"OneOfTwoResultsMissing", []hooks.Message{user("x"), calling("1", "2"), result("1", "r"), user("y")}, "messages[3]: tool call 2 has no result before the next user message"},
		{"ResultWithoutCall", []hooks.Message{user("x"), result("1", "r")}, "the result for 1 has no call"},
		{"ResultTwice", []hooks.Message{user("x"), calling("1"), result("1", "r"), result("1", "r")}, "the result for 1 has no call"},
		{"ResultsOutOfOrder", []hooks.Message{user("x"), calling("1", "2"), result("2", "r"), result("1", "r")}, "the result for 2 stands where the one for 1 belongs"},
		{"UnnamedTool", []hooks.Message{user("x"), unnamed}, "no id or no name"},
		{"SameIDTwice", []hooks.Message{user("x"), calling("1", "1")}, "share the id 1"},
		{"EmptyUserMessage", []hooks.Message{user("")}, "a user message is empty"},
		{"EmptyToolMessage", []hooks.Message{user("x"), {Role: hooks.RoleTool}}, "a tool message is empty"},
		{"CallFromUser", []hooks.Message{wrongPart(hooks.RoleUser, hooks.PartToolCall)}, "a part of type tool_call"},
		{"ResultFromAssistant", []hooks.Message{user("x"), wrongPart(hooks.RoleAssistant, hooks.PartToolResult)}, "holds a tool result"},
		{"TextFromTool", []hooks.Message{user("x"), text(hooks.RoleTool, "r")}, "something else than a result"},
		{"UnknownRole", []hooks.Message{text("robot", "x")}, `role "robot" is unknown`},
	}
	m := newModel(t, oneAnswer(`{"text":"never"}`), scripted.Options{})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := play(t.Context(), m, request(tt.history...))
			if me := wantModelError(t, err, "invalid_request_error", tt.want); me.Retryable || me.Status != 400 || len(got) > 0 {
				t.Errorf("got %+v after %q", me, got)
			}
		})
	}
}
