package main

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// name is what a message or enum is called in the document.
func name(d protoreflect.Descriptor) string {
	return strings.TrimPrefix(string(d.FullName()), string(d.ParentFile().Package())+".")
}

func reference(d protoreflect.Descriptor) string { return "#/components/schemas/" + name(d) }

// words are a comment as one text: a line break in it is none, an empty line is.
func words(c protogen.Comments) string {
	var paragraphs []string
	for paragraph := range strings.SplitSeq(strings.TrimSpace(string(c)), "\n\n") {
		paragraphs = append(paragraphs, strings.Join(strings.Fields(paragraph), " "))
	}
	return strings.Join(paragraphs, "\n\n")
}

func enumSchema(e *protogen.Enum) object {
	var names []string
	lines := []string{words(e.Comments.Leading), ""}
	for _, v := range e.Values {
		names = append(names, string(v.Desc.Name()))
		lines = append(lines, fmt.Sprintf("- %#q: %s", v.Desc.Name(), words(v.Comments.Leading)))
	}
	return object{{"type", "string"}, {"description", strings.Join(lines, "\n")}, {"enum", names}}
}

// messageSchema is what JSON of the message looks like. Fields that have their
// default are left out of answers, so nothing is required. A request is refused
// if it has others; an answer may have more one day.
func messageSchema(m *protogen.Message) (object, error) {
	properties := object{}
	for _, f := range m.Fields {
		schema, err := fieldSchema(f)
		if err != nil {
			return nil, err
		}
		properties.set(f.Desc.JSONName(), schema)
	}
	description := words(m.Comments.Leading)
	for _, o := range m.Oneofs {
		if o.Desc.IsSynthetic() {
			continue
		}
		var names []string
		for _, f := range o.Fields {
			names = append(names, "`"+f.Desc.JSONName()+"`")
		}
		description += fmt.Sprintf("\n\nOnly one of %s: %s", strings.Join(names, ", "), words(o.Comments.Leading))
	}
	schema := object{{"type", "object"}, {"description", description}, {"properties", properties}}
	if strings.HasSuffix(string(m.Desc.Name()), "Request") {
		schema.set("additionalProperties", false)
	}
	return schema, nil
}

func fieldSchema(f *protogen.Field) (object, error) {
	about := member{"description", words(f.Comments.Leading)}
	switch {
	case f.Desc.IsMap():
		value, err := valueSchema(f.Message.Fields[1])
		return object{{"type", "object"}, about, {"additionalProperties", value}}, err
	case f.Desc.IsList():
		value, err := valueSchema(f)
		return object{{"type", "array"}, about, {"items", value}}, err
	}
	value, err := valueSchema(f)
	return append(value, about), err
}

// valueSchema is one value of a field, as the JSON mapping of protobuf has it.
// What it does not know is an error: a guess would be a wrong document.
func valueSchema(f *protogen.Field) (object, error) {
	switch f.Desc.Kind() {
	case protoreflect.StringKind:
		return object{{"type", "string"}}, nil
	case protoreflect.BoolKind:
		return object{{"type", "boolean"}}, nil
	case protoreflect.Int32Kind:
		return object{{"type", "integer"}, {"format", "int32"}}, nil
	case protoreflect.Uint32Kind:
		return object{{"type", "integer"}, {"format", "int64"}, {"minimum", 0}}, nil
	case protoreflect.Uint64Kind:
		return object{{"type", "string"}, {"format", "uint64"}, {"pattern", "^[0-9]+$"}}, nil
	case protoreflect.EnumKind:
		return object{{"$ref", reference(f.Enum.Desc)}}, nil
	case protoreflect.MessageKind:
		if f.Message.Desc.FullName() == "google.protobuf.Timestamp" {
			return object{{"type", "string"}, {"format", "date-time"}}, nil
		}
		return object{{"$ref", reference(f.Message.Desc)}}, nil
	default:
		return nil, fmt.Errorf("%s: there is no schema for the type %s", f.Desc.FullName(), f.Desc.Kind())
	}
}
