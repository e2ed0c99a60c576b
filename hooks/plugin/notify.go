package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

// listener is what the plugin does with notifications of one type.
type listener struct {
	number pluginv1.NotificationType
	// hooked says that there is a hook; it is nil otherwise.
	hooked bool
	// tell reports false for a notification of another type. Kind is its message.
	tell func(ctx context.Context, n *pluginv1.Notification) (kind proto.Message, turn int, ok bool)
}

// told are the notifications that there are, by name.
func (c Config) told() map[string]listener {
	all := map[string]listener{}
	listen(all, wire.RunStart, c.Hooks.OnRunStart, func(n *pluginv1.Notification) (proto.Message, int) {
		return n.GetRunStart(), 0
	})
	listen(all, wire.TurnStart, c.Hooks.OnTurnStart, func(n *pluginv1.Notification) (proto.Message, int) {
		return n.GetTurnStart(), int(n.GetTurnStart().GetTurn())
	})
	listen(all, wire.ToolExecutionStart, c.Hooks.OnToolExecutionStart, func(n *pluginv1.Notification) (proto.Message, int) {
		return n.GetToolExecutionStart(), int(n.GetToolExecutionStart().GetTurn())
	})
	listen(all, wire.TurnEnd, c.Hooks.OnTurnEnd, func(n *pluginv1.Notification) (proto.Message, int) {
		return n.GetTurnEnd(), int(n.GetTurnEnd().GetTurn())
	})
	listen(all, wire.RunEnd, c.Hooks.OnRunEnd, func(n *pluginv1.Notification) (proto.Message, int) {
		return n.GetRunEnd(), 0
	})
	return all
}

func listen[T any](all map[string]listener, notice wire.Notice[T], hook func(context.Context, T), kind func(*pluginv1.Notification) (proto.Message, int)) {
	all[notice.Name] = listener{number: notice.Type, hooked: hook != nil, tell: func(ctx context.Context, n *pluginv1.Notification) (proto.Message, int, bool) {
		told, ok := notice.Told(n)
		if !ok {
			return nil, 0, false
		}
		if hook != nil {
			hook(ctx, told)
		}
		message, turn := kind(n)
		return message, turn, true
	}}
}

// notifications are those that the plugin is to be told, in the order of the
// protocol.
func (c Config) notifications() []pluginv1.NotificationType {
	var types []pluginv1.NotificationType
	for name, l := range c.told() {
		if l.hooked || slices.Contains(c.Events, name) {
			types = append(types, l.number)
		}
	}
	slices.Sort(types)
	return types
}

// notify tells one notification. One of a type that this build does not know is
// passed over: who made it is newer.
func (s *service) notify(ctx context.Context, n *pluginv1.Notification) error {
	for name, l := range s.told {
		kind, turn, ok := l.tell(ctx, n)
		if !ok {
			continue
		}
		if l.hooked || !slices.Contains(s.config.Events, name) {
			return nil
		}
		payload, err := protoJSON(kind)
		if err != nil {
			return err
		}
		_, err = s.config.OnEvent(ctx, PluginEvent{
			Type: name, Session: n.GetRun().GetSessionId(), Run: n.GetRun().GetRunId(), Turn: turn, Payload: payload,
		})
		return err
	}
	return nil
}

// protoJSON is a message with its fields' own names, also those that are empty.
func protoJSON(m proto.Message) (json.RawMessage, error) {
	raw, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil { // protojson does not promise its spaces
		return nil, err
	}
	return b.Bytes(), nil
}
