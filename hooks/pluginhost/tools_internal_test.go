package pluginhost

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

type executing = grpc.ServerStreamingServer[pluginv1.ExecuteToolResponse]

// desk is a plugin with a tool that runs execute.
func desk(t testing.TB, s *Service, execute func(*pluginv1.ExecuteToolRequest, executing) error) (*Plugin, *Tool) {
	t.Helper()
	f := &fake{execute: execute}
	p := up(f.serve(t, Manifest{ID: "the.desk", Version: "1"}, grpc.MaxSendMsgSize(1<<30)), &pluginv1.BootstrapResponse{
		Id: "the.desk", Version: "1", Tools: []*pluginv1.ToolSpec{{Name: "open", Description: "opens", SchemaJson: `{"type":"object"}`, Idempotent: true}},
	})
	tools := s.caller([]*Plugin{p, p}).Tools()
	if len(tools) != 1 {
		t.Fatalf("%d tools; want one of each name", len(tools))
	}
	return p, tools[0]
}

func gave(text string, isError bool) *pluginv1.ExecuteToolResponse {
	return &pluginv1.ExecuteToolResponse{Message: &pluginv1.ExecuteToolResponse_Output{Output: &pluginv1.ToolOutput{Content: text, IsError: isError}}}
}

func progressed(text string) *pluginv1.ExecuteToolResponse {
	return &pluginv1.ExecuteToolResponse{Message: &pluginv1.ExecuteToolResponse_Progress{Progress: &pluginv1.ToolProgress{Text: text}}}
}

func TestAToolRunsInItsPlugin(t *testing.T) {
	t.Parallel()
	s := newService(t, oneRun{})
	p, tool := desk(t, s, func(q *pluginv1.ExecuteToolRequest, stream executing) error {
		if q.GetTool() != "open" || q.GetCallId() != "c" || q.GetAttempt() != 2 || q.GetArgumentsJson() != `{"n":9007199254740993}` || q.GetRun().GetAgent() != "demo" {
			t.Errorf("asked %v", q)
		}
		prompt, err := hostOf(t, s.address).GetSystemPrompt(with(stream.Context(), given(stream.Context())), &pluginv1.GetSystemPromptRequest{})
		if err != nil || prompt.GetText() != "be kind" {
			t.Errorf("the host says %v, %v", prompt, err)
		}
		return errors.Join(stream.Send(progressed("half")), stream.Send(progressed(strings.Repeat("x", 5000))), stream.Send(gave("done", true)), stream.Send(gave("twice", false)))
	})
	if tool.Name != "the-desk__open" || tool.Description != "opens" || !tool.Idempotent || tool.Plugin() != "the.desk" || !tool.Available() || tool.Validate([]byte("{")) == nil {
		t.Errorf("tool %+v", tool)
	}
	var said []string
	out, err := tool.Execute(t.Context(), Execution{CallID: "c", Attempt: 2, Run: about, Arguments: []byte(`{"n":9007199254740993}`)}, func(text string) { said = append(said, text) })
	if err != nil || out != (Output{"done", true}) || len(said) != 2 || said[0] != "half" || len(said[1]) != wire.MaxProgress {
		t.Errorf("%+v, %v, progress %q", out, err, said)
	}
	p.process = nil
	if tool.Available() {
		t.Error("it is there while its plugin is down")
	}
	var f *hooks.Failure
	if _, err := tool.Execute(t.Context(), Execution{}, nil); !errors.As(err, &f) || f.Outcome != hooks.OutcomeUnavailable {
		t.Errorf("of a plugin that is down: %v", err)
	}
	if n := s.tokens.good(); n != 0 {
		t.Errorf("%d tokens are left", n)
	}
}

