package plugin_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

func TestBootstrapComesFirstAndOnce(t *testing.T) {
	t.Parallel()
	var config string
	plug := inside(t, plugin.Config{
		ID: "x", Version: "2", Configure: func(c json.RawMessage) error { config = string(c); return nil },
	})
	if _, err := plug.Evaluate(t.Context(), wire.BeforeExecute.Ask(hooks.BeforeExecute{})); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("asked before: %v", err)
	}
	if _, err := plug.Notify(t.Context(), &pluginv1.NotifyRequest{}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("told before: %v", err)
	}
	stream, err := plug.ExecuteTool(t.Context(), &pluginv1.ExecuteToolRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("run before: %v", err)
	}
	about, err := plug.Bootstrap(t.Context(), &pluginv1.BootstrapRequest{ConfigJson: `{"a":1}`})
	if err != nil || about.GetId() != "x" || about.GetVersion() != "2" || about.GetSdk() == "" || config != `{"a":1}` {
		t.Errorf("%v, %v, config %s", about, err, config)
	}
	if _, err := plug.Bootstrap(t.Context(), &pluginv1.BootstrapRequest{}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("told twice: %v", err)
	}
}

func TestAConfigThatIsRefusedStopsThePlugin(t *testing.T) {
	t.Parallel()
	plug := inside(t, plugin.Config{ID: "x", Configure: func(c json.RawMessage) error { return errors.New("no limit in " + string(c)) }})
	_, err := plug.Bootstrap(t.Context(), &pluginv1.BootstrapRequest{})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "no limit in {}") {
		t.Error(err)
	}
	if _, err := plug.Notify(t.Context(), &pluginv1.NotifyRequest{}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("told behind it: %v", err)
	}
	plug = inside(t, plugin.Config{ID: "x"})
	if _, err := plug.Bootstrap(t.Context(), &pluginv1.BootstrapRequest{HostAddress: "dns:example.com:1"}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a host elsewhere: %v", err)
	}
}

func TestHealthAsksThePlugin(t *testing.T) {
	t.Parallel()
	var broken error
	plug := told(t, plugin.Config{ID: "x", Health: func(context.Context) error { return broken }})
	if h, err := plug.Health(t.Context(), &pluginv1.HealthRequest{}); err != nil || !h.GetReady() {
		t.Errorf("%v, %v", h, err)
	}
	broken = errors.New("no list")
	if h, err := plug.Health(t.Context(), &pluginv1.HealthRequest{}); err != nil || h.GetReady() || h.GetMessage() != "no list" {
		t.Errorf("%v, %v", h, err)
	}
	if _, err := plug.Drain(t.Context(), &pluginv1.DrainRequest{}); err != nil {
		t.Fatal(err)
	}
	if h, err := plug.Health(t.Context(), &pluginv1.HealthRequest{}); err != nil || h.GetReady() || h.GetMessage() == "no list" {
		t.Errorf("drained: %v, %v", h, err)
	}
	if _, err := plug.Evaluate(t.Context(), wire.BeforeExecute.Ask(hooks.BeforeExecute{})); status.Code(err) != codes.Unimplemented {
		t.Errorf("asked where there is no hook: %v", err)
	}
}

func TestDrainWaitsForWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}), make(chan struct{})
	plug := told(t, plugin.Config{ID: "x", Hooks: hooks.Hooks{
		BeforeExecute: func(context.Context, hooks.BeforeExecute) (hooks.BeforeExecuteResult, error) {
			close(began)
			<-release
			return hooks.BeforeExecuteResult{Action: hooks.ActionContinue}, nil
		},
	}})
	answers, drained := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := answer(t, plug, wire.BeforeExecute, hooks.BeforeExecute{})
		answers <- err
	}()
	<-began
	go func() {
		_, err := plug.Drain(t.Context(), &pluginv1.DrainRequest{})
		drained <- err
	}()
	within(t, func() bool {
		h, err := plug.Health(t.Context(), &pluginv1.HealthRequest{})
		return err == nil && !h.GetReady()
	})
	if _, err := answer(t, plug, wire.BeforeExecute, hooks.BeforeExecute{}); status.Code(err) != codes.Unavailable {
		t.Errorf("asked behind it: %v", err)
	}
	select {
	case err := <-drained:
		t.Error("it did not wait", err)
	default:
	}
	close(release)
	if err := errors.Join(<-answers, <-drained); err != nil {
		t.Error(err)
	}
}

