package openai

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-2ca4966b/agentd/loop/model/wire"
)

// Quirks are what differs between providers in the requests that they take.
// The zero value fits OpenAI's own API. What differs in their answers needs no
// setting: see the package comment.
type Quirks struct {
	// NoUsage leaves out stream_options.include_usage, for providers that
	// refuse a request with it. Usage is then reported only by those that
	// report it anyway.
	NoUsage bool
	// MaxTokensField carries [Config.MaxTokens]; "" means
	// [FieldMaxCompletionTokens].
	MaxTokensField MaxTokensField
	// Reasoning says which answers go back with the reasoning that led to
	// them; "" means [ReasoningNever].
	Reasoning ReasoningReplay
	// ToolNames are the names of tools that the provider takes.
	ToolNames ToolNames
	// ParallelToolCalls is parallel_tool_calls in requests with tools; ""
	// means [ParallelAbsent].
	ParallelToolCalls ParallelToolCalls
	// EmptyContent is the content of an answer that has calls and no text; ""
	// means [ContentAbsent].
	EmptyContent EmptyContent
}

// MaxTokensField is the field of a request that limits the answer's length.
type MaxTokensField string

// The fields.
const (
	FieldMaxCompletionTokens MaxTokensField = "max_completion_tokens"
	FieldMaxTokens           MaxTokensField = "max_tokens"
	// FieldNone: the limit is not sent, whatever it is.
	FieldNone MaxTokensField = "none"
)

// ReasoningReplay says which answers of the history go back with their
// reasoning_content. Such an answer without any reasoning goes back with one
// that is a blank, since the providers that want the field refuse an empty one
// as they refuse its absence.
type ReasoningReplay string

// The kinds of replay.
const (
	ReasoningNever ReasoningReplay = "never"
	// ReasoningToolCalls: answers with tool calls.
	ReasoningToolCalls ReasoningReplay = "tool_calls"
	// ReasoningAlways: all answers.
	ReasoningAlways ReasoningReplay = "always"
)

// ParallelToolCalls is what a request says about several calls in one answer.
type ParallelToolCalls string

// What may be said.
const (
	// ParallelAbsent: the field is not there, and the provider decides.
	ParallelAbsent ParallelToolCalls = "absent"
	ParallelTrue   ParallelToolCalls = "true"
	ParallelFalse  ParallelToolCalls = "false"
)

// EmptyContent is the content of an answer that has calls and no text.
type EmptyContent string

// The contents.
const (
	ContentAbsent EmptyContent = "absent"
	ContentNull   EmptyContent = "null"
	// ContentEmpty is an empty text.
	ContentEmpty EmptyContent = "empty"
)

// presets are the quirks of providers that people use, by name.
var presets = map[string]Quirks{
	"openai": {},
	// What most servers with an API like OpenAI's take.
	"compatible": {MaxTokensField: FieldMaxTokens},
	// Its thinking models refuse a history of calls without their reasoning.
	"deepseek": {MaxTokensField: FieldMaxTokens, Reasoning: ReasoningToolCalls},
	// It refuses fields that it does not know, among them include_usage, and
	// reports usage anyway.
	"mistral": {MaxTokensField: FieldMaxTokens, NoUsage: true},
}

// Preset returns the quirks of a provider by its name: openai (the zero
// value), compatible (any server with an API like OpenAI's), deepseek or
// mistral. ok is false for any other name.
func Preset(name string) (q Quirks, ok bool) {
	q, ok = presets[name]
	return q, ok
}

// Check says whether every value is one that there is. [New] checks too.
func (q Quirks) Check() error {
	_, err := q.check()
	return err
}

func (q Quirks) check() (wire.NameRule, error) {
	for _, err := range []error{
		oneOf("max tokens field", q.MaxTokensField, FieldMaxCompletionTokens, FieldMaxTokens, FieldNone),
		oneOf("reasoning replay", q.Reasoning, ReasoningNever, ReasoningToolCalls, ReasoningAlways),
		oneOf("parallel tool calls", q.ParallelToolCalls, ParallelAbsent, ParallelTrue, ParallelFalse),
		oneOf("empty content", q.EmptyContent, ContentAbsent, ContentNull, ContentEmpty),
	} {
		if err != nil {
			return wire.NameRule{}, err
		}
	}
	return q.ToolNames.Compile()
}

// oneOf refuses a value that is neither "" nor one of these.
func oneOf[T ~string](what string, got T, values ...T) error {
	if got == "" || slices.Contains(values, got) {
		return nil
	}
	var names []string
	for _, v := range values {
		names = append(names, string(v))
	}
	return fmt.Errorf("%s: %q is none of %s", what, got, strings.Join(names, ", "))
}
