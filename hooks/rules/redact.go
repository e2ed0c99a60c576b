package rules

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/yamlfile"
)

// redacts puts other texts in the place of what patterns find.
type redacts struct{ patterns []replacement }

type replacement struct {
	find *regexp.Regexp
	with string
}

func (a redacts) do(ctx context.Context, v *vars, out *said) error {
	n := 0
	var failed error
	clean := func(s string) string {
		for _, p := range a.patterns {
			if failed = cmp.Or(failed, ctx.Err()); failed != nil {
				return s
			}
			var found int
			s, found, failed = p.replace(s)
			n += found
		}
		return s
	}
	switch {
	case v.messages != nil:
		messages := cleanMessages(v.messages, clean)
		out.messages = &messages
	case v.call != nil:
		s := clean(v.output)
		out.text = &s
	default:
		s := clean(v.text)
		out.text = &s
	}
	if failed != nil {
		return fmt.Errorf("redact: %w", failed)
	}
	if n == 0 {
		*out = said{action: hooks.ActionContinue}
		return nil
	}
	out.action = hooks.ActionTransform
	out.annotations = map[string]string{"replaced": strconv.Itoa(n)}
	return nil
}

// maxFound is how often one pattern may be found in one text: each place costs
// more memory than a character of the text does.
const maxFound = 100_000

var errFound = fmt.Errorf("a pattern is found more than %d times in one text", maxFound)

// replace is s without what the pattern finds, and how often it was found.
func (p replacement) replace(s string) (string, int, error) {
	found := p.find.FindAllStringIndex(s, maxFound+1)
	switch {
	case len(found) == 0:
		return s, 0, nil
	case len(found) > maxFound:
		return s, 0, errFound
	case len(s)+len(found)*len(p.with) > 2*maxOutputBytes:
		return s, 0, errLong
	}
	var b strings.Builder
	end := 0
	for _, at := range found {
		b.WriteString(s[end:at[0]])
		b.WriteString(p.with)
		end = at[1]
	}
	b.WriteString(s[end:])
	return b.String(), len(found), nil
}

// cleanMessages are messages with every text of theirs redacted: what was said,
// what tools returned, and the texts in the arguments of calls.
func cleanMessages(messages []hooks.Message, clean func(string) string) []hooks.Message {
	out := slices.Clone(messages)
	for i := range out {
		out[i].Parts = slices.Clone(out[i].Parts)
		for j := range out[i].Parts {
			p := &out[i].Parts[j]
			p.Text = clean(p.Text)
			if p.ToolCall != nil {
				c := *p.ToolCall
				c.Arguments = cleanArguments(c.Arguments, clean)
				p.ToolCall = &c
			}
			if p.ToolResult != nil {
				r := *p.ToolResult
				r.Content = clean(r.Content)
				p.ToolResult = &r
			}
		}
	}
	return out
}

// cleanArguments redacts the texts in JSON, so that it stays JSON. What is no
// JSON is redacted as it is.
func cleanArguments(arguments string, clean func(string) string) string {
	v, err := decode(arguments)
	if err != nil {
		return clean(arguments)
	}
	c, changed := cleanValue(v, clean)
	if !changed {
		return arguments
	}
	return c.String()
}

func cleanValue(v value, clean func(string) string) (value, bool) {
	changed := false
	switch {
	case v.object != nil:
		o, taken := &object{}, map[string]bool{}
		for _, m := range v.object.members {
			of, did := cleanValue(m.value, clean)
			name := clean(m.name)
			changed = changed || did || name != m.name
			for taken[name] {
				name += "_" // two names have become one
			}
			taken[name] = true
			o.members = append(o.members, member{name, of})
		}
		return value{object: o}, changed
	case v.isArray:
		out := value{isArray: true, array: slices.Clone(v.array)}
		for i := range out.array {
			of, did := cleanValue(out.array[i], clean)
			out.array[i], changed = of, changed || did
		}
		return out, changed
	}
	s, ok := v.text()
	if !ok {
		// A number may be what is looked for: it becomes a text then.
		s = v.raw
	}
	if c := clean(s); c != s {
		return textValue(c), true
	}
	return v, false
}

const redacted = "[redacted]"

func (c *compiler) redact(n *yaml.Node) action {
	var a redacts
	ok := true
	list := yamlfile.Items(n)
	if len(list) == 0 || len(list) > maxPatterns {
		c.ErrorAt(n, "redact has %d patterns; expected 1 to %d", len(list), maxPatterns)
		return nil
	}
	for _, item := range list {
		r := replacement{with: redacted}
		ok = c.Fields(item, "redact", map[string]func(*yaml.Node){
			"pattern": func(n *yaml.Node) { r.find = c.pattern(n) },
			"with": func(n *yaml.Node) {
				if !yamlfile.IsText(n) || len(n.Value) > maxWithBytes {
					c.ErrorAt(n, "with is %s; expected a text of at most %d bytes", yamlfile.KindOf(n), maxWithBytes)
					ok = false
				}
				r.with = n.Value
			},
		}) && ok
		if r.find == nil {
			if ok && !slices.ContainsFunc(item.Content, func(n *yaml.Node) bool { return n.Value == "pattern" }) {
				c.ErrorAt(item, "redact has no pattern")
			}
			ok = false
		}
		a.patterns = append(a.patterns, r)
	}
	if !ok {
		return nil
	}
	return a
}

func (c *compiler) pattern(n *yaml.Node) *regexp.Regexp {
	text, ok := c.Text(n, "pattern")
	if !ok {
		return nil
	}
	re, err := compilePattern(text)
	if err == nil && re.MatchString("") {
		err = errMatchesNothing
	}
	if err != nil {
		c.ErrorAt(n, "%v", err)
		return nil
	}
	return re
}