// execute runs a tool.
func execute(t *testing.T, plug pluginv1.PluginServiceClient, q *pluginv1.ExecuteToolRequest) (progress []string, out *pluginv1.ToolOutput, err error) {
	t.Helper()
	stream, err := plug.ExecuteTool(t.Context(), q)
	for err == nil {
		var m *pluginv1.ExecuteToolResponse
		if m, err = stream.Recv(); err == nil && m.GetOutput() != nil {
			out = m.GetOutput()
		} else if err == nil {
			progress = append(progress, m.GetProgress().GetText())
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return progress, out, err
}

func TestAToolSaysHowFarItIsAndWhatCameOfIt(t *testing.T) {
	t.Parallel()
	var seen plugin.ToolInput
	late := make(chan func(string), 1)
	plug := told(t, plugin.Config{ID: "x", Tools: []plugin.Tool{{
		Name: "t", Schema: json.RawMessage(`{}`),
		Run: func(ctx context.Context, in plugin.ToolInput, progress func(string)) (plugin.ToolOutput, error) {
			seen = in
			switch in.Attempt {
			case 1:
				progress("half\xff")
				late <- progress
				return plugin.ToolOutput{Content: "a\xffb", IsError: true}, nil
			case 2:
				return plugin.ToolOutput{}, errors.New("broken")
			case 3:
				panic("broken")
			case 4:
				runtime.Goexit()
			case 5:
				<-ctx.Done()
				return plugin.ToolOutput{}, ctx.Err()
			case 6:
				for range 10_000 {
					progress(strings.Repeat("y", 2*wire.MaxProgress))
				}
			}
			return plugin.ToolOutput{Content: "done"}, nil
		},
	}}})
	progress, out, err := execute(t, plug, &pluginv1.ExecuteToolRequest{
		CallId: "c", Attempt: 1, Tool: "t", ArgumentsJson: `{"n":9007199254740993}`,
		Run: &pluginv1.RunRef{TenantId: "t", SessionId: "s", RunId: "r", Agent: "demo"},
	})
	if err != nil || len(progress) != 1 || progress[0] != "half\uFFFD" || out.GetContent() != "a\uFFFDb" || !out.GetIsError() {
		t.Errorf("%q, %v, %v", progress, out, err)
	}
	if seen.CallID != "c" || seen.Run != ref || string(seen.Arguments) != `{"n":9007199254740993}` {
		t.Errorf("it saw %+v", seen)
	}
	(<-late)("too late")
	for attempt, code := range map[int32]codes.Code{2: codes.Internal, 3: codes.Internal, 4: codes.Internal, 5: codes.DeadlineExceeded} {
		q := &pluginv1.ExecuteToolRequest{Attempt: attempt, Tool: "t"}
		if attempt == 5 {
			q.DeadlineMs = 1
		}
		// A tool that says itself that time was up has failed.
		if _, out, err := execute(t, plug, q); out != nil || status.Code(err) != code && (attempt != 5 || status.Code(err) != codes.Internal) {
			t.Errorf("attempt %d: %v, %v", attempt, out, err)
		}
	}
	progress, out, err = execute(t, plug, &pluginv1.ExecuteToolRequest{Attempt: 6, Tool: "t"})
	if err != nil || out.GetContent() != "done" || len(progress) == 0 || len(progress[0]) != wire.MaxProgress {
		t.Errorf("%d messages, %v, %v", len(progress), out, err)
	}
	if _, _, err := execute(t, plug, &pluginv1.ExecuteToolRequest{Tool: "other"}); status.Code(err) != codes.NotFound {
		t.Errorf("a tool that there is not: %v", err)
	}
}
