package plugin_test

import (
	"context"
	"encoding/json"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

// fakeHost answers with the token of the call.
type fakeHost struct {
	pluginv1.UnimplementedHostServiceServer
}

func token(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	return strings.Join(md.Get(wire.TokenKey), ",")
}

func (fakeHost) GetSystemPrompt(ctx context.Context, _ *pluginv1.GetSystemPromptRequest) (*pluginv1.GetSystemPromptResponse, error) {
	return &pluginv1.GetSystemPromptResponse{Text: "of " + token(ctx)}, nil
}

func (fakeHost) GetActiveTools(ctx context.Context, _ *pluginv1.GetActiveToolsRequest) (*pluginv1.GetActiveToolsResponse, error) {
	return &pluginv1.GetActiveToolsResponse{Names: []string{token(ctx)}}, nil
}

func (fakeHost) SetActiveTools(ctx context.Context, q *pluginv1.SetActiveToolsRequest) (*pluginv1.SetActiveToolsResponse, error) {
	return &pluginv1.SetActiveToolsResponse{Names: append([]string{token(ctx)}, q.GetNames()...)}, nil
}

func (fakeHost) RegisterTool(ctx context.Context, q *pluginv1.RegisterToolRequest) (*pluginv1.RegisterToolResponse, error) {
	if q.GetTool().GetName() == "reserved" {
		return nil, status.Error(codes.InvalidArgument, "it is reserved")
	}
	return &pluginv1.RegisterToolResponse{Name: token(ctx) + "_" + q.GetTool().GetName()}, nil
}

// hostAddress is where the fake host listens.
func hostAddress(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "h")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pluginv1.RegisterHostServiceServer(server, fakeHost{})
	go func() { _ = server.Serve(l) }() // ends with the server
	t.Cleanup(server.Stop)
	return "unix:" + path
}

func TestTheHostIsAskedWithTheTokenOfTheCall(t *testing.T) {
	t.Parallel()
	var (
		prompt string
		tools  []string
		errs   [3]error
	)
	plug := inside(t, plugin.Config{ID: "x", Hooks: hooks.Hooks{
		BeforeExecute: func(ctx context.Context, in hooks.BeforeExecute) (hooks.BeforeExecuteResult, error) {
			h := plugin.HostFrom(ctx)
			prompt, errs[0] = h.SystemPrompt(ctx)
			if in.Turn == 1 {
				tools, errs[1] = h.ActiveTools(ctx)
			} else {
				tools, errs[1] = h.SetActiveTools(ctx, []string{"ping"})
			}
			_, errs[2] = h.SystemPrompt(context.Background()) // of no call
			return hooks.BeforeExecuteResult{Action: hooks.ActionContinue}, nil
		},
	}})
	if _, err := plug.Bootstrap(t.Context(), &pluginv1.BootstrapRequest{HostAddress: hostAddress(t), HostToken: "boot"}); err != nil {
		t.Fatal(err)
	}
	for turn, want := range map[int][]string{1: {"one"}, 2: {"two", "ping"}} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), wire.TokenKey, want[0])
		if _, err := plug.Evaluate(ctx, wire.BeforeExecute.Ask(hooks.BeforeExecute{Turn: turn})); err != nil {
			t.Fatal(err)
		}
		if prompt != "of "+want[0] || !slices.Equal(tools, want) || errs[0] != nil || errs[1] != nil || errs[2] == nil {
			t.Errorf("%q, %q, %v", prompt, tools, errs)
		}
	}
	// Without a token of the call there is none that would do.
	if _, err := plug.Evaluate(t.Context(), wire.BeforeExecute.Ask(hooks.BeforeExecute{Turn: 2})); err != nil || errs[0] == nil || errs[1] == nil {
		t.Errorf("without a token: %v, %v", err, errs)
	}
}

func TestAToolMayBeRegisteredLater(t *testing.T) {
	t.Parallel()
	later := plugin.Tool{Name: "later", Schema: json.RawMessage(`{}`), Run: func(context.Context, plugin.ToolInput, func(string)) (plugin.ToolOutput, error) {
		return plugin.ToolOutput{Content: "done"}, nil
	}}
	reserved, broken := later, later
	reserved.Name, broken.Name = "reserved", "no name"
	var name string
	var errs [4]error
	plug := inside(t, plugin.Config{ID: "x", Hooks: hooks.Hooks{
		OnRunStart: func(ctx context.Context, _ hooks.RunStart) {
			h := plugin.HostFrom(ctx)
			name, errs[0] = h.RegisterTool(ctx, later)
			_, errs[1] = h.RegisterTool(ctx, later)
			_, errs[2] = h.RegisterTool(ctx, reserved)
			_, errs[3] = h.RegisterTool(ctx, broken)
		},
	}})
	if _, err := plug.Bootstrap(t.Context(), &pluginv1.BootstrapRequest{HostAddress: hostAddress(t), HostToken: "boot"}); err != nil {
		t.Fatal(err)
	}
	if _, err := plug.Notify(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	if name != "boot_later" || errs[0] != nil || errs[1] == nil || errs[2] == nil || errs[3] == nil {
		t.Errorf("%q, %v", name, errs)
	}
	if _, out, err := execute(t, plug, &pluginv1.ExecuteToolRequest{Tool: "later"}); err != nil || out.GetContent() != "done" {
		t.Errorf("%v, %v", out, err)
	}
	if _, _, err := execute(t, plug, &pluginv1.ExecuteToolRequest{Tool: "reserved"}); status.Code(err) != codes.NotFound {
		t.Errorf("a tool that the host does not take: %v", err)
	}
}

func TestWithoutAHostItsCallsFail(t *testing.T) {
	t.Parallel()
	h := plugin.HostFrom(t.Context())
	_, prompt := h.SystemPrompt(t.Context())
	_, active := h.ActiveTools(t.Context())
	_, set := h.SetActiveTools(t.Context(), nil)
	_, register := h.RegisterTool(t.Context(), plugin.Tool{Name: "x", Schema: json.RawMessage(`{}`), Run: func(context.Context, plugin.ToolInput, func(string)) (plugin.ToolOutput, error) {
		return plugin.ToolOutput{}, nil
	}})
	if h != nil || prompt == nil || active == nil || set == nil || register == nil {
		t.Error(h, prompt, active, set, register)
	}
}

func TestReservedCallsAreUnimplemented(t *testing.T) {
	t.Parallel()
	plug := inside(t, plugin.Config{ID: "x"})
	if _, err := plug.Bootstrap(t.Context(), &pluginv1.BootstrapRequest{HostAddress: hostAddress(t)}); err != nil {
		t.Fatal(err)
	}
	var h fakeHost
	_, command := h.RegisterCommand(t.Context(), nil)
	_, flag := h.RegisterFlag(t.Context(), nil)
	_, message := h.SendUserMessage(t.Context(), nil)
	_, entry := h.AppendEntry(t.Context(), nil)
	_, emit := h.EventsEmit(t.Context(), nil)
	for _, err := range []error{command, flag, message, entry, emit} {
		if status.Code(err) != codes.Unimplemented {
			t.Error(err)
		}
	}
}