func TestHowAToolFails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		execute func(stream executing) error
		outcome hooks.Outcome
		code    string
	}{
		"no output":     {func(stream executing) error { return stream.Send(progressed("half")) }, hooks.OutcomeMalformed, CodeMalformed},
		"an empty one":  {func(stream executing) error { return stream.Send(&pluginv1.ExecuteToolResponse{}) }, hooks.OutcomeMalformed, CodeMalformed},
		"a long one":    {func(stream executing) error { return stream.Send(gave(strings.Repeat("x", 3<<20), false)) }, hooks.OutcomeOversize, CodeOversize},
		"an error":      {func(executing) error { return status.Error(codes.Internal, "no disk") }, hooks.OutcomeError, ""},
		"a broken line": {func(executing) error { return status.Error(codes.Unavailable, "gone") }, hooks.OutcomeError, CodeUnavailable},
		"a deadline":    {func(executing) error { return status.Error(codes.DeadlineExceeded, "late") }, hooks.OutcomeTimeout, CodeTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, tool := desk(t, newService(t, oneRun{}), func(_ *pluginv1.ExecuteToolRequest, stream executing) error { return test.execute(stream) })
			_, err := tool.Execute(t.Context(), Execution{Run: about}, func(string) {})
			var f *hooks.Failure
			if !errors.As(err, &f) || f.Outcome != test.outcome || f.Code != test.code {
				t.Errorf("%v; want %s, %s", err, test.outcome, test.code)
			}
		})
	}
}

func TestAToolThatIsGivenUpEnds(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{})
	_, tool := desk(t, newService(t, oneRun{}), func(_ *pluginv1.ExecuteToolRequest, stream executing) error {
		close(entered)
		<-stream.Context().Done()
		return stream.Context().Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-entered
		cancel()
	}()
	if _, err := tool.Execute(ctx, Execution{Run: about}, func(string) {}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestToolsAreRegisteredAtAnyTime(t *testing.T) {
	t.Parallel()
	compiled := 0
	s := NewService(ServiceConfig{Reserved: []string{"ping"}, Log: silent, CompileSchema: func(schema json.RawMessage) (func(json.RawMessage) error, error) {
		compiled++
		return noSchema(schema)
	}})
	p, _ := desk(t, s, nil)
	number := p.process.Number()
	s.tools.expect(number, "the.desk")
	if err := s.tools.add(number, p.answer.GetTools()); err != nil {
		t.Fatal(err)
	}
	register := func(name string) (string, error) {
		return s.tools.register(number, &pluginv1.ToolSpec{Name: name, SchemaJson: `{}`})
	}
	if name, err := register("late"); err != nil || name != "the-desk__late" {
		t.Errorf("%q, %v", name, err)
	}
	for name, want := range map[string]string{"late": "has it already", "open": "has it already", "ping": "agentd's own", "a b": "is not 1 to 64"} {
		if _, err := register(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", name, err, want)
		}
	}
	names := func() (out []string) {
		for _, t := range s.caller([]*Plugin{p}).Tools() {
			out = append(out, t.Name)
		}
		return out
	}
	if got := names(); !slices.Equal(got, []string{"the-desk__open", "the-desk__late"}) {
		t.Errorf("tools %q", got)
	}
	for i := range maxTools {
		if _, err := register("t" + strings.Repeat("x", i%40) + string(rune('a'+i/40))); (err != nil) != (i >= maxTools-2) {
			t.Fatalf("tool %d: %v", i+3, err)
		}
	}
	before := compiled
	for _, name := range []string{"late", "more"} {
		if _, err := register(name); err == nil || compiled != before {
			t.Errorf("%s: %v, and %d schemas were compiled for it", name, err, compiled-before)
		}
	}
	s.Gone(p.process)
	if _, err := register("later"); !errors.Is(err, errGone) {
		t.Errorf("of a process that is gone: %v", err)
	}
	if got := names(); !slices.Equal(got, []string{"the-desk__open"}) {
		t.Errorf("tools %q", got)
	}
	if s.tools.add(number, nil) == nil {
		t.Error("a process that is gone is taken in")
	}
}
