package builtin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// CompileSchema makes of the JSON Schema of somebody else's tool what says whether
// arguments fit it. The schema has to be one of an object, and refer to places within
// itself alone, in a way that has an end. What others may read
// otherwise than the tool does never fits: a key that stands twice, or that is a
// property of the schema but for the case of its letters. What is returned is safe for
// concurrent use.
func CompileSchema(raw json.RawMessage) (validate func(arguments json.RawMessage) error, err error) {
	if err := shallow(raw); err != nil {
		return nil, err
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal(raw, &schema); err != nil {
		return nil, fmt.Errorf("it is no JSON Schema: %w", err)
	}
	if schema.Type != "object" {
		return nil, errors.New(`it is not that of an object: it has to have "type": "object"`)
	}
	if err := bounded(&schema); err != nil {
		return nil, err
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		return nil, err
	}
	return func(arguments json.RawMessage) error {
		parsed, err := parseArguments(arguments)
		if err != nil {
			return err
		}
		if text := bytes.TrimSpace(arguments); len(text) > 0 && !bytes.Equal(text, parsed.text) {
			return errors.New("arguments: a key stands twice")
		}
		if err := checkCase(&schema, parsed.tree); err != nil {
			return fmt.Errorf("arguments: %w", err)
		}
		if err := resolved.Validate(standIn(parsed.tree)); err != nil {
			return errors.New("arguments: " + strings.TrimPrefix(err.Error(), "validating root: "))
		}
		return nil
	}, nil
}

// checkCase refuses keys that some decoders take for another one.
func checkCase(s *jsonschema.Schema, v any) error {
	if s == nil {
		return nil
	}
	switch v := v.(type) {
	case map[string]any:
		for key, val := range v {
			property, ok := s.Properties[key]
			if !ok {
				for name := range s.Properties {
					if strings.EqualFold(name, key) {
						return fmt.Errorf("%q is written %q", name, key)
					}
				}
			}
			if err := checkCase(property, val); err != nil {
				return err
			}
		}
	case []any:
		for _, val := range v {
			if err := checkCase(s.Items, val); err != nil {
				return err
			}
		}
	}
	return nil
}
