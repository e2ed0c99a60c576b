package plugin_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
)

func allow(context.Context, hooks.BeforeExecute) (hooks.BeforeExecuteResult, error) {
	return hooks.BeforeExecuteResult{Action: hooks.ActionContinue}, nil
}

func silent(context.Context, plugin.PluginEvent) (plugin.EventResult, error) {
	return plugin.EventResult{}, nil
}

func nothing(context.Context, plugin.ToolInput, func(string)) (plugin.ToolOutput, error) {
	return plugin.ToolOutput{}, nil
}

func TestAConfigThatCannotBeMeantIsRefused(t *testing.T) {
	t.Parallel()
	good := func() plugin.Config { return plugin.Config{ID: "x", Hooks: hooks.Hooks{BeforeExecute: allow}} }
	schema := json.RawMessage(`{}`)
	for want, change := range map[string]func(*plugin.Config){
		`the id "" is not`:       func(c *plugin.Config) { c.ID = "" },
		`the id "A" is not`:      func(c *plugin.Config) { c.ID = "A" },
		`the id "xx`:             func(c *plugin.Config) { c.ID = strings.Repeat("x", 65) },
		"no hook is asked there": func(c *plugin.Config) { c.On = map[hooks.Gate]plugin.On{hooks.GateAfterToolCall: {}} },
		`"late" is no phase`:     func(c *plugin.Config) { c.On = map[hooks.Gate]plugin.On{hooks.GateBeforeExecute: {Phase: "late"}} },
		`"[" is no glob`: func(c *plugin.Config) {
			c.On = map[hooks.Gate]plugin.On{hooks.GateBeforeExecute: {Tools: []string{"["}}}
		},
		`"" is no glob`: func(c *plugin.Config) {
			c.On = map[hooks.Gate]plugin.On{hooks.GateBeforeExecute: {Agents: []string{""}}}
		},
		"events and OnEvent go together":  func(c *plugin.Config) { c.OnEvent = silent },
		"event OnRunEnd: it is there twi": func(c *plugin.Config) { c.OnEvent, c.Events = silent, []string{"OnRunEnd", "OnRunEnd"} },
		"event BeforeExecute: there is a": func(c *plugin.Config) { c.OnEvent, c.Events = silent, []string{"BeforeExecute"} },
		"event OnRunEnd: there is a hook": func(c *plugin.Config) {
			c.Hooks.OnRunEnd = func(context.Context, hooks.RunEnd) {}
			c.OnEvent, c.Events = silent, []string{"OnRunEnd"}
		},
		`event "OnLunch": there is no gate`: func(c *plugin.Config) { c.OnEvent, c.Events = silent, []string{"OnLunch"} },
		`tool "a b": the name is not`:       func(c *plugin.Config) { c.Tools = []plugin.Tool{{Name: "a b", Schema: schema, Run: nothing}} },
		`tool "a": it has no Run`:           func(c *plugin.Config) { c.Tools = []plugin.Tool{{Name: "a", Schema: schema}} },
		`tool "a": the schema is not`: func(c *plugin.Config) {
			c.Tools = []plugin.Tool{{Name: "a", Schema: json.RawMessage(`[]`), Run: nothing}}
		},
		`tool "b": the schema is not`: func(c *plugin.Config) { c.Tools = []plugin.Tool{{Name: "b", Run: nothing}} },
		`tool "a": there are two`: func(c *plugin.Config) {
			c.Tools = []plugin.Tool{{Name: "a", Schema: schema, Run: nothing}, {Name: "a", Schema: schema, Run: nothing}}
		},
		`stream rule "A": the id must `: func(c *plugin.Config) { c.StreamRules = []plugin.StreamRule{{ID: "A"}} },
		"stream rule a: it has to have": func(c *plugin.Config) { c.StreamRules = []plugin.StreamRule{{ID: "a"}} },
		`stream rule "b": there are two`: func(c *plugin.Config) {
			r := plugin.StreamRule{ID: "b", Halt: &plugin.Halt{Pattern: "x"}}
			c.StreamRules = []plugin.StreamRule{r, r}
		},
		`stream rule a: "sound" is no lane`: func(c *plugin.Config) { c.StreamRules = []plugin.StreamRule{{ID: "a", Lanes: []string{"sound"}}} },
		`stream rule a: "[" is no glob`:     func(c *plugin.Config) { c.StreamRules = []plugin.StreamRule{{ID: "a", Tenants: []string{"["}}} },
		"stream rule a: it has no pattern":  func(c *plugin.Config) { c.StreamRules = []plugin.StreamRule{{ID: "a", Redact: &plugin.Redact{}}} },
		`stream rule a: "(" is no pattern`: func(c *plugin.Config) {
			c.StreamRules = []plugin.StreamRule{{ID: "a", Redact: &plugin.Redact{Patterns: []string{"("}}}}
		},
		`stream rule a: "" is no pattern`: func(c *plugin.Config) { c.StreamRules = []plugin.StreamRule{{ID: "a", Halt: &plugin.Halt{}}} },
		`stream rule a: "now" is none of`: func(c *plugin.Config) {
			c.StreamRules = []plugin.StreamRule{{ID: "a", Halt: &plugin.Halt{Pattern: "x", OnStop: "now"}}}
		},
	} {
		c := good()
		change(&c)
		if err := plugin.Serve(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestAPluginIsNoProgramOfItsOwn(t *testing.T) {
	t.Parallel()
	if err := plugin.Serve(plugin.Config{ID: "x"}); !errors.Is(err, plugin.ErrNotStarted) {
		t.Error(err)
	}
}

func TestAPluginTellsWhatItIsAndDoes(t *testing.T) {
	t.Parallel()
	about, err := inside(t, plugin.Config{
		ID: "x.y_z-1", Version: "v",
		Hooks: hooks.Hooks{BeforeExecute: allow},
		On: map[hooks.Gate]plugin.On{
			hooks.GateBeforeExecute: {Phase: hooks.PhaseValidate, Tools: []string{"a*"}, Agents: []string{"b"}, Tenants: []string{"c"}, Redacting: true, FailClosed: true},
		},
		OnEvent: silent, Events: []string{"AfterToolCall", "BeforeInput", "OnTurnEnd"},
		Tools: []plugin.Tool{{Name: "t", Description: "d", Schema: json.RawMessage(`{}`), Idempotent: true, Run: nothing}},
		StreamRules: []plugin.StreamRule{
			{ID: "r", Lanes: []string{"text", "tool_arguments"}, Agents: []string{"b"}, Redact: &plugin.Redact{Patterns: []string{"a+"}, Sets: []string{"secrets"}, Replacement: "-"}},
			{ID: "h", Halt: &plugin.Halt{Pattern: "x", Reason: "why", OnStop: "retry"}},
		},
	}).Bootstrap(t.Context(), &pluginv1.BootstrapRequest{})
	want := &pluginv1.BootstrapResponse{
		Id: "x.y_z-1", Version: "v", Sdk: about.GetSdk(),
		Subscriptions: []*pluginv1.Subscription{
			{Gate: pluginv1.Gate_GATE_BEFORE_INPUT, Phase: pluginv1.Phase_PHASE_MUTATE},
			{Gate: pluginv1.Gate_GATE_BEFORE_EXECUTE, Phase: pluginv1.Phase_PHASE_VALIDATE, Tools: []string{"a*"}, Agents: []string{"b"}, Tenants: []string{"c"}, Redacting: true, FailClosed: true},
			{Gate: pluginv1.Gate_GATE_AFTER_TOOL_CALL, Phase: pluginv1.Phase_PHASE_MUTATE},
		},
		Notifications: []pluginv1.NotificationType{pluginv1.NotificationType_NOTIFICATION_TYPE_TURN_END},
		Tools:         []*pluginv1.ToolSpec{{Name: "t", Description: "d", SchemaJson: "{}", Idempotent: true}},
		StreamRules: []*pluginv1.StreamRule{
			{Id: "r", Lanes: []pluginv1.Lane{pluginv1.Lane_LANE_TEXT, pluginv1.Lane_LANE_TOOL_ARGUMENTS}, Agents: []string{"b"}, Rule: &pluginv1.StreamRule_Redact{
				Redact: &pluginv1.Redact{Patterns: []string{"a+"}, Sets: []string{"secrets"}, Replacement: "-"},
			}},
			{Id: "h", Rule: &pluginv1.StreamRule_Halt{Halt: &pluginv1.Halt{Pattern: "x", Reason: "why", OnStop: pluginv1.StopPolicy_STOP_POLICY_RETRY}}},
		},
	}
	if err != nil || !proto.Equal(about, want) {
		t.Errorf("%v, %v\nwant %v", about, err, want)
	}
}

func TestReadyMayPanic(t *testing.T) {
	t.Parallel()
	called := make(chan struct{})
	if err := plugin.Ready(t.Context(), plugin.Config{ID: "x", Ready: func(context.Context, *plugin.Host) {
		close(called)
		panic("no")
	}}); err != nil {
		t.Fatal(err)
	}
	<-called
}

func TestAPluginThatIsLeftNotices(t *testing.T) {
	t.Parallel()
	gone := func(c <-chan struct{}) bool {
		synctest.Wait()
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var parent atomic.Int64
		left := plugin.Left(t.Context(), 1, func() int { return int(parent.Load()) })
		time.Sleep(time.Hour) //nolint:forbidigo // the time is not real
		if gone(left) {
			t.Error("its host is there")
		}
		parent.Store(1)
		time.Sleep(time.Second) //nolint:forbidigo // the time is not real
		if !gone(left) {
			t.Error("its parent is gone")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		left := plugin.Left(t.Context(), 0, func() int { return 7 })
		time.Sleep(plugin.AbandonedTime - time.Second) //nolint:forbidigo // the time is not real
		if gone(left) {
			t.Error("its host may still come")
		}
		time.Sleep(2 * time.Second) //nolint:forbidigo // the time is not real
		if !gone(left) {
			t.Error("its host does not come")
		}
	})
}
