package guard

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/setting"
)

// What is done about text that has markers.
const (
	// OnMarkersAnnotate changes nothing: the ledger says what was found.
	OnMarkersAnnotate = "annotate"
	// OnMarkersWithhold keeps a tool's output from the model, and refuses a
	// message.
	OnMarkersWithhold = "withhold"
	// OnMarkersAsk lets the text pass, and from then on a person decides about
	// every tool call of the session.
	OnMarkersAsk = "ask"
)

// CodeInjectionSuspected is the reason code of every decision about text that
// has markers. It is stored: it is never renamed.
const CodeInjectionSuspected = "injection_suspected"

// PromptInjectionMarkersConfig says what is looked for, where, and what is done.
type PromptInjectionMarkersConfig struct {
	// Action is annotate, withhold or ask; "" is annotate.
	Action string `json:"action,omitempty" yaml:"action"`
	// Markers are some of phrase, role, invisible and encoded; empty is all.
	Markers []string `json:"markers,omitempty" yaml:"markers"`
	// Phrases are more to look for, in any case and with any white space. They
	// count as the marker phrase.
	Phrases []string `json:"phrases,omitempty" yaml:"phrases"`
	// In says where: message and tool_output. Empty is both.
	In []string `json:"in,omitempty" yaml:"in"`
}

// Suspicions know what was found before.
type Suspicions interface {
	// Suspected reports whether the hook with that id has made a decision with
	// the code [CodeInjectionSuspected] in the session of the run.
	Suspected(ctx context.Context, run hooks.RunRef, hookID string) (bool, error)
}

// PromptInjectionMarkers looks for marks of text that wants to be taken for
// instructions, in messages and tool outputs: known phrases, chat-template
// tokens and lines in another's name, invisible characters, and base64 of such.
//
// It finds what is careless or known. Whoever knows these lists writes around
// them, in another language, other words, an image or two halves, and text about
// such attacks has the marks as well. So it is no boundary: what an agent must
// not do belongs into its permissions, and what a person should see into
// approvals.
//
// Suspicions are needed for the action ask alone, whose hook at BeforeToolCall
// is not pure; everything else is.
func PromptInjectionMarkers(c PromptInjectionMarkersConfig, before Suspicions, opts ...hooks.Option) (hooks.Hooks, error) {
	const kind, id = "prompt_injection_markers", "prompt-injection-markers"
	where, err := places(kind, "in", c.In, InMessage, InToolOutput)
	if err != nil {
		return hooks.Hooks{}, err
	}
	m := &markers{action: c.Action}
	if m.finder.markers, err = places(kind, "markers", c.Markers, allMarkers...); err != nil {
		return hooks.Hooks{}, err
	}
	if !slices.Contains([]string{"", OnMarkersAnnotate, OnMarkersWithhold, OnMarkersAsk}, c.Action) {
		return hooks.Hooks{}, setting.Errorf(kind, "action", "%q is none of annotate, withhold, ask", shorten(c.Action, maxShown))
	}
	if len(c.Phrases) > maxListed {
		return hooks.Hooks{}, setting.Errorf(kind, "phrases", "has %d phrases; at most %d are taken", len(c.Phrases), maxListed)
	}
	for i, p := range c.Phrases {
		folded := fold(p)
		if folded == "" || len(p) > maxText {
			return hooks.Hooks{}, setting.Errorf(kind, fmt.Sprintf("phrases[%d]", i), "must have 1 to %d bytes that are seen", maxText)
		}
		m.finder.own = append(m.finder.own, folded)
	}
	if len(c.Phrases) > 0 && !m.finder.markers[MarkerPhrase] {
		return hooks.Hooks{}, setting.Errorf(kind, "phrases", "are looked for with the marker phrase, which markers does not name")
	}
	opts = given(c, hooks.PhaseValidate, opts)
	pure := append(slices.Clip(opts), hooks.Pure())
	var h hooks.Hooks
	if where[InMessage] {
		h.BeforeInput = hooks.Named(id, "1", m.message, pure...)
	}
	if where[InToolOutput] {
		h.AfterToolCall = hooks.Named(id, "1", m.output, pure...)
	}
	if c.Action == OnMarkersAsk {
		if before == nil {
			return hooks.Hooks{}, errNoCounter
		}
		m.before, m.id = before, registered(id, opts).ID
		h.BeforeToolCall = hooks.Named(id, "1", m.call, opts...)
	}
	return h, nil
}

type markers struct {
	action string
	finder finder
	before Suspicions
	id     string
}

// suspect is what is said of text, and whether anything was found.
func (m *markers) suspect(text string) (hooks.Reason, map[string]string, bool) {
	found := m.finder.find(text)
	if len(found) == 0 {
		return hooks.Reason{}, nil, false
	}
	return hooks.Reason{Code: CodeInjectionSuspected, Text: describe(found)}, map[string]string{"markers": strings.Join(found, ",")}, true
}

func (m *markers) message(_ context.Context, in hooks.BeforeInput) (hooks.BeforeInputResult, error) {
	out := hooks.BeforeInputResult{Action: hooks.ActionContinue}
	var found bool
	if out.Reason, out.Annotations, found = m.suspect(in.Text); found && m.action == OnMarkersWithhold {
		out.Action = hooks.ActionBlock
		out.Reason.Text = "The message is not taken. " + out.Reason.Text
	}
	return out, nil
}

func (m *markers) output(_ context.Context, in hooks.AfterToolCall) (hooks.AfterToolCallResult, error) {
	out := hooks.AfterToolCallResult{Action: hooks.ActionContinue}
	var found bool
	if out.Reason, out.Annotations, found = m.suspect(in.Content); found && m.action == OnMarkersWithhold {
		out.Action = hooks.ActionWithhold
	}
	return out, nil
}

func (m *markers) call(ctx context.Context, in hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
	suspected, err := m.before.Suspected(ctx, in.RunRef, m.id)
	if err != nil {
		return hooks.BeforeToolCallResult{}, fmt.Errorf("look up what was found before: %w", err)
	}
	if !suspected {
		return hooks.BeforeToolCallResult{Action: hooks.ActionContinue}, nil
	}
	return hooks.BeforeToolCallResult{Action: hooks.ActionAsk, Reason: hooks.Reason{
		Code: CodeInjectionSuspected, Text: "Something that the agent has read in this session may be meant to give it orders.",
	}}, nil
}
