package scripted

import (
	"context"
	"fmt"
	"iter"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
)

// Options are what a script may need from its surroundings. The zero value
// plays every script without a wait step.
type Options struct {
	// Wait is called for a wait step with the step's name, and blocks until
	// the answer may go on. It returns promptly once ctx ends; its error ends
	// the answer. A nil Wait makes a wait step a failed call.
	Wait func(ctx context.Context, name string) error
}

// Model plays a script. It keeps no state and is safe for concurrent use.
type Model struct {
	script *Script
	opts   Options
}

var _ loop.Model = (*Model)(nil)

// New returns a model that plays script.
func New(script *Script, opts Options) *Model {
	return &Model{script: script, opts: opts}
}

// Stream plays the answer that the script has for the request. A history
// that a provider would refuse, a user message that no scenario matches and a
// model call that the scenario has no answer for are [loop.ModelError]s that
// cannot be retried.
func (m *Model) Stream(ctx context.Context, req loop.ModelRequest) iter.Seq2[stream.Chunk, error] {
	return func(yield func(stream.Chunk, error) bool) {
		steps, v, err := m.answer(req)
		if err != nil {
			yield(stream.Chunk{}, err)
			return
		}
		p := player{opts: m.opts, attempt: max(req.Attempt, 1), values: v, yield: yield}
		p.play(ctx, steps)
	}
}

// answer picks the steps to play. It depends on the request alone.
func (m *Model) answer(req loop.ModelRequest) ([]step, values, error) {
	if err := validate(req.Messages); err != nil {
		return nil, nil, &loop.ModelError{Status: 400, Code: "invalid_request_error", Message: err.Error()}
	}
	text, result, call := situation(req.Messages)
	sc, groups, ok := m.script.find(text)
	if !ok {
		return nil, nil, &loop.ModelError{Code: "no_scenario", Message: "the script has no scenario for the last user message"}
	}
	if call >= len(sc.Answers) {
		return nil, nil, &loop.ModelError{
			Code: "no_answer",
			Message: fmt.Sprintf("scenario %q has %d answers, and this is model call %d since the last user message",
				sc.Name, len(sc.Answers), call+1),
		}
	}
	v := values{"last_user": text, "tool_result": result}
	for name, captured := range groups {
		v[name] = captured
	}
	return sc.Answers[call].Steps, v, nil
}

// situation returns the last user message's text, the last tool result behind
// it, and how many assistant messages are behind it.
func situation(messages []hooks.Message) (user, result string, calls int) {
	for _, m := range messages {
		switch m.Role {
		case hooks.RoleUser:
			user, result, calls = m.Text(), "", 0
		case hooks.RoleAssistant:
			calls++
		case hooks.RoleTool:
			for _, p := range m.Parts {
				if p.ToolResult != nil {
					result = p.ToolResult.Content
				}
			}
		case hooks.RoleSystem:
		}
	}
	return user, result, calls
}
