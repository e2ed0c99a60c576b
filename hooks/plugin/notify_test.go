package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

var batch = &pluginv1.NotifyRequest{Cursor: "c", Notifications: []*pluginv1.Notification{
	wire.RunStart.Tell(hooks.RunStart{RunRef: ref}),
	wire.TurnStart.Tell(hooks.TurnStart{RunRef: ref, Turn: 1, Attempt: 2, Resumed: true}),
	{}, // of a type that is not known yet
	wire.ToolExecutionStart.Tell(hooks.ToolExecutionStart{RunRef: ref, Turn: 1, Attempt: 1, Call: hooks.ToolCall{Name: "n"}}),
	wire.TurnEnd.Tell(hooks.TurnEnd{RunRef: ref, Turn: 1, ToolCalls: 3}),
	wire.RunEnd.Tell(hooks.RunEnd{RunRef: ref, Status: "completed"}),
}}

func TestNotificationsReachTheirHooksInOrder(t *testing.T) {
	t.Parallel()
	var seen []string
	note := func(n any) { seen = append(seen, fmt.Sprintf("%+v", n)) }
	c := plugin.Config{ID: "x", Hooks: hooks.Hooks{
		OnRunStart:           func(_ context.Context, n hooks.RunStart) { note(n) },
		OnTurnStart:          func(_ context.Context, n hooks.TurnStart) { note(n) },
		OnToolExecutionStart: func(_ context.Context, n hooks.ToolExecutionStart) { note(n) },
		OnTurnEnd:            func(_ context.Context, n hooks.TurnEnd) { note(n) },
		OnRunEnd:             func(_ context.Context, n hooks.RunEnd) { note(n) },
	}}
	plug := inside(t, c)
	about, err := plug.Bootstrap(t.Context(), &pluginv1.BootstrapRequest{})
	if err != nil || len(about.GetNotifications()) != 5 || !slices.IsSorted(about.GetNotifications()) {
		t.Errorf("%v, %v", about.GetNotifications(), err)
	}
	if _, err := plug.Notify(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"{RunRef:{TenantID:t SessionID:s RunID:r Agent:demo}}",
		"{RunRef:{TenantID:t SessionID:s RunID:r Agent:demo} Turn:1 Attempt:2 Resumed:true}",
		"{RunRef:{TenantID:t SessionID:s RunID:r Agent:demo} Turn:1 Attempt:1 Call:{ID: ProviderID: Name:n Arguments:}}",
		"{RunRef:{TenantID:t SessionID:s RunID:r Agent:demo} Turn:1 ToolCalls:3}",
		"{RunRef:{TenantID:t SessionID:s RunID:r Agent:demo} Status:completed Reason:}",
	}
	if !slices.Equal(seen, want) {
		t.Errorf("saw %q", seen)
	}
}

func TestNotificationsReachOnEvent(t *testing.T) {
	t.Parallel()
	var seen []plugin.PluginEvent
	plug := inside(t, plugin.Config{
		ID: "x", Events: []string{"OnTurnStart", "OnRunEnd"},
		OnEvent: func(_ context.Context, e plugin.PluginEvent) (plugin.EventResult, error) {
			seen = append(seen, e)
			return plugin.EventResult{Block: true}, nil // nobody looks
		},
	})
	about, err := plug.Bootstrap(t.Context(), &pluginv1.BootstrapRequest{})
	if err != nil || !slices.Equal(about.GetNotifications(), []pluginv1.NotificationType{wire.TurnStart.Type, wire.RunEnd.Type}) || len(about.GetSubscriptions()) != 0 {
		t.Errorf("%v, %v", about, err)
	}
	if _, err := plug.Notify(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 2 || seen[0].Type != "OnTurnStart" || seen[0].Session != "s" || seen[0].Run != "r" || seen[0].Turn != 1 ||
		string(seen[0].Payload) != `{"turn":1,"attempt":2,"resumed":true}` || seen[1].Type != "OnRunEnd" ||
		string(seen[1].Payload) != `{"status":"completed","reason":""}` {
		t.Errorf("saw %+v", seen)
	}
}

func TestABatchThatFailsIsNotTaken(t *testing.T) {
	t.Parallel()
	var n int
	plug := told(t, plugin.Config{ID: "x", Hooks: hooks.Hooks{
		OnRunStart: func(context.Context, hooks.RunStart) { n++ },
		OnTurnEnd: func(context.Context, hooks.TurnEnd) {
			if n == 1 {
				panic("no disk")
			}
		},
	}})
	if _, err := plug.Notify(t.Context(), batch); status.Code(err) != codes.Internal {
		t.Errorf("a panic: %v", err)
	}
	if _, err := plug.Notify(t.Context(), batch); err != nil || n != 2 {
		t.Errorf("told again: %v, %d", err, n)
	}
	plug = told(t, plugin.Config{ID: "x", Events: []string{"OnRunEnd"}, OnEvent: func(context.Context, plugin.PluginEvent) (plugin.EventResult, error) {
		return plugin.EventResult{}, errors.New("no disk")
	}})
	if _, err := plug.Notify(t.Context(), batch); status.Code(err) != codes.Internal {
		t.Errorf("an error: %v", err)
	}
}
