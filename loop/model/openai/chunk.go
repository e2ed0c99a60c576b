package openai

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
)

// wireChunk is a chat.completion.chunk as found in the wild: whatever may be
// absent or null is a pointer, a slice or a lenient type.
type wireChunk struct {
	Choices []wireChoice    `json:"choices"`
	Usage   *wireUsage      `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

type wireChoice struct {
	// Index is not 0 only if someone asked for several answers.
	Index        int       `json:"index"`
	Delta        wireDelta `json:"delta"`
	FinishReason *string   `json:"finish_reason"`
}

type wireDelta struct {
	Content *string `json:"content"`
	Refusal *string `json:"refusal"`
	// Providers disagree about the name; some send both with the same text.
	ReasoningContent lenientText    `json:"reasoning_content"`
	Reasoning        lenientText    `json:"reasoning"`
	ToolCalls        []wireToolCall `json:"tool_calls"`
}

type wireToolCall struct {
	// Index is nil when it is absent or null, which is not the same as 0.
	Index    *int    `json:"index"`
	ID       *string `json:"id"`
	Function struct {
		Name      *string       `json:"name"`
		Arguments wireArguments `json:"arguments"`
	} `json:"function"`
}

// lenientText is a string, or nothing if the provider sent something else.
type lenientText string

// UnmarshalJSON keeps strings.
func (t *lenientText) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, (*string)(t))
	}
	return nil
}

// wireArguments is a piece of argument text. Some providers send the finished
// object instead of a string; its bytes are kept as they are.
type wireArguments string

// UnmarshalJSON takes a string's text or any other value's bytes.
func (a *wireArguments) UnmarshalJSON(data []byte) error {
	switch {
	case string(data) == "null":
		return nil
	case data[0] == '"':
		return json.Unmarshal(data, (*string)(a))
	}
	*a = wireArguments(bytes.TrimSpace(data))
	return nil
}

type wireUsage struct {
	PromptTokens     wireCount `json:"prompt_tokens"`
	CompletionTokens wireCount `json:"completion_tokens"`
}

func (u wireUsage) usage() stream.Usage {
	return stream.Usage{InputTokens: int64(u.PromptTokens), OutputTokens: int64(u.CompletionTokens)}
}

// wireCount is a whole number, or 0 if the provider sent something else.
type wireCount int64

// UnmarshalJSON keeps whole numbers.
func (c *wireCount) UnmarshalJSON(data []byte) error {
	if n, err := strconv.ParseInt(string(data), 10, 64); err == nil && n > 0 {
		*c = wireCount(n)
	}
	return nil
}

// finishReason maps a provider's word to agentd's closed set.
func finishReason(raw string) stream.FinishReason {
	switch raw {
	case "stop", "end_turn", "stop_sequence", "eos":
		return stream.FinishStop
	case "length", "max_tokens":
		return stream.FinishLength
	case "tool_calls", "tool_use", "function_call":
		return stream.FinishToolCalls
	case "content_filter":
		return stream.FinishContentFilter
	}
	return stream.FinishUnknown
}
