package stream

import "time"

// Lane is one of the parallel texts of an answer.
type Lane string

// The lanes.
const (
	LaneText      Lane = "text"
	LaneReasoning Lane = "reasoning"
	// LaneToolArguments carries the argument text of one tool call. It is
	// accumulated and not stored piece by piece.
	LaneToolArguments Lane = "tool_arguments"
)

// Kind says what a [Chunk] is.
type Kind uint8

// The kinds.
const (
	// KindDelta appends Text to the block BlockID of Lane.
	KindDelta Kind = iota
	// KindToolCall opens a tool call: BlockID names it for the argument
	// deltas that follow, Call says what it is.
	KindToolCall
	// KindFinish ends the answer. Nothing follows it but the end of the
	// sequence; a sequence that ends without it was cut off.
	KindFinish
	// KindEnd ends the block BlockID of Lane. No adapter yields it: observers
	// are sent it, with no text, when the answer has ended, so that they give
	// back what they hold.
	KindEnd
)

// Chunk is one piece of a model's answer. It is a plain value.
type Chunk struct {
	Kind Kind
	// Lane of a KindToolCall is LaneToolArguments wherever observers are asked;
	// an adapter may leave it out.
	Lane Lane
	// BlockID names a block within the attempt, so that text before and after
	// a tool call are two blocks. Ids are the adapter's choice.
	BlockID string
	// Text of a KindToolCall is the beginning of its arguments.
	Text string
	// Call is set for KindToolCall.
	Call CallStart
	// Finish is set for KindFinish.
	Finish Finish
	// At is how long after the beginning of the call the chunk was there. It is
	// set for observers, by whoever asks them.
	At time.Duration
}

// CallStart says which tool a call asks for.
type CallStart struct {
	// ProviderID is the provider's id for the call, "" if it gave none.
	ProviderID string
	Name       string
}

// Finish is how an answer ended.
type Finish struct {
	Reason FinishReason
	// Raw is the provider's own word, "" if it gave none.
	Raw   string
	Usage Usage
}

// FinishReason is why a model stopped, in agentd's closed set.
type FinishReason string

// The finish reasons.
const (
	FinishStop          FinishReason = "stop"
	FinishLength        FinishReason = "length"
	FinishToolCalls     FinishReason = "tool_calls"
	FinishContentFilter FinishReason = "content_filter"
	// FinishUnknown: the provider ended the answer properly and named no
	// reason, or one that agentd does not know.
	FinishUnknown FinishReason = "unknown"
)

// Usage counts tokens as the provider reported them; 0 means not reported.
type Usage struct {
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
}
