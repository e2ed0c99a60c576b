package openaitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Rules are what only some providers refuse. The zero value is what every
// strict one refuses: see [Provider].
type Rules struct {
	// RefuseNullContent refuses the content null beside tool calls; that it is
	// absent is allowed then, too.
	RefuseNullContent bool
	// WantContent refuses answers without content, also beside tool calls,
	// where an empty text is what it wants.
	WantContent bool
	// WantReasoning refuses calls that come back without the reasoning that
	// led to them.
	WantReasoning bool
	// Alternate refuses what templates and providers in the manner of
	// Anthropic refuse: two user messages or two answers in a row, a system
	// message that is not the first, a history that does not begin with a user
	// or that ends with an answer.
	Alternate bool
	// RefuseUnknownFields refuses fields that the protocol does not have.
	RefuseUnknownFields bool
}

var (
	topFields = []string{
		"model", "messages", "tools", "tool_choice", "parallel_tool_calls", "stream", "stream_options", "temperature", "top_p",
		"max_tokens", "max_completion_tokens", "stop", "n", "seed", "user", "metadata", "store", "response_format", "reasoning_effort",
		"frequency_penalty", "presence_penalty", "logit_bias", "logprobs", "top_logprobs", "service_tier", "verbosity",
		"modalities", "prediction", "audio", "web_search_options", "prompt_cache_key", "safety_identifier",
	}
	messageFields = []string{"role", "content", "name", "refusal", "audio", "tool_calls", "tool_call_id", "reasoning_content"}
	toolName      = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
)

// invalid is the refusal of a request that breaks a rule.
func invalid(param, format string, args ...any) *Refusal {
	return &Refusal{Status: http.StatusBadRequest, Type: "invalid_request_error", Param: param, Message: fmt.Sprintf(format, args...)}
}

// check parses the body of r and says what is wrong with r, nil if nothing is.
func (c Config) check(r *Request) *Refusal {
	path, _, _ := strings.Cut(r.Path, "?")
	switch {
	case path != "/v1/chat/completions":
		return &Refusal{Status: http.StatusNotFound, Type: "invalid_request_error", Code: "unknown_url", Message: "there is nothing at " + r.Method + " " + path}
	case r.Method != http.MethodPost:
		return &Refusal{Status: http.StatusMethodNotAllowed, Type: "invalid_request_error", Code: "method_not_supported", Message: "only POST is allowed here"}
	case c.Key != "" && r.Get("Authorization") != "Bearer "+c.Key:
		return &Refusal{Status: http.StatusUnauthorized, Type: "invalid_request_error", Code: "invalid_api_key", Message: "the API key is wrong"}
	case !strings.HasPrefix(r.Get("Content-Type"), "application/json"):
		return invalid("", "the content type has to be application/json")
	case !utf8.Valid(r.Body):
		return invalid("", "the body is not UTF-8")
	}
	if err := json.Unmarshal(r.Body, &r.Chat); err != nil {
		return invalid("", "the body cannot be parsed: %v", err)
	}
	if refusal := c.Rules.checkFields(r.Body); refusal != nil {
		return refusal
	}
	switch {
	case r.Chat.Model == "":
		return invalid("", "a model has to be named")
	case !r.Chat.Stream:
		return invalid("stream", "this provider only streams")
	case len(r.Chat.Messages) == 0:
		return invalid("messages", "there has to be a message")
	}
	if refusal := checkTools(r.Chat.Tools); refusal != nil {
		return refusal
	}
	if refusal := c.Rules.checkMessages(r.Chat.Messages); refusal != nil {
		return refusal
	}
	return c.Rules.checkOrder(r.Chat.Messages)
}

// checkFields refuses unknown fields, by rule.
func (rules Rules) checkFields(body []byte) *Refusal {
	if !rules.RefuseUnknownFields {
		return nil
	}
	var top map[string]json.RawMessage
	var messages []map[string]json.RawMessage
	_ = json.Unmarshal(body, &top) // both were parsed before
	_ = json.Unmarshal(top["messages"], &messages)
	for name := range top {
		if !slices.Contains(topFields, name) {
			return invalid(name, "the argument %s is not known", name)
		}
	}
	for i, m := range messages {
		for name := range m {
			if !slices.Contains(messageFields, name) {
				return invalid(at(i, name), "the argument %s is not known", name)
			}
		}
	}
	return nil
}

func at(i int, field string) string { return fmt.Sprintf("messages.[%d].%s", i, field) }

// checkMessages looks at each message and at the pairs of calls and results.
func (rules Rules) checkMessages(messages []Message) *Refusal {
	ids := map[string]bool{} // of the whole history
	open := &group{}
	for i, m := range messages {
		if m.Role == "tool" {
			if refusal := open.result(i, m); refusal != nil {
				return refusal
			}
			continue
		}
		if refusal := open.unanswered(i); refusal != nil {
			return refusal
		}
		if refusal := rules.checkMessage(i, m); refusal != nil {
			return refusal
		}
		open = &group{answer: i}
		for n, call := range m.ToolCalls {
			if refusal := checkCall(fmt.Sprintf("%s.[%d]", at(i, "tool_calls"), n), call); refusal != nil {
				return refusal
			}
			if ids[call.ID] {
				return invalid(at(i, "tool_calls"), "the id %q is used by two calls", call.ID)
			}
			ids[call.ID] = true
			open.calls = append(open.calls, call.ID)
		}
	}
	return open.unanswered(len(messages))
}

// group is the calls of one answer and which of them have a result.
type group struct {
	answer  int
	calls   []string
	results []string
}

