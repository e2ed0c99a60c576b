package openaitest

import (
	"encoding/json"
	"fmt"
	"slices"
)

// checkTools looks at what the model is told of tools.
func checkTools(tools []Tool) *Refusal {
	if tools != nil && len(tools) == 0 { // nil if the field is not there
		return invalid("tools", "a list of tools must not be empty")
	}
	var names []string
	for i, t := range tools {
		param, name := fmt.Sprintf("tools[%d]", i), t.Function.Name
		switch {
		case t.Type != "function":
			return invalid(param+".type", "there is no tool of type %q", t.Type)
		case !toolName.MatchString(name):
			return invalid(param+".function.name", "%q does not match %s", name, toolName)
		case slices.Contains(names, name):
			return invalid("tools", "two tools are called %q", name)
		}
		names = append(names, name)
		if len(t.Function.Parameters) == 0 {
			continue // a tool without arguments
		}
		if err := checkParameters(t.Function.Parameters); err != nil {
			refusal := invalid(param+".function.parameters", "the schema of %q is wrong: %v", name, err)
			refusal.Code = "invalid_function_parameters"
			return refusal
		}
	}
	return nil
}

// schema is what is checked of a JSON Schema.
type schema struct {
	Type       json.RawMessage
	Properties map[string]json.RawMessage
	Required   []string
	Items      json.RawMessage
	AnyOf      []json.RawMessage
}

var schemaTypes = []string{"object", "array", "string", "number", "integer", "boolean", "null"}

func checkParameters(raw json.RawMessage) error {
	var s schema
	if err := json.Unmarshal(raw, &s); err != nil || string(raw) == null {
		return fmt.Errorf("it is no object schema: %s", raw)
	}
	if string(s.Type) != `"object"` {
		return fmt.Errorf(`its type has to be "object", not %s`, s.Type)
	}
	return checkSchema("", raw)
}

// checkSchema looks at a schema and at what is in it; path says where it is.
func checkSchema(path string, raw json.RawMessage) error {
	if string(raw) == "true" || string(raw) == "false" {
		return nil
	}
	var s schema
	if err := json.Unmarshal(raw, &s); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if string(raw) == null {
		return fmt.Errorf("%s: null is no schema", path)
	}
	types, err := s.types()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if slices.Contains(types, "array") && len(s.Items) == 0 {
		return fmt.Errorf("%s: an array has no items", path)
	}
	for _, name := range s.Required {
		if s.Properties[name] == nil {
			return fmt.Errorf("%s: the required property %q is not there", path, name)
		}
	}
	for name, p := range s.Properties {
		if err := checkSchema(path+"/"+name, p); err != nil {
			return err
		}
	}
	for _, branch := range s.AnyOf {
		if err := checkSchema(path+"/anyOf", branch); err != nil {
			return err
		}
	}
	if len(s.Items) > 0 {
		return checkSchema(path+"/items", s.Items)
	}
	return nil
}

// types returns the types that a schema names, one or a list.
func (s schema) types() (types []string, err error) {
	if len(s.Type) == 0 {
		return nil, nil
	}
	var one string
	if json.Unmarshal(s.Type, &one) == nil && string(s.Type) != null {
		types = []string{one}
	} else if err := json.Unmarshal(s.Type, &types); err != nil || len(types) == 0 {
		return nil, fmt.Errorf("%s is no type", s.Type)
	}
	for _, t := range types {
		if !slices.Contains(schemaTypes, t) {
			return nil, fmt.Errorf("there is no type %q", t)
		}
	}
	return types, nil
}
