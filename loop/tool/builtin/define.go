package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/seed-2ca4966b/agentd/loop"
)

// Define makes a tool that decodes its arguments into an In and calls run,
// which must be safe for concurrent use. In is a struct: a field without
// omitempty or omitzero is required, and a jsonschema tag describes it to the
// model. spec.Schema is inferred from In and must be empty.
//
// Use [json.Number] for numbers that may have a fraction and int64 or uint64
// for ids; a [json.RawMessage] takes any value as it was written. A float
// anywhere in In is an error.
func Define[In any](
	spec loop.ToolSpec, run func(ctx context.Context, in loop.ToolInput, args In) (loop.ToolOutput, error),
) (loop.Tool, error) {
	switch {
	case spec.Name == "":
		return nil, errors.New("define tool: it has no name")
	case len(spec.Schema) > 0:
		return nil, fmt.Errorf("define tool %s: the schema is inferred, leave it empty", spec.Name)
	}
	schema, err := infer(reflect.TypeFor[In]())
	if err != nil {
		return nil, fmt.Errorf("define tool %s: %w", spec.Name, err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("define tool %s: %w", spec.Name, err)
	}
	if spec.Schema, err = json.Marshal(schema); err != nil {
		return nil, fmt.Errorf("define tool %s: %w", spec.Name, err)
	}
	return &tool[In]{spec: spec, schema: resolved, run: run}, nil
}

// tool is what [Define] makes. It never changes.
type tool[In any] struct {
	spec   loop.ToolSpec
	schema *jsonschema.Resolved
	run    func(context.Context, loop.ToolInput, In) (loop.ToolOutput, error)
}

var _ loop.Tool = (*tool[struct{}])(nil)

func (t *tool[In]) Spec() loop.ToolSpec { return t.spec }

func (t *tool[In]) Validate(arguments json.RawMessage) error {
	_, err := t.decode(arguments)
	return err
}

func (t *tool[In]) Call(ctx context.Context, in loop.ToolInput) (loop.ToolOutput, error) {
	args, err := t.decode(in.Arguments)
	if err != nil {
		return loop.ToolOutput{}, err
	}
	return t.run(ctx, in, args)
}

func (t *tool[In]) decode(arguments json.RawMessage) (args In, err error) {
	parsed, err := parseArguments(arguments)
	if err != nil {
		return args, err
	}
	if err := t.schema.Validate(standIn(parsed.tree)); err != nil {
		return args, errors.New("arguments: " + strings.TrimPrefix(err.Error(), "validating root: "))
	}
	dec := json.NewDecoder(bytes.NewReader(parsed.text))
	dec.UseNumber()
	if err := dec.Decode(&args); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return args, fmt.Errorf("arguments: %s: %s does not fit %s", wrong.Field, wrong.Value, wrong.Type)
		}
		return args, fmt.Errorf("arguments: %w", err)
	}
	return args, nil
}

// exactTypes are the types whose JSON form Go's kind does not tell.
var exactTypes = map[reflect.Type]*jsonschema.Schema{
	reflect.TypeFor[json.Number]():     {Type: "number"},
	reflect.TypeFor[json.RawMessage](): {},
}

func infer(t reflect.Type) (*jsonschema.Schema, error) {
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("arguments are an object, so %s must be a struct", t)
	}
	schema, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: exactTypes})
	if err != nil {
		return nil, err
	}
	// After ForType, which refuses cycles.
	return schema, refuseFloats(t, t.Name())
}

// refuseFloats looks for a type that would round numbers.
func refuseFloats(t reflect.Type, path string) error {
	switch t.Kind() {
	case reflect.Float32, reflect.Float64:
		return fmt.Errorf("%s: a %s rounds numbers, use json.Number", path, t)
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return refuseFloats(t.Elem(), path)
	case reflect.Struct:
		for field := range t.Fields() {
			if !field.IsExported() && !field.Anonymous {
				continue
			}
			if err := refuseFloats(field.Type, path+"."+field.Name); err != nil {
				return err
			}
		}
	default:
	}
	return nil
}
