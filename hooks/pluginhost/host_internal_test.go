package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

// oneRun knows the run that is asked about in these tests.
type oneRun struct{ err error }

func (o oneRun) find(r hooks.RunRef) error {
	if r != about {
		return fmt.Errorf("run %v: %w", r, ErrNoSuchRun)
	}
	return o.err
}

func (o oneRun) Tools(_ context.Context, r hooks.RunRef) (RunTools, error) {
	return RunTools{Active: []string{"ping", "charge", "look"}, Away: []string{"desk__open"}, Kept: []string{"ping"}}, o.find(r)
}

func (o oneRun) SystemPrompt(_ context.Context, r hooks.RunRef) (string, error) {
	return "be kind", o.find(r)
}

// hostOf is a connection of a plugin to its host.
func hostOf(t testing.TB, address string) pluginv1.HostServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return pluginv1.NewHostServiceClient(conn)
}

// with is a context of a call with a token.
func with(ctx context.Context, tokens ...string) context.Context {
	for _, token := range tokens {
		ctx = metadata.AppendToOutgoingContext(ctx, wire.TokenKey, token)
	}
	return ctx
}

// given is the token that came with a call.
func given(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	return strings.Join(md.Get(wire.TokenKey), " ")
}

func TestAPluginIsToldOfItsRunAndOfNoOther(t *testing.T) {
	t.Parallel()
	s := newService(t, oneRun{})
	client := hostOf(t, s.address)
	var old string
	f := &fake{evaluate: func(ctx context.Context, _ *pluginv1.EvaluateRequest) (*pluginv1.EvaluateResponse, error) {
		old = given(ctx)
		own := with(ctx, old)
		tools, err := client.GetActiveTools(own, &pluginv1.GetActiveToolsRequest{})
		if err != nil || !slices.Equal(tools.GetNames(), []string{"ping", "charge", "look"}) {
			t.Errorf("tools %v, %v", tools, err)
		}
		prompt, err := client.GetSystemPrompt(own, &pluginv1.GetSystemPromptRequest{})
		if err != nil || prompt.GetText() != "be kind" {
			t.Errorf("prompt %v, %v", prompt, err)
		}
		if _, err := client.RegisterTool(own, &pluginv1.RegisterToolRequest{}); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("a tool with the token of a call: %v", err)
		}
		for name, wrong := range map[string]context.Context{
			"none": ctx, "another": with(ctx, "nonsense"), "two": with(ctx, old, old), "the session's id": with(ctx, about.SessionID),
		} {
			if _, err := client.GetSystemPrompt(wrong, &pluginv1.GetSystemPromptRequest{}); status.Code(err) != codes.Unauthenticated {
				t.Errorf("token %s: %v", name, err)
			}
		}
		return wire.BeforeToolCall.Answer(hooks.BeforeToolCallResult{Action: hooks.ActionContinue}), nil
	}}
	h := s.caller([]*Plugin{up(f.serve(t, policyManifest), subscribed(toolCalls(), &pluginv1.Subscription{Gate: pluginv1.Gate_GATE_BEFORE_INPUT}))}).Hooks()
	if v, _, err := hooks.Ask(t.Context(), &hooks.Asker{}, h.BeforeToolCall, hooks.Position{}, call, nil); err != nil || v.Action != hooks.ActionContinue {
		t.Fatal(v, err)
	}
	if _, err := client.GetSystemPrompt(with(t.Context(), old), &pluginv1.GetSystemPromptRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the token of a call that has ended: %v", err)
	}
	f.evaluate = func(ctx context.Context, _ *pluginv1.EvaluateRequest) (*pluginv1.EvaluateResponse, error) {
		if _, err := client.GetActiveTools(with(ctx, given(ctx)), &pluginv1.GetActiveToolsRequest{}); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("before there is a run: %v", err)
		}
		return wire.BeforeInput.Answer(hooks.BeforeInputResult{Action: hooks.ActionContinue}), nil
	}
	if v, _, err := hooks.Ask(t.Context(), &hooks.Asker{}, h.BeforeInput, hooks.Position{}, hooks.BeforeInput{SessionID: "s"}, nil); err != nil || v.Action != hooks.ActionContinue {
		t.Error(v, err)
	}
	if n := s.tokens.good(); n != 0 {
		t.Errorf("%d tokens are left", n)
	}
}

