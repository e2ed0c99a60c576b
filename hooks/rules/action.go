package rules

import (
	"context"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/yamlfile"
)

// said is what a rule comes to: a result of any gate. A gate takes of it what it
// has.
type said struct {
	action      hooks.Action
	reason      hooks.Reason
	annotations map[string]string
	reply       string

	text    *string // of an input, or arguments, a body, an output
	isError *bool
	system  *string
	extra   []hooks.HiddenMessage
	tools   *[]string
	set     []hooks.Header
	remove  []string
	// messages are the input's own with what was redacted.
	messages *[]hooks.Message
}

// action is what a rule does once its condition holds.
type action interface {
	do(ctx context.Context, v *vars, out *said) error
}

// says are the actions that have nothing but a text.
type says struct {
	action hooks.Action
	text   *template
}

func (a says) do(ctx context.Context, v *vars, out *said) error {
	limit := maxReasonBytes
	if a.action == hooks.ActionHandled {
		limit = maxOutputBytes
	}
	// A reason may be cut: that it is long must not undo the refusal.
	s, err := a.text.eval(ctx, v, maxOutputBytes)
	if err != nil {
		return err
	}
	out.action = a.action
	if a.action == hooks.ActionHandled {
		out.reply = s
		return nil
	}
	out.reason.Text = yamlfile.Cut(s, limit)
	return nil
}

// transforms puts the members of a merge patch in the place of what is there.
type transforms struct {
	gate    hooks.Gate
	members []mouldMember
}

func (a transforms) do(ctx context.Context, v *vars, out *said) error {
	out.action = hooks.ActionTransform
	for _, m := range a.members {
		patch, err := m.of.eval(ctx, v)
		if err != nil {
			return err
		}
		if err := a.change(m.name, patch, v, out); err != nil {
			return fmt.Errorf("transform.%s: %w", m.name, err)
		}
	}
	return nil
}

func (a transforms) change(key string, patch value, v *vars, out *said) (err error) {
	switch key {
	case "text":
		out.text, err = asText(patch)
	case "system":
		out.system, err = asText(patch)
	case "append":
		out.extra, err = asMessages(patch)
	case "tools":
		out.tools, err = asTexts(patch)
	case "headers":
		out.set, out.remove, err = asHeaders(patch)
	case "body":
		out.text, err = patched(v.body, patch, nil)
	case "arguments":
		out.text, err = patched(v.call.Arguments, patch, sameLetters)
	case "content":
		if patch.object != nil {
			out.text, err = patched(v.output, patch, nil)
		} else {
			out.text, err = asText(patch)
		}
	case "is_error":
		out.isError, err = asBool(patch)
	}
	return err
}

// patched is a JSON object after a merge patch that check, if there is one, lets
// be.
func patched(text string, patch value, check func(target, patch value) error) (*string, error) {
	if patch.object == nil {
		return nil, fmt.Errorf("expected an object, not %s", yamlfile.Cut(patch.String(), 40))
	}
	target, err := decode(text)
	if err != nil {
		return nil, err
	}
	if target.object == nil {
		return nil, fmt.Errorf("what is to be changed is no JSON object: %s", yamlfile.Cut(text, 40))
	}
	if check != nil {
		if err := check(target, patch); err != nil {
			return nil, err
		}
	}
	s := merge(target, patch).String()
	return &s, nil
}

// asText takes a scalar as it would stand in a text, but for null: nothing of
// what a gate lets change can be taken away.
func asText(v value) (*string, error) {
	if s, ok := v.text(); ok {
		return &s, nil
	}
	if v.object != nil || v.isArray || v.isNull() {
		return nil, fmt.Errorf("expected a text, not %s", yamlfile.Cut(v.String(), 40))
	}
	return &v.raw, nil
}

func asBool(v value) (*bool, error) {
	b := v.raw == "true"
	if !b && v.raw != "false" {
		return nil, fmt.Errorf("expected true or false, not %s", yamlfile.Cut(v.String(), 40))
	}
	return &b, nil
}

func asTexts(v value) (*[]string, error) {
	if !v.isArray {
		return nil, fmt.Errorf("expected a list, not %s", yamlfile.Cut(v.String(), 40))
	}
	out := []string{}
	for _, e := range v.array {
		s, err := asText(e)
		if err != nil {
			return nil, err
		}
		out = append(out, *s)
	}
	return &out, nil
}

