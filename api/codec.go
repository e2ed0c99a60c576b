package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

// codecs replace connect's own, whose errors name Go types, and whose JSON drops
// fields that it does not know: a typo in idempotencyKey would lose the key. The
// messages are always protobuf; everything else is a bug here.
func codecs() connect.HandlerOption {
	return connect.WithHandlerOptions(
		connect.WithCodec(protoCodec{}),
		connect.WithCodec(jsonCodec{"json"}),
		connect.WithCodec(jsonCodec{"json; charset=utf-8"}),
	)
}

// protoCodec is lenient: what it does not know is of a newer client.
type protoCodec struct{}

// Name implements [connect.Codec].
func (protoCodec) Name() string { return "proto" }

// Marshal implements [connect.Codec].
func (protoCodec) Marshal(message any) ([]byte, error) {
	return proto.Marshal(message.(proto.Message))
}

// Unmarshal implements [connect.Codec]. What is wrong with data is a note in
// the message.
func (protoCodec) Unmarshal(data []byte, message any) error {
	m := message.(proto.Message)
	// Unknown fields are dropped, so a note is always ours.
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, m); err != nil {
		leaveNote(m, note{Reason: "malformed_protobuf", Message: "the body is not the protobuf message of this call, or has text that is not UTF-8"})
	}
	return nil
}

// jsonCodec is strict about names and lenient about text.
type jsonCodec struct{ name string }

// Name implements [connect.Codec].
func (c jsonCodec) Name() string { return c.name }

// Marshal implements [connect.Codec].
func (jsonCodec) Marshal(message any) ([]byte, error) {
	return protojson.Marshal(message.(proto.Message))
}

// Unmarshal implements [connect.Codec]. What is wrong with data, and that its
// text was repaired, is a note in the message.
func (jsonCodec) Unmarshal(data []byte, message any) error {
	m := message.(proto.Message)
	data, repaired := repairJSON(data)
	if err := protojson.Unmarshal(data, m); err != nil {
		leaveNote(m, blameJSON(data, m.ProtoReflect().Type()))
	} else if repaired {
		leaveNote(m, note{Repaired: true})
	}
	return nil
}

// blameJSON finds out why data is no message of type t. The decoder says it too,
// in words that change from version to version.
func blameJSON(data []byte, t protoreflect.MessageType) note {
	var object map[string]json.RawMessage
	if !json.Valid(data) {
		return note{Reason: "malformed_json", Message: "the body is not one JSON value: send a JSON object, {} if there is nothing to say"}
	}
	if err := json.Unmarshal(data, &object); err != nil || object == nil {
		return note{Reason: "malformed_json", Message: "the body is not a JSON object: send one, {} if there is nothing to say"}
	}
	var names []string
	for i, fields := 0, t.Descriptor().Fields(); i < fields.Len(); i++ {
		fd := fields.Get(i)
		names = append(names, fd.JSONName())
		for _, name := range []string{fd.JSONName(), fd.TextName()} {
			value, ok := object[name]
			delete(object, name)
			if ok && !decodes(name, value, t) {
				return note{Reason: "invalid_argument", Field: string(fd.Name()), Message: fmt.Sprintf("%s: is not %s, as it should be", fd.Name(), typeOf(fd))}
			}
		}
	}
	unknown := make([]string, 0, len(object))
	for name := range object {
		unknown = append(unknown, event.Shorten(name, 80))
	}
	if len(unknown) > 0 {
		name := slices.Min(unknown)
		return note{Reason: "unknown_field", Field: name, Message: fmt.Sprintf("%q is no field of this request: it has %s", name, strings.Join(names, ", "))}
	}
	return note{Reason: "invalid_argument", Message: "a field is given twice, or two of which only one may be: send each once"}
}

// typeOf says what a field holds.
func typeOf(fd protoreflect.FieldDescriptor) string {
	switch {
	case fd.IsMap(): // of which there are no others
		return "a map of text to text"
	case fd.IsList():
		return "a list of " + fd.Kind().String()
	default:
		return "of type " + fd.Kind().String()
	}
}

// decodes reports whether the field name of a message of type t takes value.
func decodes(name string, value json.RawMessage, t protoreflect.MessageType) bool {
	object, _ := json.Marshal(map[string]json.RawMessage{name: value}) // value was just decoded: it cannot fail
	return protojson.Unmarshal(object, t.New().Interface()) == nil
}
