package rules

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v4"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/pattern"
	"github.com/seed-2ca4966b/agentd/hooks/yamlfile"
)

// redacts puts other texts in the place of what patterns find.
type redacts struct{ patterns *pattern.Redactor }

func (a redacts) do(ctx context.Context, v *vars, out *said) error {
	pass := a.patterns.Begin(ctx)
	switch {
	case v.messages != nil:
		messages := cleanMessages(v.messages, pass)
		out.messages = &messages
	case v.call != nil:
		s := pass.Text(v.output)
		out.text = &s
	default:
		s := pass.Text(v.text)
		out.text = &s
	}
	if err := pass.Err(); err != nil {
		return fmt.Errorf("redact: %w", err)
	}
	if pass.Found() == nil {
		*out = said{action: hooks.ActionContinue}
		return nil
	}
	n := 0
	for _, times := range pass.Found() {
		n += times
	}
	out.action = hooks.ActionTransform
	out.annotations = map[string]string{"replaced": strconv.Itoa(n)}
	return nil
}

// cleanMessages are messages with every text of theirs redacted: what was said,
// what tools returned, and the texts in the arguments of calls.
func cleanMessages(messages []hooks.Message, pass *pattern.Pass) []hooks.Message {
	out := slices.Clone(messages)
	for i := range out {
		out[i].Parts = slices.Clone(out[i].Parts)
		for j := range out[i].Parts {
			p := &out[i].Parts[j]
			p.Text = pass.Text(p.Text)
			if p.ToolCall != nil {
				c := *p.ToolCall
				c.Arguments = pass.JSON(c.Arguments)
				p.ToolCall = &c
			}
			if p.ToolResult != nil {
				r := *p.ToolResult
				r.Content = pass.Text(r.Content)
				p.ToolResult = &r
			}
		}
	}
	return out
}

const redacted = "[redacted]"

func (c *compiler) redact(n *yaml.Node) action {
	var list []pattern.Rule
	ok := true
	items := yamlfile.Items(n)
	if len(items) == 0 || len(items) > maxPatterns {
		c.ErrorAt(n, "redact has %d patterns; expected 1 to %d", len(items), maxPatterns)
		return nil
	}
	for _, item := range items {
		r := pattern.Rule{With: redacted}
		ok = c.Fields(item, "redact", map[string]func(*yaml.Node){
			"pattern": func(n *yaml.Node) { r.Pattern = c.pattern(n) },
			"with": func(n *yaml.Node) {
				if !yamlfile.IsText(n) || len(n.Value) > maxWithBytes {
					c.ErrorAt(n, "with is %s; expected a text of at most %d bytes", yamlfile.KindOf(n), maxWithBytes)
					ok = false
				}
				r.With = n.Value
			},
		}) && ok
		if r.Pattern == "" {
			if ok && !slices.ContainsFunc(item.Content, func(n *yaml.Node) bool { return n.Value == "pattern" }) {
				c.ErrorAt(item, "redact has no pattern")
			}
			ok = false
		}
		list = append(list, r)
	}
	if !ok {
		return nil
	}
	r, err := pattern.New(list...)
	if err != nil {
		return nil // each was taken by itself
	}
	return redacts{r}
}

// pattern is a pattern that can be redacted, "" if it is told what is wrong.
func (c *compiler) pattern(n *yaml.Node) string {
	text, ok := c.Text(n, "pattern")
	if !ok {
		return ""
	}
	if _, err := pattern.New(pattern.Rule{Pattern: text}); err != nil {
		c.ErrorAt(n, "%v", errors.Unwrap(err))
		return ""
	}
	return text
}
