package anthropic

import (
	"bytes"
	"encoding/json"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
)

// version is the version of the API that this package speaks.
const version = "2023-06-01"

// noSchema is the schema of a tool that has none: the API wants one.
var noSchema = json.RawMessage(`{"type":"object"}`)

type wireRequest struct {
	Model     string        `json:"model"`
	MaxTokens int           `json:"max_tokens"`
	System    string        `json:"system,omitempty"`
	Messages  []wireMessage `json:"messages"`
	Tools     []wireTool    `json:"tools,omitempty"`
	Stream    bool          `json:"stream"`
}

type wireTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema"`
}

// Request writes a call down. The same call gives the same bytes, so that the
// provider's cache of prompts stays good. The error is a [loop.ModelError] that
// is not retryable: a tool's schema that is no JSON, or two tools that the
// provider could not tell apart.
func (m *Model) Request(req loop.ModelRequest) (loop.ProviderRequest, error) {
	if _, err := m.names.ToolNames(req); err != nil {
		return loop.ProviderRequest{}, &loop.ModelError{Code: "invalid_request", Message: err.Error()}
	}
	out := wireRequest{Model: req.Model, MaxTokens: m.maxTokens, Stream: true}
	out.System, out.Messages = m.history(req)
	for _, t := range req.Tools {
		schema := t.Schema
		if len(schema) == 0 {
			schema = noSchema
		}
		out.Tools = append(out.Tools, wireTool{Name: m.names.Wire(t.Name), Description: t.Description, InputSchema: schema})
	}
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
			{Name: "Accept", Value: "text/event-stream"}, {Name: "Anthropic-Version", Value: version},
			{Name: "Content-Type", Value: "application/json"}, {Name: "User-Agent", Value: "agentd"},
		},
		Body: string(bytes.TrimRight(body.Bytes(), "\n")),
	}, nil
}
