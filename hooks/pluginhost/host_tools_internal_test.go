package pluginhost

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

// setter is a plugin that is asked at gates, and does this with the token of the call.
func setter(t *testing.T, s *Service, does func(ctx context.Context, client pluginv1.HostServiceClient) error, gates ...pluginv1.Gate) hooks.Hooks {
	t.Helper()
	client := hostOf(t, s.address)
	f := &fake{evaluate: func(ctx context.Context, q *pluginv1.EvaluateRequest) (*pluginv1.EvaluateResponse, error) {
		if err := does(with(ctx, given(ctx)), client); err != nil {
			return nil, err
		}
		if q.GetBeforeProviderHeaders() != nil {
			return wire.BeforeProviderHeaders.Answer(hooks.BeforeProviderHeadersResult{Action: hooks.ActionContinue}), nil
		}
		return wire.BeforeToolCall.Answer(hooks.BeforeToolCallResult{Action: hooks.ActionContinue}), nil
	}}
	var subscriptions []*pluginv1.Subscription
	for _, g := range gates {
		subscriptions = append(subscriptions, &pluginv1.Subscription{Gate: g})
	}
	return s.caller([]*Plugin{up(f.serve(t, policyManifest), subscribed(subscriptions...))}).Hooks()
}

func set(ctx context.Context, client pluginv1.HostServiceClient, names ...string) ([]string, error) {
	r, err := client.SetActiveTools(ctx, &pluginv1.SetActiveToolsRequest{Names: names})
	return r.GetNames(), err
}

// TestWhatAPluginSetsComesWithItsAnswer: it sees what it has set at once, and nothing
// of a name that the run does not have, or not any more.
func TestWhatAPluginSetsComesWithItsAnswer(t *testing.T) {
	t.Parallel()
	s := newService(t, oneRun{})
	h := setter(t, s, func(ctx context.Context, client pluginv1.HostServiceClient) error {
		if names, err := set(ctx, client, "look", "desk__open"); err != nil || !slices.Equal(names, []string{"ping", "look"}) {
			t.Errorf("set %q, %v", names, err)
		}
		for _, unknown := range []string{"nobody", "charge"} {
			_, err := set(ctx, client, "look", unknown)
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), `"`+unknown+`"`) {
				t.Errorf("%s: %v", unknown, err)
			}
		}
		tools, err := client.GetActiveTools(ctx, &pluginv1.GetActiveToolsRequest{})
		if err != nil || !slices.Equal(tools.GetNames(), []string{"ping", "look"}) {
			t.Errorf("active are %v, %v", tools, err)
		}
		return nil
	}, pluginv1.Gate_GATE_BEFORE_TOOL_CALL)
	v, ds, err := hooks.Ask(t.Context(), &hooks.Asker{}, h.BeforeToolCall, hooks.Position{}, call, nil)
	if err != nil || len(v.Narrowed) != 1 || v.Narrowed[0].HookID != "policy" || v.Narrowed[0].DecisionID != ds[0].ID ||
		!slices.Equal(v.Narrowed[0].Tools, []string{"look", "desk__open", "ping"}) {
		t.Errorf("narrowed %+v, %v", v.Narrowed, err)
	}
}

func TestWhatAPluginSetsGoesWithItsFailure(t *testing.T) {
	t.Parallel()
	s := newService(t, oneRun{})
	h := setter(t, s, func(ctx context.Context, client pluginv1.HostServiceClient) error {
		_, err := set(ctx, client)
		return errors.Join(err, status.Error(codes.Internal, "no disk"))
	}, pluginv1.Gate_GATE_BEFORE_TOOL_CALL)
	v, _, err := hooks.Ask(t.Context(), &hooks.Asker{}, h.BeforeToolCall, hooks.Position{}, call, nil)
	if err != nil || v.Action != hooks.ActionBlock || v.Narrowed != nil {
		t.Errorf("verdict %+v, %v", v, err)
	}
}

// TestToolsAreNotSetEverywhere: not with the token of Bootstrap, not about a run that
// nobody knows, not at the gates of a provider, and not once the call has ended.
func TestToolsAreNotSetEverywhere(t *testing.T) {
	t.Parallel()
	s := newService(t, oneRun{})
	client := hostOf(t, s.address)
	if _, err := set(with(t.Context(), s.tokens.greet(1)), client, "look"); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("with the token of Bootstrap: %v", err)
	}
	other, done := s.tokens.issue(t.Context(), 1, hooks.RunRef{TenantID: "t", SessionID: "s", RunID: "another"})
	t.Cleanup(done)
	if _, err := set(with(t.Context(), other), client, "look"); status.Code(err) != codes.NotFound {
		t.Errorf("of another run: %v", err)
	}
	var said error
	h := setter(t, s, func(ctx context.Context, client pluginv1.HostServiceClient) error {
		_, said = set(ctx, client, "look")
		return nil
	}, pluginv1.Gate_GATE_BEFORE_PROVIDER_HEADERS)
	in := hooks.BeforeProviderHeaders{RunRef: about}
	if v, _, err := hooks.Ask(t.Context(), &hooks.Asker{}, h.BeforeProviderHeaders, hooks.Position{}, in, nil); err != nil || v.Narrowed != nil || v.Action != hooks.ActionContinue {
		t.Errorf("verdict %+v, %v", v, err)
	}
	if status.Code(said) != codes.FailedPrecondition || !strings.Contains(said.Error(), "BeforeRunStart") {
		t.Errorf("at a gate of the provider: %v", said)
	}
}

func TestAToolOfAPluginSetsTools(t *testing.T) {
	t.Parallel()
	s := newService(t, oneRun{})
	_, tool := desk(t, s, func(_ *pluginv1.ExecuteToolRequest, stream executing) error {
		names, err := set(with(stream.Context(), given(stream.Context())), hostOf(t, s.address), "charge")
		if err != nil || !slices.Equal(names, []string{"ping", "charge"}) {
			t.Errorf("set %q, %v", names, err)
		}
		return stream.Send(gave("done", false))
	})
	ctx, left := hooks.NarrowingTools(t.Context())
	if _, err := tool.Execute(ctx, Execution{Run: about}, func(string) {}); err != nil {
		t.Fatal(err)
	}
	if tools, ok := left.Take(); !ok || !slices.Equal(tools, []string{"charge", "ping"}) {
		t.Errorf("left %q, %t", tools, ok)
	}
}
