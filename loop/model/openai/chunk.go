package openai

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/model/wire"
)

// wireChunk is a chat.completion.chunk as found in the wild: whatever may be
// absent, null or of another type is a pointer, a slice or a lenient type.
type wireChunk struct {
	Choices []wireChoice    `json:"choices"`
	Usage   *wireUsage      `json:"usage"`
	Error   json.RawMessage `json:"error"`
	// What follows is for errors that are no member of the chunk, but the
	// chunk itself.
	Object  wire.LenientText `json:"object"`
	Type    wire.LenientText `json:"type"`
	Message wire.LenientText `json:"message"`
	Code    json.RawMessage  `json:"code"`
}

type wireChoice struct {
	// Index is not 0 only if someone asked for several answers.
	Index wireIndex  `json:"index"`
	Delta *wireDelta `json:"delta"`
	// Message stands for the delta with providers that have their whole answer
	// at once.
	Message      *wireDelta       `json:"message"`
	FinishReason wire.LenientText `json:"finish_reason"`
	Usage        *wireUsage       `json:"usage"`
}

func (c wireChoice) delta() wireDelta {
	switch {
	case c.Delta != nil:
		return *c.Delta
	case c.Message != nil:
		return *c.Message
	}
	return wireDelta{}
}

type wireDelta struct {
	Content wireContent `json:"content"`
	Refusal wire.Text   `json:"refusal"`
	// Providers disagree about the name; some send both with the same text.
	ReasoningContent wire.Text      `json:"reasoning_content"`
	Reasoning        wire.Text      `json:"reasoning"`
	ToolCalls        []wireToolCall `json:"tool_calls"`
	// FunctionCall is what tool calls were before there were several.
	FunctionCall *wireFunctionPiece `json:"function_call"`
}

type wireToolCall struct {
	Index    wireIndex         `json:"index"`
	ID       wire.LenientText  `json:"id"`
	Function wireFunctionPiece `json:"function"`
}

type wireFunctionPiece struct {
	Name      wire.LenientText `json:"name"`
	Arguments wireArguments    `json:"arguments"`
}

// wireIndex is a whole number. One that is absent, null or anything else is
// not known, which is not the same as 0.
type wireIndex struct {
	n     int
	known bool
}

// UnmarshalJSON keeps whole numbers, in quotes too.
func (i *wireIndex) UnmarshalJSON(data []byte) error {
	if n, err := strconv.Atoi(strings.Trim(string(data), `"`)); err == nil {
		*i = wireIndex{n: n, known: true}
	}
	return nil
}

// wireContent is a text, or parts of which some are text and some reasoning.
type wireContent struct {
	text      string
	reasoning string
}

type wirePart struct {
	Text     wire.Text     `json:"text"`
	Thinking *wireThinking `json:"thinking"`
}

// wireThinking is a text, or parts.
type wireThinking string

// UnmarshalJSON takes a text or the texts of parts. Null is nothing.
func (c *wireContent) UnmarshalJSON(data []byte) error {
	switch {
	case data[0] == '"':
		c.text = wire.Unquote(data)
		return nil
	case string(data) == "null":
		return nil
	}
	var parts []wirePart
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	for _, p := range parts {
		if p.Thinking != nil {
			c.reasoning += string(*p.Thinking)
		}
		c.text += string(p.Text)
	}
	return nil
}

// UnmarshalJSON keeps a string or the texts of parts.
func (t *wireThinking) UnmarshalJSON(data []byte) error {
	if data[0] != '[' {
		return (*wire.Text)(t).UnmarshalJSON(data)
	}
	// No wirePart: thinking within thinking would be read over and over.
	var parts []struct {
		Text wire.Text `json:"text"`
	}
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	for _, p := range parts {
		*t += wireThinking(p.Text)
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
		*a = wireArguments(wire.Unquote(data))
		return nil
	}
	*a = wireArguments(bytes.TrimSpace(data))
	return nil
}

type wireUsage struct {
	input, output wire.Count
}

// UnmarshalJSON reads the counts of an object; anything else reports nothing.
func (u *wireUsage) UnmarshalJSON(data []byte) error {
	if data[0] != '{' {
		return nil
	}
	var counts struct {
		PromptTokens     wire.Count `json:"prompt_tokens"`
		CompletionTokens wire.Count `json:"completion_tokens"`
	}
	err := json.Unmarshal(data, &counts)
	u.input, u.output = counts.PromptTokens, counts.CompletionTokens
	return err
}

// finishReason maps a provider's word to agentd's closed set.
func finishReason(raw string) stream.FinishReason {
	switch strings.ToLower(raw) {
	case "stop", "end_turn", "stop_sequence", "eos":
		return stream.FinishStop
	case "length", "max_tokens", "model_length":
		return stream.FinishLength
	case "tool_calls", "tool_use", "function_call":
		return stream.FinishToolCalls
	case "content_filter":
		return stream.FinishContentFilter
	}
	return stream.FinishUnknown
}

// brokeOff reports whether a finish reason says that the provider failed.
func brokeOff(raw string) bool {
	switch strings.ToLower(raw) {
	case "error", "network_error", "insufficient_system_resource":
		return true
	}
	return false
}
