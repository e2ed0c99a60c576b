package anthropictest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
)

// Asked is what a request asks for.
type Asked struct {
	Model     string    `json:"model"`
	MaxTokens int       `json:"max_tokens"`
	System    string    `json:"system"`
	Messages  []Message `json:"messages"`
	Tools     []Tool    `json:"tools"`
	Stream    bool      `json:"stream"`
}

// Message is one of a request.
type Message struct {
	Role    string  `json:"role"`
	Content []Block `json:"content"`
}

// Block is one of a message: text, a call or a result.
type Block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   string          `json:"content"`
	IsError   bool            `json:"is_error"`
}

// Tool is one that a request offers.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
}

var (
	toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	toolID   = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
)

// check returns why a request is refused, "" if it is not.
func check(r *http.Request, body []byte) (a Asked, refused string) {
	in := json.NewDecoder(bytes.NewReader(body))
	in.DisallowUnknownFields()
	err := in.Decode(&a)
	switch {
	case r.Method != http.MethodPost || r.URL.Path != "/v1/messages":
		return a, r.Method + " " + r.URL.Path + " is not POST /v1/messages"
	case r.Header.Get("Anthropic-Version") != "2023-06-01":
		return a, "anthropic-version: header is required"
	case r.Header.Get("Content-Type") != "application/json":
		return a, "content-type: must be application/json"
	case err != nil:
		return a, err.Error()
	case a.Model == "":
		return a, "model: field required"
	case a.MaxTokens < 1:
		return a, "max_tokens: field required"
	case !a.Stream:
		return a, "stream: must be true"
	}
	if refused := checkTools(a.Tools); refused != "" {
		return a, refused
	}
	return a, checkMessages(a.Messages)
}

func checkTools(tools []Tool) string {
	seen := map[string]bool{}
	for i, t := range tools {
		var schema struct{ Type string }
		switch err := json.Unmarshal(t.InputSchema, &schema); {
		case !toolName.MatchString(t.Name):
			return fmt.Sprintf("tools.%d.name: %q does not match %s", i, t.Name, toolName)
		case seen[t.Name]:
			return "tools: names must be unique"
		case err != nil || schema.Type != "object":
			return fmt.Sprintf("tools.%d.input_schema: must be an object's", i)
		}
		seen[t.Name] = true
	}
	return ""
}

func checkMessages(messages []Message) string {
	if len(messages) == 0 {
		return "messages: at least one message is required"
	}
	used := map[string]bool{}
	waiting := map[string]bool{} // calls of the message before
	for i, m := range messages {
		want := "user"
		if i%2 == 1 {
			want = "assistant"
		}
		switch {
		case m.Role != want:
			return fmt.Sprintf("messages.%d: role %q: roles must alternate, beginning with user", i, m.Role)
		case len(m.Content) == 0:
			return fmt.Sprintf("messages.%d: must have content", i)
		}
		said := false
		calls := map[string]bool{}
		for j, b := range m.Content {
			if problem := checkBlock(m.Role, b); problem != "" {
				return fmt.Sprintf("messages.%d.content.%d: %s", i, j, problem)
			}
			switch b.Type {
			case "tool_use":
				if used[b.ID] {
					return fmt.Sprintf("messages.%d.content.%d: tool_use ids must be unique", i, j)
				}
				used[b.ID], calls[b.ID] = true, true
			case "tool_result":
				if !waiting[b.ToolUseID] {
					return fmt.Sprintf("messages.%d.content.%d: unexpected tool_use_id %q", i, j, b.ToolUseID)
				}
				if said {
					return fmt.Sprintf("messages.%d.content.%d: tool_result blocks must come first", i, j)
				}
				delete(waiting, b.ToolUseID)
			default:
				said = true
			}
		}
		if len(waiting) > 0 {
			return fmt.Sprintf("messages.%d: tool_use without tool_result in the next message", i-1)
		}
		waiting = calls
	}
	if len(waiting) > 0 {
		return "tool_use without tool_result in the next message"
	}
	return ""
}

func checkBlock(role string, b Block) string {
	switch {
	case b.Type == "text":
		if strings.TrimSpace(b.Text) == "" {
			return "text content blocks must contain non-whitespace text"
		}
	case b.Type == "tool_use" && role == "assistant":
		switch {
		case !toolID.MatchString(b.ID):
			return fmt.Sprintf("id: %q does not match %s", b.ID, toolID)
		case !toolName.MatchString(b.Name):
			return fmt.Sprintf("name: %q does not match %s", b.Name, toolName)
		case len(b.Input) == 0 || b.Input[0] != '{':
			return "input: must be an object"
		}
	case b.Type == "tool_result" && role == "user":
		if strings.TrimSpace(b.Content) == "" {
			return "content: must not be blank"
		}
	default:
		return fmt.Sprintf("type: %q is not one of the role's", b.Type)
	}
	return ""
}