func TestCallsOfTheHostAreBounded(t *testing.T) {
	t.Parallel()
	s := newService(t, oneRun{})
	client := hostOf(t, s.address)
	token, done := s.tokens.issue(t.Context(), 1, about)
	t.Cleanup(done)
	for i := range maxCallbacks + 1 {
		_, err := client.GetSystemPrompt(with(t.Context(), token), &pluginv1.GetSystemPromptRequest{})
		if want := i == maxCallbacks; want != (status.Code(err) == codes.ResourceExhausted) {
			t.Fatalf("call %d: %v", i+1, err)
		}
	}
}

func TestErrorsOfTheHostAreNotShown(t *testing.T) {
	t.Parallel()
	for want, err := range map[codes.Code]error{
		codes.Internal: errors.New("dial postgres://secret"), codes.NotFound: fmt.Errorf("secret: %w", ErrNoSuchRun),
		codes.Canceled: context.Canceled, codes.DeadlineExceeded: fmt.Errorf("secret: %w", context.DeadlineExceeded),
	} {
		s := newService(t, oneRun{err})
		token, done := s.tokens.issue(t.Context(), 1, about)
		own, client := with(t.Context(), token), hostOf(t, s.address)
		_, tools := client.GetActiveTools(own, &pluginv1.GetActiveToolsRequest{})
		_, prompt := client.GetSystemPrompt(own, &pluginv1.GetSystemPromptRequest{})
		_, setting := set(own, client, "ping")
		for _, got := range []error{tools, prompt, setting} {
			if status.Code(got) != want || strings.Contains(got.Error(), "secret") {
				t.Errorf("%v is told as %v", err, got)
			}
		}
		done()
	}
}

