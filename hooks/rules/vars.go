package rules

import (
	"errors"
	"fmt"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// vars is what one gate is asked about, as expressions look at it: those of the
// gate's declared variables that its input has. What takes work is made when it
// is looked at first. It is for one rule in one goroutine.
type vars struct {
	hooks.RunRef
	now                                time.Time
	turn, attempt, revision, status    int
	input, text, system, model, output string
	isError                            bool
	tools                              []string
	headers                            []hooks.Header
	messages                           []hooks.Message
	hidden                             []hooks.HiddenMessage
	call                               *hooks.ToolCall
	body                               string

	made map[string]ref.Val
}

var _ cel.Activation = (*vars)(nil)

// Parent implements [cel.Activation].
func (v *vars) Parent() cel.Activation { return nil }

// ResolveName implements [cel.Activation].
func (v *vars) ResolveName(name string) (any, bool) {
	switch name {
	case "tenant":
		return types.String(v.TenantID), true
	case "agent":
		return types.String(v.Agent), true
	case "session":
		return types.String(v.SessionID), true
	case "run":
		return types.String(v.RunID), true
	case "now":
		return types.Timestamp{Time: v.now}, true
	case "turn":
		return types.Int(v.turn), true
	case "attempt":
		return types.Int(v.attempt), true
	case "revision":
		return types.Int(v.revision), true
	case "status":
		return types.Int(v.status), true
	case "input":
		return types.String(v.input), true
	case "text":
		return types.String(v.text), true
	case "system":
		return types.String(v.system), true
	case "model":
		return types.String(v.model), true
	case "content":
		return types.String(v.output), true
	case "is_error":
		return types.Bool(v.isError), true
	case "call.id":
		return types.String(v.call.ID), true
	case "call.name":
		return types.String(v.call.Name), true
	}
	return v.look(name)
}

// look resolves what is made once.
func (v *vars) look(name string) (any, bool) {
	if m, ok := v.made[name]; ok {
		return m, true
	}
	var m ref.Val
	switch name {
	case "call.arguments":
		m = argumentsOf(*v.call)
	case "body":
		m = lookInto("the body is", v.body, newPlain)
	case "content_json":
		m = lookInto("the content is", v.output, newPlain)
	case "headers":
		m = list(v.headers, func(h hooks.Header) ref.Val { return types.String(h.Name) })
	case "tools":
		m = list(v.tools, func(t string) ref.Val { return types.String(t) })
	case "messages":
		m = list(v.messages, func(m hooks.Message) ref.Val { return thing{messageType, m} })
	case "hidden":
		m = list(v.hidden, func(h hooks.HiddenMessage) ref.Val { return thing{messageType, messageOf(h)} })
	default:
		return nil, false
	}
	if v.made == nil {
		v.made = map[string]ref.Val{}
	}
	v.made[name] = m
	return m, true
}

func list[T any](of []T, one func(T) ref.Val) ref.Val {
	out := make([]ref.Val, len(of))
	for i, e := range of {
		out[i] = one(e)
	}
	return types.NewRefValList(adapter, out)
}

func messageOf(h hooks.HiddenMessage) hooks.Message {
	return hooks.Message{Role: h.Role, Hidden: true, Parts: []hooks.Part{{Type: hooks.PartText, Text: h.Text}}}
}

// errInput says that a rule is not asked about so much.
var errInput = errors.New("more than a rule looks at")

// check refuses an input that is too large to be looked at within the limits.
func (v *vars) check() error {
	n := len(v.text) + len(v.system) + len(v.output) + len(v.body)
	if v.call != nil {
		n += len(v.call.Arguments)
	}
	for _, h := range v.hidden {
		n += len(h.Text)
	}
	for _, m := range v.messages {
		for _, p := range m.Parts {
			n += len(p.Text)
			if p.ToolCall != nil {
				n += len(p.ToolCall.Arguments)
			}
			if p.ToolResult != nil {
				n += len(p.ToolResult.Content)
			}
		}
	}
	if n > maxInputBytes {
		return fmt.Errorf("%w: %d bytes, of %d", errInput, n, maxInputBytes)
	}
	return nil
}
