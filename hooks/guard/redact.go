package guard

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/pattern"
	"github.com/seed-2ca4966b/agentd/hooks/setting"
)

// RedactConfig says what is taken out of texts, and where.
type RedactConfig struct {
	// Patterns names builtin patterns and sets of them, see [setting.PatternNames].
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
	found, err := setting.Redaction{Patterns: c.Patterns, Matching: c.Matching, With: c.With}.Redactor(kind)
	if err != nil {
		return hooks.Hooks{}, err
	}
	r := redactor{found}
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
			return nil, setting.Errorf(guard, fmt.Sprintf("%s[%d]", field, i), "%q is none of %s", p, strings.Join(all, ", "))
		}
		where[p] = true
	}
	return where, nil
}

// redactor redacts where it was told to.
type redactor struct{ *pattern.Redactor }

func (r redactor) message(ctx context.Context, in hooks.BeforeInput) (hooks.BeforeInputResult, error) {
	p := r.Begin(ctx)
	text := p.Text(in.Text)
	out := hooks.BeforeInputResult{Action: action(p), Annotations: annotations(p)}
	if p.Found() != nil {
		out.Text = &text
	}
	return out, p.Err()
}

func (r redactor) output(ctx context.Context, in hooks.AfterToolCall) (hooks.AfterToolCallResult, error) {
	p := r.Begin(ctx)
	text := p.Text(in.Content)
	out := hooks.AfterToolCallResult{Action: action(p), Annotations: annotations(p)}
	if p.Found() != nil {
		out.Content = &text
	}
	return out, p.Err()
}

func (r redactor) context(ctx context.Context, in hooks.TransformContext) (hooks.TransformContextResult, error) {
	pass := r.Begin(ctx)
	for _, m := range in.Messages { // a copy of its own
		for j := range m.Parts {
			p := &m.Parts[j]
			p.Text = pass.Text(p.Text)
			if c := p.ToolCall; c != nil {
				c.Arguments = pass.JSON(c.Arguments)
			}
			if res := p.ToolResult; res != nil {
				res.Content = pass.Text(res.Content)
			}
		}
	}
	out := hooks.TransformContextResult{Action: action(pass), Annotations: annotations(pass)}
	if pass.Found() != nil {
		out.Messages = &in.Messages
	}
	return out, pass.Err()
}

func action(p *pattern.Pass) hooks.Action {
	if p.Found() == nil {
		return hooks.ActionContinue
	}
	return hooks.ActionTransform
}

// annotations says how often each pattern was found.
func annotations(p *pattern.Pass) map[string]string {
	var out map[string]string
	for name, n := range p.Found() {
		if out == nil {
			out = map[string]string{}
		}
		out[name] = strconv.Itoa(n)
	}
	return out
}
