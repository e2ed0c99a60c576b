package yamlfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Object is a mapping that is read to be handed on as one JSON object, in the order of
// the file and with the digits that numbers are written with. The zero value has
// nothing in it. It is not changed once it is read.
type Object struct{ members []member }

type member struct {
	name  string
	value json.RawMessage
}

var _ Value = (*Object)(nil)

// ReadYAML implements [Value].
func (o *Object) ReadYAML(f *File, n *yaml.Node, what string) {
	if n.Kind != yaml.MappingNode {
		f.ErrorAt(n, "expected %s as a mapping, not %s", what, KindOf(n))
		return
	}
	for i := 0; i < len(n.Content); i += 2 {
		var out bytes.Buffer
		if err := writeJSON(&out, n.Content[i+1]); err != nil {
			f.ErrorAt(n, "%s: %v", what, err)
			return
		}
		o.members = append(o.members, member{n.Content[i].Value, out.Bytes()})
	}
}

// JSON returns the object as JSON.
func (o Object) JSON() json.RawMessage {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, m := range o.members {
		if i > 0 {
			out.WriteByte(',')
		}
		writeText(&out, m.name)
		out.WriteByte(':')
		out.Write(m.value)
	}
	out.WriteByte('}')
	return out.Bytes()
}

// With returns o with the members of over: each takes the place of that of its name,
// whole, and those that o does not have come behind.
func (o Object) With(over Object) Object {
	all := slices.Clone(o.members)
	for _, m := range over.members {
		if i := slices.IndexFunc(all, func(own member) bool { return own.name == m.name }); i >= 0 {
			all[i] = m
			continue
		}
		all = append(all, m)
	}
	return Object{all}
}

var errNotJSON = errors.New("JSON has no such value")

// writeJSON writes a node in the order of the file, numbers with the digits that
// they are written with.
func writeJSON(out *bytes.Buffer, n *yaml.Node) error {
	switch n.Kind {
	case yaml.MappingNode, yaml.SequenceNode:
		step, open, end := 1, byte('['), byte(']')
		if n.Kind == yaml.MappingNode {
			step, open, end = 2, '{', '}'
		}
		out.WriteByte(open)
		for i := 0; i < len(n.Content); i += step {
			if i > 0 {
				out.WriteByte(',')
			}
			if step == 2 {
				writeText(out, n.Content[i].Value)
				out.WriteByte(':')
			}
			if err := writeJSON(out, n.Content[i+step-1]); err != nil {
				return err
			}
		}
		out.WriteByte(end)
		return nil
	case yaml.ScalarNode:
	default:
		return errNotJSON
	}
	switch {
	case IsText(n):
		writeText(out, n.Value)
	case n.Tag == "!!null":
		out.WriteString("null")
	case n.Tag == "!!bool":
		out.WriteString(strings.ToLower(n.Value))
	case json.Valid([]byte(n.Value)):
		out.WriteString(n.Value)
	default:
		return fmt.Errorf("%w: %s", errNotJSON, Cut(n.Value, 40))
	}
	return nil
}

func writeText(out *bytes.Buffer, s string) {
	text, _ := json.Marshal(s) // a text has no error
	out.Write(text)
}
