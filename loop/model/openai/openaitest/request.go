package openaitest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"strings"
)

// HeaderLine is a line of a header, spelled as it was sent.
type HeaderLine struct {
	Name, Value string
}

// Request is what a client sent.
type Request struct {
	// N counts a provider's requests from 1.
	N      int
	Method string
	// Path is the request's target, the query included.
	Path string
	// Header has the lines in the order in which they came.
	Header []HeaderLine
	Body   []byte
	// Chat is Body, parsed; it is zero where Body is not a chat.
	Chat Chat

	ended chan struct{}
}

// Get returns the first value of a header, "" if it is not there.
func (r Request) Get(name string) string {
	for _, h := range r.Header {
		if strings.EqualFold(h.Name, name) {
			return h.Value
		}
	}
	return ""
}

// Ended is closed once nothing more is sent in answer: the answer is over, or
// the client has left it.
func (r Request) Ended() <-chan struct{} { return r.ended }

// Chat is the body of a request.
type Chat struct {
	Model         string
	Messages      []Message
	Tools         []Tool
	Stream        bool
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

// Message is a message of a chat.
type Message struct {
	Role string
	// Content is nil if there is none, "null" if it is null.
	Content    json.RawMessage
	ToolCalls  []ToolCall `json:"tool_calls"`
	ToolCallID string     `json:"tool_call_id"`
	// ReasoningContent is what an answer was thought out with, for providers
	// that want it back.
	ReasoningContent string `json:"reasoning_content"`
}

// Text returns the message's text, with its parts joined.
func (m Message) Text() string {
	var text string
	if json.Unmarshal(m.Content, &text) == nil {
		return text
	}
	var parts []contentPart
	_ = json.Unmarshal(m.Content, &parts) // what is no text has none
	for _, p := range parts {
		if p.Text != nil {
			text += *p.Text
		}
	}
	return text
}

type contentPart struct {
	Type string
	Text *string
}

// ToolCall is a call in the history.
type ToolCall struct {
	ID, Type string
	Function struct {
		Name string
		// Arguments is the JSON value as it was sent, which has to be a string.
		Arguments json.RawMessage
	}
}

// Arguments returns the text of the arguments.
func (c ToolCall) Arguments() string {
	var text string
	_ = json.Unmarshal(c.Function.Arguments, &text) // refused if it is none
	return text
}

// Tool is a tool that the model is told of.
type Tool struct {
	Type     string
	Function struct {
		Name, Description string
		Parameters        json.RawMessage
	}
}

// maxHead is the longest header that is read, in bytes.
const maxHead = 1 << 20

// readRequest reads a request and keeps its header as it came.
func readRequest(in *bufio.Reader) (*Request, error) {
	var head bytes.Buffer
	r := &Request{ended: make(chan struct{})}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		head.WriteString(line)
		if head.Len() > maxHead {
			return nil, fmt.Errorf("header of more than %d bytes", maxHead)
		}
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			break
		}
		if name, value, ok := strings.Cut(line, ":"); ok && r.Method != "" {
			r.Header = append(r.Header, HeaderLine{name, textproto.TrimString(value)})
		}
		if r.Method == "" {
			r.Method, r.Path, _ = strings.Cut(line, " ")
			r.Path, _, _ = strings.Cut(r.Path, " ")
		}
	}
	parsed, err := http.ReadRequest(bufio.NewReader(&head))
	if err != nil {
		return nil, err
	}
	if len(parsed.TransferEncoding) == 0 {
		r.Body = make([]byte, max(parsed.ContentLength, 0))
		_, err = io.ReadFull(in, r.Body)
		return r, err
	}
	if r.Body, err = io.ReadAll(httputil.NewChunkedReader(in)); err != nil {
		return nil, err
	}
	_, err = in.ReadString('\n') // behind the last chunk
	return r, err
}
