package rules

import (
	"reflect"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// The types of messages in expressions. They have fields and not keys, so that a
// misspelt one is an error when the rule is loaded.
var (
	messageType = objectType("message")
	callType    = objectType("tool_call")
	resultType  = objectType("tool_result")
)

func objectType(name string) *cel.Type { return types.NewObjectType(name) }

// thing is a message, a call or a result in an expression.
type thing struct {
	typ *cel.Type
	of  any
}

func (t thing) Type() ref.Type { return t.typ }
func (t thing) Value() any     { return t.of }

func (t thing) ConvertToNative(to reflect.Type) (any, error) {
	return nil, types.NewErr("no conversion of %s to %s", t.typ, to).(error)
}

func (t thing) ConvertToType(to ref.Type) ref.Val {
	if to == types.TypeType {
		return t.typ
	}
	return types.NewErr("no conversion of %s to %s", t.typ, to)
}

func (t thing) Equal(other ref.Val) ref.Val {
	o, ok := other.(thing)
	return types.Bool(ok && reflect.DeepEqual(t.of, o.of))
}

// Get and IsSet are for a thing whose type the expression has lost on the way.
func (t thing) Get(index ref.Val) ref.Val {
	f, err := t.field(index)
	if err != nil {
		return err
	}
	v, failed := f.GetFrom(t.of)
	if failed != nil {
		return types.WrapErr(failed)
	}
	return adapter.NativeToValue(v)
}

func (t thing) IsSet(index ref.Val) ref.Val {
	if _, err := t.field(index); err != nil {
		return err
	}
	return types.True
}

func (t thing) field(index ref.Val) (*types.FieldType, ref.Val) {
	name, _ := index.Value().(string)
	if f, ok := fieldsOf[t.typ.TypeName()][name]; ok {
		return f, nil
	}
	return nil, types.NewErr("no such field: %v", index.Value())
}

// fieldsOf are the fields of each type.
var fieldsOf = map[string]map[string]*types.FieldType{
	"message": {
		"id":        field(types.StringType, func(m hooks.Message) ref.Val { return types.String(m.ID) }),
		"role":      field(types.StringType, func(m hooks.Message) ref.Val { return types.String(m.Role) }),
		"text":      field(types.StringType, func(m hooks.Message) ref.Val { return types.String(partsText(m, hooks.PartText)) }),
		"reasoning": field(types.StringType, func(m hooks.Message) ref.Val { return types.String(partsText(m, hooks.PartReasoning)) }),
		"hidden":    field(types.BoolType, func(m hooks.Message) ref.Val { return types.Bool(m.Hidden) }),
		"partial":   field(types.BoolType, func(m hooks.Message) ref.Val { return types.Bool(m.Partial) }),
		"calls":     field(types.NewListType(callType), callsOf),
		"results":   field(types.NewListType(resultType), resultsOf),
	},
	"tool_call": {
		"id":        field(types.StringType, func(c hooks.ToolCall) ref.Val { return types.String(c.ID) }),
		"name":      field(types.StringType, func(c hooks.ToolCall) ref.Val { return types.String(c.Name) }),
		"arguments": field(types.DynType, argumentsOf),
	},
	"tool_result": {
		"call_id":  field(types.StringType, func(r hooks.ToolResult) ref.Val { return types.String(r.CallID) }),
		"content":  field(types.StringType, func(r hooks.ToolResult) ref.Val { return types.String(r.Content) }),
		"is_error": field(types.BoolType, func(r hooks.ToolResult) ref.Val { return types.Bool(r.IsError) }),
		"reason":   field(types.StringType, func(r hooks.ToolResult) ref.Val { return types.String(r.Reason) }),
	},
}

func field[T any](typ *cel.Type, get func(T) ref.Val) *types.FieldType {
	return &types.FieldType{
		Type:  typ,
		IsSet: func(any) bool { return true },
		GetFrom: func(target any) (any, error) {
			of, ok := target.(T)
			if !ok {
				return nil, types.NewErr("no such field").(error)
			}
			v := get(of)
			if err, failed := v.(*types.Err); failed {
				return nil, err
			}
			return v, nil
		},
	}
}

func partsText(m hooks.Message, of hooks.PartType) string {
	var b strings.Builder
	for _, p := range m.Parts {
		if p.Type == of {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

func callsOf(m hooks.Message) ref.Val {
	var list []ref.Val
	for _, p := range m.Parts {
		if p.ToolCall != nil {
			list = append(list, thing{callType, *p.ToolCall})
		}
	}
	return types.NewRefValList(adapter, list)
}

func resultsOf(m hooks.Message) ref.Val {
	var list []ref.Val
	for _, p := range m.Parts {
		if p.ToolResult != nil {
			list = append(list, thing{resultType, *p.ToolResult})
		}
	}
	return types.NewRefValList(adapter, list)
}

// lookInto is a text as JSON, or the error that it is none.
func lookInto(what, text string, object func(*object, map[string]any) ref.Val) ref.Val {
	v, err := decode(text)
	if err != nil {
		return types.NewErr("%s %v", what, err)
	}
	return celOf(v, object)
}

// argumentsOf are those of a call: see [cased].
func argumentsOf(c hooks.ToolCall) ref.Val {
	return lookInto("the arguments are", c.Arguments, newCased)
}

// provider knows the types of this package beside those of CEL.
type provider struct{ *types.Registry }

func (p provider) FindStructType(name string) (*types.Type, bool) {
	if _, ok := fieldsOf[name]; ok {
		return types.NewTypeTypeWithParam(objectType(name)), true
	}
	return p.Registry.FindStructType(name)
}

func (p provider) FindStructFieldNames(name string) ([]string, bool) {
	if fields, ok := fieldsOf[name]; ok {
		var names []string
		for n := range fields {
			names = append(names, n)
		}
		return names, true
	}
	return p.Registry.FindStructFieldNames(name)
}

func (p provider) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	if fields, ok := fieldsOf[name]; ok {
		f, ok := fields[field]
		return f, ok
	}
	return p.Registry.FindStructFieldType(name, field)
}

// NewValue makes none of the types of this package: expressions only look at
// them.
func (p provider) NewValue(name string, fields map[string]ref.Val) ref.Val {
	if _, ok := fieldsOf[name]; ok {
		return types.NewErr("%s cannot be made in an expression", name)
	}
	return p.Registry.NewValue(name, fields)
}
