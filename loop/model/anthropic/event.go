package anthropic

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/model/wire"
)

// The kinds of events. Others are skipped, as the API asks for.
const (
	eventStart      = "message_start"
	eventBlockStart = "content_block_start"
	eventBlockDelta = "content_block_delta"
	eventBlockStop  = "content_block_stop"
	eventDelta      = "message_delta"
	eventStop       = "message_stop"
	eventPing       = "ping"
	eventError      = "error"
)

// wireEvent is the data of any event.
type wireEvent struct {
	Type wire.LenientText `json:"type"`
	// Message is an object in message_start, and may be a text in an error.
	Message      json.RawMessage `json:"message"`
	Index        int             `json:"index"`
	ContentBlock wireOpening     `json:"content_block"`
	Delta        wireDelta       `json:"delta"`
	Usage        *wireUsage      `json:"usage"`
	Error        json.RawMessage `json:"error"`
}

// wireOpening is what a block begins with.
type wireOpening struct {
	Type     wire.LenientText `json:"type"`
	Text     wire.Text        `json:"text"`
	Thinking wire.Text        `json:"thinking"`
	ID       wire.LenientText `json:"id"`
	Name     wire.LenientText `json:"name"`
	// Input is {} with the API, which sends the arguments as deltas; some
	// gateways have them here, whole.
	Input json.RawMessage `json:"input"`
}

// wireDelta is that of a block or of the message.
type wireDelta struct {
	Type        wire.LenientText `json:"type"`
	Text        wire.Text        `json:"text"`
	Thinking    wire.Text        `json:"thinking"`
	PartialJSON wire.Text        `json:"partial_json"`
	StopReason  wire.LenientText `json:"stop_reason"`
}

type wireUsage struct {
	InputTokens  wire.Count `json:"input_tokens"`
	OutputTokens wire.Count `json:"output_tokens"`
	// What went through the provider's cache is not among InputTokens.
	CacheCreation wire.Count `json:"cache_creation_input_tokens"`
	CacheRead     wire.Count `json:"cache_read_input_tokens"`
}

// onto returns what was stated before with what u states: the counts are those
// of the whole answer, and one that is missing was stated before.
func (u wireUsage) onto(before stream.Usage) stream.Usage {
	return stream.Usage{
		InputTokens:  cmp.Or(int64(u.InputTokens+u.CacheCreation+u.CacheRead), before.InputTokens),
		OutputTokens: cmp.Or(int64(u.OutputTokens), before.OutputTokens),
	}
}

// finishReason maps the API's stop reasons to agentd's closed set. pause_turn,
// where the answer would go on if it were sent back, is not known: it comes
// only with the provider's own tools, which agentd does not ask for.
func finishReason(raw string) stream.FinishReason {
	switch strings.ToLower(raw) {
	case "end_turn", "stop_sequence":
		return stream.FinishStop
	case "tool_use":
		return stream.FinishToolCalls
	case "max_tokens", "model_context_window_exceeded":
		return stream.FinishLength
	case "refusal":
		return stream.FinishContentFilter
	}
	return stream.FinishUnknown
}
