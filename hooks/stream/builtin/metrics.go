package builtin

import (
	"encoding/json"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/setting"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
)

// MetricsConfig says where the numbers go.
type MetricsConfig struct {
	// Channel is where they are emitted; "" is metrics.
	Channel string `json:"channel,omitempty" yaml:"channel"`
}

// Metrics counts what an answer is made of and how long it took, and emits the
// numbers with its end, as one envelope of [MetricsEnvelope]. An answer that
// breaks off, or that an observer stops, has none.
//
// It counts what comes to it: behind an observer that redacts, what is left.
func Metrics(c MetricsConfig) (stream.Registration, error) {
	const kind = "metrics"
	if c.Channel == "" {
		c.Channel = kind
	}
	if !hooks.ValidName(c.Channel) {
		return stream.Registration{}, setting.Errorf(kind, "channel", hooks.NameRule)
	}
	return stream.Registration{
		ID: kind, Version: "1", Config: asJSON(c),
		New: func(call stream.Call) stream.Observer {
			return &metrics{channel: c.Channel, numbers: MetricsEnvelope{Class: call.Class, Model: call.Model}}
		},
	}, nil
}

// MetricsEnvelope is what [Metrics] emits.
type MetricsEnvelope struct {
	// Class and Model are those of the call; which attempt it was stands beside
	// the envelope.
	Class stream.Class `json:"class"`
	Model string       `json:"model"`
	// Chunks counts those with a text and the tool calls.
	Chunks int `json:"chunks"`
	// The lengths of the lanes.
	TextBytes          int `json:"text_bytes"`
	ReasoningBytes     int `json:"reasoning_bytes"`
	ToolArgumentsBytes int `json:"tool_arguments_bytes"`
	ToolCalls          int `json:"tool_calls"`
	// FirstTokenMS is from the beginning of the call to the first text, reasoning
	// or tool call, in whole milliseconds; without one it is left out. TotalMS is
	// to the end.
	FirstTokenMS *int64 `json:"first_token_ms,omitempty"`
	TotalMS      int64  `json:"total_ms"`
	// Finish is why the answer ended, Usage what the provider counted.
	Finish stream.FinishReason `json:"finish"`
	Usage  stream.Usage        `json:"usage"`
}

// metrics is the observer of one attempt.
type metrics struct {
	channel string
	numbers MetricsEnvelope
}

// OnChunk implements [stream.Observer].
func (m *metrics) OnChunk(c stream.Chunk) stream.Verdict {
	n := &m.numbers
	switch c.Kind {
	case stream.KindToolCall:
		n.ToolCalls++
		n.ToolArgumentsBytes += len(c.Text)
	case stream.KindDelta:
		switch c.Lane {
		case stream.LaneText:
			n.TextBytes += len(c.Text)
		case stream.LaneReasoning:
			n.ReasoningBytes += len(c.Text)
		case stream.LaneToolArguments:
			n.ToolArgumentsBytes += len(c.Text)
		}
		if c.Text == "" {
			return stream.Continue()
		}
	case stream.KindFinish:
		n.TotalMS, n.Finish, n.Usage = milliseconds(c.At), c.Finish.Reason, c.Finish.Usage
		envelope, _ := json.Marshal(n) // numbers and names always encode
		return stream.Emit(m.channel, envelope)
	case stream.KindEnd:
		return stream.Continue()
	}
	n.Chunks++
	if n.FirstTokenMS == nil {
		at := milliseconds(c.At)
		n.FirstTokenMS = &at
	}
	return stream.Continue()
}

// OnEnd implements [stream.Observer].
func (m *metrics) OnEnd(stream.Summary) {}

func milliseconds(d time.Duration) int64 { return int64(d / time.Millisecond) }
