package openai

import (
	"bytes"
	"encoding/json"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
)

type wireRequest struct {
	Model               string             `json:"model"`
	Messages            []wireMessage      `json:"messages"`
	Tools               []wireTool         `json:"tools,omitempty"`
	ParallelToolCalls   *bool              `json:"parallel_tool_calls,omitempty"`
	MaxTokens           int                `json:"max_tokens,omitempty"`
	MaxCompletionTokens int                `json:"max_completion_tokens,omitempty"`
	Stream              bool               `json:"stream"`
	StreamOptions       *wireStreamOptions `json:"stream_options,omitempty"`
}

type wireStreamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type wireMessage struct {
	Role hooks.Role `json:"role"`
	// Content is a text; nil is left out, which is not the same as null.
	Content          any               `json:"content,omitempty"`
	ReasoningContent *string           `json:"reasoning_content,omitempty"`
	ToolCalls        []wireRequestCall `json:"tool_calls,omitempty"`
	ToolCallID       string            `json:"tool_call_id,omitempty"`
}

type wireRequestCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function wireFunction `json:"function"`
}

type wireFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type wireTool struct {
	Type     string       `json:"type"`
	Function wireToolSpec `json:"function"`
}

type wireToolSpec struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
}

// Request writes a call down. The same call gives the same bytes, so that a
// provider's cache of prompts stays good. The error is a [loop.ModelError] that
// is not retryable: a tool's schema that is no JSON, or two tools that the
// provider could not tell apart.
func (m *Model) Request(req loop.ModelRequest) (loop.ProviderRequest, error) {
	if _, err := m.names.ToolNames(req); err != nil {
		return loop.ProviderRequest{}, &loop.ModelError{Code: "invalid_request", Message: err.Error()}
	}
	out := wireRequest{Model: req.Model, Messages: m.wireMessages(req), Stream: true}
	for _, t := range req.Tools {
		out.Tools = append(out.Tools, wireTool{Type: "function", Function: wireToolSpec{
			Name: m.names.Wire(t.Name), Description: t.Description, Parameters: t.Schema,
		}})
	}
	m.configure(&out)
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(out); err != nil {
		return loop.ProviderRequest{}, &loop.ModelError{
			Code: "invalid_request", Message: "the request cannot be written as JSON", Err: m.endpoint.Redact.Cause(err),
		}
	}
	return loop.ProviderRequest{
		Headers: []hooks.Header{
			{Name: "Accept", Value: "text/event-stream"}, {Name: "Content-Type", Value: "application/json"}, {Name: "User-Agent", Value: "agentd"},
		},
		Body: string(bytes.TrimRight(body.Bytes(), "\n")),
	}, nil
}

// configure adds what the config and the provider's quirks say.
func (m *Model) configure(out *wireRequest) {
	if !m.quirks.NoUsage {
		out.StreamOptions = &wireStreamOptions{IncludeUsage: true}
	}
	switch m.quirks.MaxTokensField {
	case FieldMaxTokens:
		out.MaxTokens = m.maxTokens
	case FieldMaxCompletionTokens, "":
		out.MaxCompletionTokens = m.maxTokens
	case FieldNone:
	}
	if len(out.Tools) == 0 {
		return // providers refuse what follows without tools
	}
	switch yes, no := true, false; m.quirks.ParallelToolCalls {
	case ParallelTrue:
		out.ParallelToolCalls = &yes
	case ParallelFalse:
		out.ParallelToolCalls = &no
	case ParallelAbsent:
	}
}