// result takes a tool message.
func (g *group) result(i int, m Message) *Refusal {
	switch id := m.ToolCallID; {
	case id == "":
		return invalid(at(i, "tool_call_id"), "a tool message needs the id of its call")
	case slices.Contains(g.results, id):
		return invalid(at(i, "tool_call_id"), "the call %q has a second result", id)
	case !slices.Contains(g.calls, id):
		return invalid(at(i, "role"), "a tool message has to follow the answer that asked for it: there is no call %q", id)
	case len(m.ToolCalls) > 0:
		return invalid(at(i, "tool_calls"), "only an answer can ask for calls")
	}
	g.results = append(g.results, m.ToolCallID)
	return checkContent(i, m)
}

// unanswered says that calls have no result before message i.
func (g *group) unanswered(i int) *Refusal {
	var missing []string
	for _, id := range g.calls {
		if !slices.Contains(g.results, id) {
			missing = append(missing, id)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return invalid(at(g.answer, "tool_calls"), "an answer with calls has to be followed by one result for each: before message %d there is none for %q", i, missing)
}

// checkMessage looks at a message that is no tool's.
func (rules Rules) checkMessage(i int, m Message) *Refusal {
	switch m.Role {
	case "assistant":
		absent := len(m.Content) == 0 || string(m.Content) == null
		calls := len(m.ToolCalls) > 0
		switch {
		case m.ToolCalls != nil && len(m.ToolCalls) == 0:
			return invalid(at(i, "tool_calls"), "a list of calls must not be empty")
		case rules.RefuseNullContent && string(m.Content) == null:
			return invalid(at(i, "content"), "the content must not be null")
		case rules.WantReasoning && calls && m.ReasoningContent == "":
			return invalid(at(i, "reasoning_content"), "calls need the reasoning that led to them")
		case rules.WantContent && calls && string(m.Content) == `""`, absent && calls && !rules.WantContent:
			return nil
		}
	case "user", "system", "developer":
		if m.ToolCalls != nil {
			return invalid(at(i, "tool_calls"), "only an answer can ask for calls")
		}
	default:
		return invalid(at(i, "role"), "there is no role %q", m.Role)
	}
	if m.ToolCallID != "" {
		return invalid(at(i, "tool_call_id"), "only a tool message answers a call")
	}
	return checkContent(i, m)
}

var partTypes = map[string][]string{
	"user":      {"text", "image_url", "input_audio", "file"},
	"assistant": {"text", "refusal"},
	"tool":      {"text"},
	"system":    {"text"},
	"developer": {"text"},
}

// checkContent wants text, or parts, that say something.
func checkContent(i int, m Message) *Refusal {
	param := at(i, "content")
	var text string
	if len(m.Content) == 0 || string(m.Content) == null {
		return invalid(param, "a %s message needs content", m.Role)
	}
	if json.Unmarshal(m.Content, &text) == nil {
		if strings.TrimSpace(text) == "" {
			return invalid(param, "text must not be blank")
		}
		return nil
	}
	var parts []contentPart
	if json.Unmarshal(m.Content, &parts) != nil || len(parts) == 0 {
		return invalid(param, "content has to be a text or a list of parts")
	}
	for n, p := range parts {
		param := fmt.Sprintf("%s.[%d]", param, n)
		switch {
		case !slices.Contains(partTypes[m.Role], p.Type):
			return invalid(param+".type", "a %s message has no parts of type %q", m.Role, p.Type)
		case p.Type == "text" && (p.Text == nil || strings.TrimSpace(*p.Text) == ""):
			return invalid(param+".text", "text must not be blank")
		}
	}
	return nil
}

// checkCall looks at a call in the history.
func checkCall(param string, c ToolCall) *Refusal {
	var text string
	var object map[string]json.RawMessage
	arguments := json.Unmarshal(c.Function.Arguments, &text)
	switch {
	case c.ID == "":
		return invalid(param+".id", "a call needs an id")
	case c.Type != "function":
		return invalid(param+".type", "there is no call of type %q", c.Type)
	case !toolName.MatchString(c.Function.Name):
		return invalid(param+".function.name", "%q does not match %s", c.Function.Name, toolName)
	case arguments != nil || bytes.Equal(c.Function.Arguments, []byte(null)):
		return invalid(param+".function.arguments", "arguments have to be a string")
	case json.Unmarshal([]byte(text), &object) != nil || object == nil:
		return invalid(param+".function.arguments", "arguments have to be the text of a JSON object, not %q", text)
	}
	return nil
}

// checkOrder holds what Alternate says.
func (rules Rules) checkOrder(messages []Message) *Refusal {
	if !rules.Alternate {
		return nil
	}
	for len(messages) > 0 && (messages[0].Role == "system" || messages[0].Role == "developer") {
		messages = messages[1:]
	}
	last := "" // of the history so far
	for i, m := range messages {
		switch {
		case last == "" && m.Role != "user":
			return invalid("messages", "the first message has to be a user's, not of role %q", m.Role)
		case m.Role == "system" || m.Role == "developer":
			return invalid("messages", "message %d behind the system prompt: a %s message has to come first", i, m.Role)
		case m.Role == last && m.Role != "tool":
			return invalid("messages", "message %d behind the system prompt: roles have to alternate, and two of role %q come in a row", i, m.Role)
		}
		last = m.Role
	}
	if last != "user" && last != "tool" {
		return invalid("messages", "the last message has to be a user's or a tool's, not of role %q", last)
	}
	return nil
}