func asMessages(v value) ([]hooks.HiddenMessage, error) {
	if !v.isArray {
		return nil, fmt.Errorf("expected a list, not %s", yamlfile.Cut(v.String(), 40))
	}
	var out []hooks.HiddenMessage
	for _, e := range v.array {
		role, text := "", ""
		if e.object == nil {
			return nil, fmt.Errorf("expected role and text, not %s", yamlfile.Cut(e.String(), 40))
		}
		for _, m := range e.object.members {
			s, err := asText(m.value)
			if err != nil {
				return nil, err
			}
			switch m.name {
			case "role":
				role = *s
			case "text":
				text = *s
			default:
				return nil, fmt.Errorf("a message has role and text, and no %s", yamlfile.Cut(m.name, yamlfile.MaxIDBytes))
			}
		}
		out = append(out, hooks.HiddenMessage{Role: hooks.Role(role), Text: text})
	}
	return out, nil
}

func asHeaders(v value) (set []hooks.Header, remove []string, err error) {
	if v.object == nil {
		return nil, nil, fmt.Errorf("expected names and values, not %s", yamlfile.Cut(v.String(), 40))
	}
	for _, m := range v.object.members {
		if m.value.isNull() {
			remove = append(remove, m.name)
			continue
		}
		s, err := asText(m.value)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", m.name, err)
		}
		set = append(set, hooks.Header{Name: m.name, Value: *s})
	}
	return set, remove, nil
}

// action compiles what stands under the key of an action.
func (c *compiler) action(key string, n *yaml.Node) action {
	switch key {
	case doTransform:
		return c.transform(n)
	case doRedact:
		return c.redact(n)
	}
	what := "the reason of " + key
	if key == doHandled {
		what = "the reply of handled"
	}
	t := c.template(n, what)
	if t == nil {
		return nil
	}
	return says{action: hooks.Action(key), text: t}
}

func (c *compiler) transform(n *yaml.Node) action {
	a := transforms{gate: c.gate.name}
	known := map[string]func(*yaml.Node){}
	ok := true
	for _, key := range c.gate.changes {
		known[key] = func(n *yaml.Node) {
			m := c.shaped(key, n)
			ok = ok && m != nil
			a.members = append(a.members, mouldMember{key, m})
		}
	}
	if !c.Fields(n, "transform at "+string(c.gate.name), known) || !ok {
		return nil
	}
	if len(a.members) == 0 {
		c.ErrorAt(n, "transform changes nothing; expected %s", strings.Join(c.gate.changes, " or "))
		return nil
	}
	return a
}

// shaped compiles one member of a transform, and refuses what can be seen to be
// none before it is asked.
func (c *compiler) shaped(key string, n *yaml.Node) *mould {
	m := c.mould(n)
	if m == nil {
		return nil
	}
	dynamic := m.text != nil
	fits, want := true, ""
	switch key {
	case "text", "system":
		fits, want = !m.object && !m.isArray && !m.fixed.isNull(), "a text"
	case "content":
		fits, want = !m.isArray && !m.fixed.isNull(), "a text, or an object to merge into the JSON that is there"
	case "is_error":
		fits, want = m.fixed.raw == "true" || m.fixed.raw == "false", "true or false"
	case "tools":
		fits, want = m.isArray, "a list of names"
	case "append":
		fits, want = m.isArray && len(m.array) > 0, "a list of messages with role and text"
		for _, one := range m.array {
			fits = fits && isMessage(one)
		}
	case "headers":
		fits, want = m.object && len(m.members) > 0, "names and values, null to leave one out"
	case "body", "arguments":
		fits, want = m.object && len(m.members) > 0, "an object to merge into the one that is there"
	}
	if !fits && !dynamic {
		c.ErrorAt(n, "transform.%s is %s; expected %s", key, yamlfile.KindOf(n), want)
		return nil
	}
	return m
}

func isMessage(m *mould) bool {
	if !m.object || len(m.members) != 2 {
		return false
	}
	for _, one := range m.members {
		switch one.name {
		case "role":
			role, _ := one.of.fixed.text()
			if hooks.Role(role) != hooks.RoleSystem && hooks.Role(role) != hooks.RoleUser {
				return false
			}
		case "text":
			if _, ok := one.of.fixed.text(); !ok && one.of.text == nil {
				return false
			}
		default:
			return false
		}
	}
	return true
}
