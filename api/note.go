package api

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// note is what a codec has to say of a request. A codec sees neither the
// request's context nor its response, and connect would send its error as it
// is, without a reason. So the note rides in the message, in an unknown field,
// to the interceptor.
type note struct {
	// Repaired says that bytes or escapes that are no text became U+FFFD.
	Repaired bool
	// Reason says that the request is refused, and why; "" if it is not.
	Reason string
	// Field is the name of the field to blame, "" if there is none.
	Field   string
	Message string
}

// noteField is above the numbers that a proto can have by hand.
const noteField = protowire.MaxValidNumber

// leaveNote makes n all that m holds, or adds it if m is not refused.
func leaveNote(m proto.Message, n note) {
	if n.Reason != "" {
		proto.Reset(m)
	}
	text, _ := json.Marshal(n) // strings and a bool: it cannot fail
	m.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, noteField, protowire.BytesType), text))
}

// takeNote removes the note from m; the zero note if there is none.
func takeNote(m proto.Message) note {
	var n note
	raw := m.ProtoReflect().GetUnknown()
	if len(raw) == 0 {
		return n
	}
	m.ProtoReflect().SetUnknown(nil)
	_, _, size := protowire.ConsumeTag(raw)
	text, _ := protowire.ConsumeBytes(raw[size:])
	_ = json.Unmarshal(text, &n) // leaveNote wrote it
	return n
}

// refusedError is a request that could not be decoded.
type refusedError struct{ note note }

// Error returns the sentence for the client.
func (e *refusedError) Error() string { return e.note.Message }

// prose are the fields that people write, and the values of metadata are, too.
// All other text is an identifier.
var prose = map[protoreflect.Name]bool{"text": true, "reason": true, "title": true, "query": true}

type repairedKey struct{}

// received acts on what the codec noted in a request.
func received(ctx context.Context, message any) (context.Context, error) {
	m := message.(proto.Message)
	n := takeNote(m)
	if n.Reason != "" {
		return ctx, &refusedError{n}
	}
	if !n.Repaired {
		return ctx, nil
	}
	var err error
	m.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if slices.ContainsFunc(identifiers(fd, v), func(s string) bool { return strings.ContainsRune(s, '\uFFFD') }) {
			err = invalid(string(fd.Name()), "is not valid text: send UTF-8 and no half of a surrogate pair")
		}
		return err == nil
	})
	return context.WithValue(ctx, repairedKey{}, true), err
}

// identifiers are the texts of a field that stand for something.
func identifiers(fd protoreflect.FieldDescriptor, v protoreflect.Value) []string {
	var list []string
	switch {
	case fd.IsMap():
		v.Map().Range(func(key protoreflect.MapKey, _ protoreflect.Value) bool {
			list = append(list, key.String())
			return true
		})
	case fd.Kind() != protoreflect.StringKind || prose[fd.Name()]:
	case fd.IsList():
		for i := range v.List().Len() {
			list = append(list, v.List().Get(i).String())
		}
	default:
		list = append(list, v.String())
	}
	return list
}

// proseRepaired reports whether the prose of the request was made valid here.
// Identifiers never are.
func proseRepaired(ctx context.Context) bool { return ctx.Value(repairedKey{}) != nil }
