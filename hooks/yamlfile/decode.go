package yamlfile

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// Value is a type that reads itself in [File.Decode]. What is for errors: what
// the value is.
type Value interface {
	// ReadYAML reads the node, or notes what is wrong with it.
	ReadYAML(f *File, n *yaml.Node, what string)
}

// Globs are one glob in the syntax of [path.Match], or a list of them.
type Globs []string

// ReadYAML implements [Value].
func (g *Globs) ReadYAML(f *File, n *yaml.Node, what string) { *g = f.Globs(n, what) }

// Identifier is an id: at most [MaxIDBytes] letters, digits, dots, underscores and
// hyphens.
type Identifier string

// ReadYAML implements [Value].
func (i *Identifier) ReadYAML(f *File, n *yaml.Node, what string) {
	*i = Identifier(f.Identifier(n, what))
}

// maxDuration is longer than anything that is meant.
const maxDuration = 10_000 * time.Hour

// Decode reads a value into what into points to, and notes what is wrong with it.
// It reports whether nothing was. What is for errors, such as "deny_tools".
//
// A struct is a mapping whose keys its fields name in the tag yaml; a field without
// it, or with "-", is not read. Behind the name may stand "required", and "positive" for numbers.
// A list may be written as its one element. Beside structs, slices, pointers and
// maps there are texts, which may not be blank, true and false, whole numbers from
// 0, durations, [json.Number], types that are a [Value] and types with an
// UnmarshalText, whose error is told. An any is a text, a bool or a json.Number.
// Any other type is a mistake of the program, and panics.
func (f *File) Decode(n *yaml.Node, what string, into any) bool {
	before := f.problems.Count()
	f.decode(n, what, reflect.ValueOf(into).Elem())
	return f.problems.Count() == before
}

func (f *File) decode(n *yaml.Node, what string, v reflect.Value) {
	switch to := v.Addr().Interface().(type) {
	case Value:
		to.ReadYAML(f, n, what)
		return
	case *time.Duration:
		*to = f.Duration(n, what, 0, maxDuration)
		return
	case *json.Number:
		*to = f.decimal(n, what)
		return
	case *any:
		*to = f.scalar(n, what)
		return
	case encoding.TextUnmarshaler:
		if n.Kind != yaml.ScalarNode || isNull(n) {
			f.ErrorAt(n, "expected %s, not %s", what, KindOf(n))
		} else if err := to.UnmarshalText([]byte(n.Value)); err != nil {
			f.ErrorAt(n, "%s: %v", what, err)
		}
		return
	}
	switch v.Kind() {
	case reflect.String:
		s, _ := f.Text(n, what)
		v.SetString(s)
	case reflect.Bool:
		v.SetBool(f.Boolean(n, what))
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(f.Number(n, what)))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.decode(n, what, v.Elem())
	case reflect.Slice:
		list := reflect.MakeSlice(v.Type(), len(Items(n)), len(Items(n)))
		for i, item := range Items(n) {
			f.decode(item, what, list.Index(i))
		}
		v.Set(list)
	case reflect.Map:
		f.mapping(n, what, v)
	case reflect.Struct:
		f.record(n, what, v)
	default:
		panic(fmt.Sprintf("yamlfile: %s cannot be a %s", what, v.Type()))
	}
}

// decimal reads a number with the digits that it is written with.
func (f *File) decimal(n *yaml.Node, what string) json.Number {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" && n.Tag != "!!float" || !json.Valid([]byte(n.Value)) {
		f.ErrorAt(n, "%s is %s; expected a number as JSON writes it", what, KindOf(n))
		return ""
	}
	return json.Number(n.Value)
}

// scalar reads a text, true or false, or a number as JSON writes it.
func (f *File) scalar(n *yaml.Node, what string) any {
	switch {
	case IsText(n):
		return n.Value
	case n.Kind == yaml.ScalarNode && n.Tag == "!!bool":
		return f.Boolean(n, what)
	case n.Kind == yaml.ScalarNode && !isNull(n) && json.Valid([]byte(n.Value)):
		return json.Number(n.Value)
	}
	f.ErrorAt(n, "%s is %s; expected a text, a number, true or false", what, KindOf(n))
	return nil
}

func (f *File) mapping(n *yaml.Node, what string, v reflect.Value) {
	if n.Kind != yaml.MappingNode {
		f.ErrorAt(n, "expected %s as a mapping, not %s", what, KindOf(n))
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for i := 0; i < len(n.Content); i += 2 {
		key, one := n.Content[i].Value, reflect.New(v.Type().Elem()).Elem()
		f.decode(n.Content[i+1], what+"."+Cut(key, MaxIDBytes), one)
		v.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), one)
	}
}

func (f *File) record(n *yaml.Node, what string, v reflect.Value) {
	known := map[string]func(*yaml.Node){}
	var required []string
	for i := range v.NumField() {
		tag, ok := v.Type().Field(i).Tag.Lookup("yaml")
		if !ok || tag == "-" {
			continue
		}
		name, rest, _ := strings.Cut(tag, ",")
		options := strings.Split(rest, ",")
		known[name] = func(n *yaml.Node) {
			before := f.problems.Count()
			f.decode(n, name, v.Field(i))
			if slices.Contains(options, "positive") && v.Field(i).IsZero() && f.problems.Count() == before {
				f.ErrorAt(n, "%s is 0; expected a number from 1", name)
			}
		}
		if slices.Contains(options, "required") {
			required = append(required, name)
		}
	}
	if !f.Fields(n, what, known) {
		return
	}
	for _, name := range required {
		if Key(n, name) == nil {
			f.ErrorAt(n, "%s has no key %s", what, name)
		}
	}
}

// Key returns the value of a key of a mapping, nil if it is not there.
func Key(n *yaml.Node, name string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}