func TestReservedCallsAreUnimplemented(t *testing.T) {
	t.Parallel()
	s := newService(t, oneRun{})
	client := hostOf(t, s.address)
	own := with(t.Context(), s.tokens.greet(1))
	for name, call := range map[string]func() error{
		"RegisterCommand": func() error { _, err := client.RegisterCommand(own, &pluginv1.RegisterCommandRequest{}); return err },
		"RegisterFlag":    func() error { _, err := client.RegisterFlag(own, &pluginv1.RegisterFlagRequest{}); return err },
		"SendUserMessage": func() error { _, err := client.SendUserMessage(own, &pluginv1.SendUserMessageRequest{}); return err },
		"AppendEntry":     func() error { _, err := client.AppendEntry(own, &pluginv1.AppendEntryRequest{}); return err },
		"EventsEmit":      func() error { _, err := client.EventsEmit(own, &pluginv1.EventsEmitRequest{}); return err },
	} {
		if err := call(); status.Code(err) != codes.Unimplemented {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := client.GetActiveTools(own, &pluginv1.GetActiveToolsRequest{}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("of no run: %v", err)
	}
}

func TestAPluginIsToldWhereItsHostIsAndSaysWhatItDoes(t *testing.T) {
	t.Parallel()
	s := newService(t, oneRun{})
	var token string
	answer := subscribed(toolCalls())
	answer.Tools = []*pluginv1.ToolSpec{{Name: "open", SchemaJson: `{}`}}
	f := &fake{bootstrap: func(ctx context.Context, q *pluginv1.BootstrapRequest) (*pluginv1.BootstrapResponse, error) {
		token = q.GetHostToken()
		if q.GetName() != "policy" || q.GetConfigJson() != `{"limit":3}` || q.GetHostVersion() != "test" {
			t.Errorf("told %v", q)
		}
		// Before it has answered.
		r, err := hostOf(t, q.GetHostAddress()).RegisterTool(with(ctx, token), &pluginv1.RegisterToolRequest{Tool: &pluginv1.ToolSpec{Name: "late", SchemaJson: `{}`}})
		if err != nil || r.GetName() != "policy__late" {
			t.Errorf("registered %v, %v", r, err)
		}
		return answer, nil
	}}
	p := f.serve(t, policyManifest)
	a, err := s.Greet(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range s.caller([]*Plugin{up(p, a)}).Tools() {
		names = append(names, tool.Name)
	}
	if !slices.Equal(names, []string{"policy__open", "policy__late"}) {
		t.Errorf("tools %q", names)
	}
	s.Gone(p)
	if _, err := hostOf(t, s.address).RegisterTool(with(t.Context(), token), &pluginv1.RegisterToolRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the token of a process that is gone: %v", err)
	}
}

func TestWhatAPluginMayNotSayOfItself(t *testing.T) {
	t.Parallel()
	tool := func(name, schema string) *pluginv1.ToolSpec {
		return &pluginv1.ToolSpec{Name: name, SchemaJson: schema}
	}
	for want, a := range map[string]*pluginv1.BootstrapResponse{
		"it says that it is":          {Id: "other", Version: "1"},
		"its version is":              {Id: "policy", Version: "2"},
		"gate 99":                     subscribed(&pluginv1.Subscription{Gate: 99}),
		"gate 0":                      subscribed(&pluginv1.Subscription{}),
		"at BeforeToolCall twice":     subscribed(toolCalls(), toolCalls()),
		"no phase 7":                  subscribed(&pluginv1.Subscription{Gate: 1, Phase: 7}),
		`"[" is no glob`:              subscribed(toolCalls("[")),
		`"" is no glob`:               subscribed(toolCalls("")),
		"more than 1000 globs":        subscribed(toolCalls(strings.Split(strings.Repeat("a ", 1001), " ")...)),
		`stream rule "": its id must`: {Id: "policy", Version: "1", StreamRules: []*pluginv1.StreamRule{{}}},
		"told of 9":                   {Id: "policy", Version: "1", Notifications: []pluginv1.NotificationType{9}},
		"told of 0":                   {Id: "policy", Version: "1", Notifications: []pluginv1.NotificationType{0}},
		"_RUN_START twice":            {Id: "policy", Version: "1", Notifications: []pluginv1.NotificationType{1, 2, 1}},
		"is not 1 to 64 letters":      {Id: "policy", Version: "1", Tools: []*pluginv1.ToolSpec{tool("a.b", `{}`)}},
		"names like ping are":         {Id: "policy", Version: "1", Tools: []*pluginv1.ToolSpec{tool("ping", `{}`)}},
		"names like memory_* are":     {Id: "policy", Version: "1", Tools: []*pluginv1.ToolSpec{tool("memory_open", `{}`)}},
		"the schema: it is no JSON":   {Id: "policy", Version: "1", Tools: []*pluginv1.ToolSpec{tool("open", `{`)}},
		"there are two":               {Id: "policy", Version: "1", Tools: []*pluginv1.ToolSpec{tool("open", `{}`), tool("open", `{}`)}},
		"longer than the 64 charact":  {Id: "policy", Version: "1", Tools: []*pluginv1.ToolSpec{tool(strings.Repeat("a", 60), `{}`)}},
		"the schema is longer than":   {Id: "policy", Version: "1", Tools: []*pluginv1.ToolSpec{tool("open", strings.Repeat(" ", maxSchema)+`{}`)}},
		"the description is longer":   {Id: "policy", Version: "1", Tools: []*pluginv1.ToolSpec{{Name: "open", SchemaJson: `{}`, Description: strings.Repeat("a", maxDescription+1)}}},
		"it has 129 tools, of 128":    {Id: "policy", Version: "1", Tools: slices.Repeat([]*pluginv1.ToolSpec{tool("open", `{}`)}, 129)},
		"code = Unavailable":          nil,
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			s := newService(t, oneRun{})
			f := &fake{bootstrap: func(context.Context, *pluginv1.BootstrapRequest) (*pluginv1.BootstrapResponse, error) {
				if a == nil {
					return nil, status.Error(codes.Unavailable, "not today")
				}
				return a, nil
			}}
			p := f.serve(t, policyManifest)
			if _, err := s.Greet(t.Context(), p); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v; want one with %q", err, want)
			}
			if n := s.tokens.good(); n != 0 || s.tools.of(p.Number()) != nil {
				t.Errorf("%d tokens, and tools %v", n, s.tools.of(p.Number()))
			}
		})
	}
}
