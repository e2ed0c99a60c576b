package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// RedactConfig says what is taken out of texts, and where.
type RedactConfig struct {
	// Patterns names builtin patterns, see [Patterns].
	Patterns []string `json:"patterns,omitempty" yaml:"patterns"`
	// Matching are regular expressions (RE2) of your own. None may match the
	// empty text.
	Matching []string `json:"matching,omitempty" yaml:"matching"`
	// With stands in the place of what was found; "" is [redacted].
	With string `json:"with,omitempty" yaml:"with"`
	// In says where: message (what a user says), tool_output, and context (what
	// a model is sent, what it said itself and its calls included). Empty is
	// everywhere.
	In []string `json:"in,omitempty" yaml:"in"`
}

// Where a text is looked at.
const (
	InMessage    = "message"
	InToolOutput = "tool_output"
	InContext    = "context"
)

// Redact takes secrets out: of a user's message and a tool's output before
// they are stored, and of what a model is sent. In the arguments of calls it
// changes the texts and keeps the JSON; a number that is found becomes a text.
// The ledger has the paths and digests of what was changed, how often each
// pattern was found, and no value.
//
// It is pure. What a model answers is not redacted, and neither is the system
// prompt.
func Redact(c RedactConfig, opts ...hooks.Option) (hooks.Hooks, error) {
	const kind = "redact"
	r, err := c.redactor(kind)
	if err != nil {
		return hooks.Hooks{}, err
	}
	where, err := places(kind, "in", c.In, InMessage, InToolOutput, InContext)
	if err != nil {
		return hooks.Hooks{}, err
	}
	const id = "redact"
	opts = given(c, hooks.PhaseMutate, opts, hooks.Pure(), hooks.Redacting())
	var h hooks.Hooks
	if where[InMessage] {
		h.BeforeInput = hooks.Named(id, "1", r.message, opts...)
	}
	if where[InToolOutput] {
		h.AfterToolCall = hooks.Named(id, "1", r.output, opts...)
	}
	if where[InContext] {
		h.TransformContext = hooks.Named(id, "1", r.context, opts...)
	}
	return h, nil
}

// places are those of a config, all that there are if it names none.
func places(guard, field string, given []string, all ...string) (map[string]bool, error) {
	if len(given) == 0 {
		given = all
	}
	where := map[string]bool{}
	for i, p := range given {
		if !slices.Contains(all, p) {
			return nil, badConfig(guard, fmt.Sprintf("%s[%d]", field, i), "%q is none of %s", p, strings.Join(all, ", "))
		}
		where[p] = true
	}
	return where, nil
}

type redactor struct {
	secrets []secret
	with    string
}

func (c RedactConfig) redactor(kind string) (*redactor, error) {
	r := &redactor{with: cmp.Or(c.With, "[redacted]")}
	switch n := len(c.Patterns) + len(c.Matching); {
	case n == 0:
		return nil, badConfig(kind, "patterns", "names nothing to look for; expected some of %s, or matching", strings.Join(Patterns(), ", "))
	case n > maxPatterns:
		return nil, badConfig(kind, "", "has %d patterns; at most %d are taken", n, maxPatterns)
	case len(c.With) > maxText:
		return nil, badConfig(kind, "with", "has %d bytes; at most %d are taken", len(c.With), maxText)
	}
	for i, name := range c.Patterns {
		s, ok := named[name]
		if !ok {
			return nil, badConfig(kind, fmt.Sprintf("patterns[%d]", i), "%q is none of %s", name, strings.Join(Patterns(), ", "))
		}
		s.name = name
		r.secrets = append(r.secrets, s)
	}
	for i, pattern := range c.Matching {
		field := fmt.Sprintf("matching[%d]", i)
		re, err := compile(pattern)
		if err == nil && re.MatchString("") {
			err = errEmptyMatch
		}
		if err != nil {
			return nil, badConfig(kind, field, "%v", err)
		}
		r.secrets = append(r.secrets, secret{name: field, find: re})
	}
	return r, nil
}

func (r *redactor) message(ctx context.Context, in hooks.BeforeInput) (hooks.BeforeInputResult, error) {
	var f findings
	text := f.clean(ctx, r, in.Text)
	out := hooks.BeforeInputResult{Action: f.action(), Annotations: f.annotations()}
	if f.found != nil {
		out.Text = &text
	}
	return out, f.err
}

func (r *redactor) output(ctx context.Context, in hooks.AfterToolCall) (hooks.AfterToolCallResult, error) {
	var f findings
	text := f.clean(ctx, r, in.Content)
	out := hooks.AfterToolCallResult{Action: f.action(), Annotations: f.annotations()}
	if f.found != nil {
		out.Content = &text
	}
	return out, f.err
}

func (r *redactor) context(ctx context.Context, in hooks.TransformContext) (hooks.TransformContextResult, error) {
	var f findings
	clean := func(s string) string { return f.clean(ctx, r, s) }
	for _, m := range in.Messages { // a copy of its own
		for j := range m.Parts {
			p := &m.Parts[j]
			p.Text = clean(p.Text)
			if c := p.ToolCall; c != nil {
				c.Arguments = rewriteJSON(c.Arguments, clean)
			}
			if res := p.ToolResult; res != nil {
				res.Content = clean(res.Content)
			}
		}
	}
	out := hooks.TransformContextResult{Action: f.action(), Annotations: f.annotations()}
	if f.found != nil {
		out.Messages = &in.Messages
	}
	return out, f.err
}

// findings is what was found in the texts of one position.
type findings struct {
	found map[string]int
	bytes int
	err   error
}

// maxCleaned is how long the texts of one position may become.
const maxCleaned = 16 << 20

var errCleaned = errors.New("what would stand in the place of what was found makes the text too long")

// clean is s without the secrets; once something went wrong it is any text.
func (f *findings) clean(ctx context.Context, r *redactor, s string) string {
	for _, p := range r.secrets {
		if f.err = cmp.Or(f.err, ctx.Err()); f.err != nil {
			return ""
		}
		at := p.in(s)
		f.bytes += len(at) * len(r.with)
		switch {
		case len(at) == 0:
			continue
		case len(at) > maxFound:
			f.err = errFound
			return ""
		case f.bytes > maxCleaned:
			f.err = errCleaned
			return ""
		}
		var b strings.Builder
		end := 0
		for _, span := range at {
			b.WriteString(s[end:span[0]])
			b.WriteString(r.with)
			end = span[1]
		}
		b.WriteString(s[end:])
		if cleaned := b.String(); cleaned != s {
			s = cleaned
			if f.found == nil {
				f.found = map[string]int{}
			}
			f.found[p.name] += len(at)
		}
	}
	return s
}

func (f *findings) action() hooks.Action {
	if f.found == nil {
		return hooks.ActionContinue
	}
	return hooks.ActionTransform
}

// annotations says how often each pattern was found.
func (f *findings) annotations() map[string]string {
	var out map[string]string
	for name, n := range f.found {
		if out == nil {
			out = map[string]string{}
		}
		out[name] = strconv.Itoa(n)
	}
	return out
}
