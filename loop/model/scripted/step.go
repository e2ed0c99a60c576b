package scripted

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
)

// step is one thing that an answer does. Exactly one of the first group is
// set; the second group modifies it.
type step struct {
	Text      *string     `json:"text"`
	Reasoning *string     `json:"reasoning"`
	Tool      *toolStep   `json:"tool"`
	Delay     duration    `json:"delay"`
	Wait      string      `json:"wait"`
	WaitFile  string      `json:"wait_file"`
	Stall     bool        `json:"stall"`
	Cut       bool        `json:"cut"`
	Fail      *failStep   `json:"fail"`
	Finish    *finishStep `json:"finish"`

	// Split cuts what is streamed into chunks, Every is the pause between
	// them.
	Split split    `json:"split"`
	Every duration `json:"every"`
	// Attempt, when it is not 0, limits the step to that model call attempt.
	Attempt int `json:"attempt"`
}

type toolStep struct {
	Name string `json:"name"`
	// Arguments is a JSON string, whose text is what the model writes
	// (broken JSON, if one likes), or any other JSON, written byte for byte.
	Arguments json.RawMessage `json:"arguments"`
	ID        string          `json:"id"`
}

type failStep struct {
	Status    int    `json:"status"`
	Code      string `json:"code"`
	Message   string `json:"message"`
	Retryable bool   `json:"retryable"`
}

type finishStep struct {
	Reason       stream.FinishReason `json:"reason"`
	Raw          string              `json:"raw"`
	InputTokens  int64               `json:"input_tokens"`
	OutputTokens int64               `json:"output_tokens"`
}

// ends reports whether nothing can follow the step.
func (s step) ends() bool {
	return s.Stall || s.Cut || s.Fail != nil || s.Finish != nil
}

// streams reports whether the step yields text that split can cut.
func (s step) streams() bool {
	return s.Text != nil || s.Reasoning != nil || s.Tool != nil
}

func (s step) check(groups map[string]bool) error {
	set := 0
	for _, is := range []bool{
		s.Text != nil, s.Reasoning != nil, s.Tool != nil, s.Delay > 0, s.Wait != "",
		s.WaitFile != "", s.Stall, s.Cut, s.Fail != nil, s.Finish != nil,
	} {
		if is {
			set++
		}
	}
	if set != 1 {
		return errors.New("a step does exactly one of text, reasoning, tool, delay, wait, wait_file, stall, cut, fail and finish")
	}
	if !s.streams() && (s.Split != split{} || s.Every != 0) {
		return errors.New("split and every belong to text, reasoning and tool")
	}
	if s.Every != 0 && s.Split == (split{}) {
		return errors.New("every is the pause between the pieces of a split: set split too")
	}
	if s.Attempt < 0 {
		return errors.New("attempt counts from 1")
	}
	switch {
	case s.Text != nil:
		return checkTemplate(*s.Text, groups)
	case s.Reasoning != nil:
		return checkTemplate(*s.Reasoning, groups)
	case s.Tool != nil:
		if s.Tool.Name == "" {
			return errors.New("tool: name: every call needs one")
		}
		return checkTemplate(string(s.Tool.Arguments), groups)
	case s.Fail != nil && s.Fail.Message == "":
		return errors.New("fail: message: an error needs one")
	case s.Finish != nil:
		return s.Finish.check()
	}
	return nil
}

func (f finishStep) check() error {
	switch f.Reason {
	case "", stream.FinishStop, stream.FinishLength, stream.FinishToolCalls,
		stream.FinishContentFilter, stream.FinishUnknown:
		return nil
	}
	return fmt.Errorf("finish: reason: %q is none of stop, length, tool_calls, content_filter and unknown", f.Reason)
}

// text returns what the model writes as arguments.
func (t toolStep) text(v values) string {
	var s string
	if len(t.Arguments) > 0 && t.Arguments[0] == '"' && json.Unmarshal(t.Arguments, &s) == nil {
		return v.expand(s)
	}
	return v.expandJSON(string(t.Arguments))
}

// duration is a Go duration in a JSON string, such as "20ms".
type duration time.Duration

// UnmarshalJSON reads a non-negative duration.
func (d *duration) UnmarshalJSON(data []byte) error {
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("%s is not a duration such as \"20ms\"", data)
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return err
	}
	if v < 0 {
		return fmt.Errorf("%q is a negative duration", s)
	}
	*d = duration(v)
	return nil
}

// split says how text is cut into chunks: by words, or every so many
// characters. The zero value is one chunk.
type split struct {
	words bool
	runes int
}

// UnmarshalJSON reads "words" or a number of characters.
func (s *split) UnmarshalJSON(data []byte) error {
	if string(data) == `"words"` {
		s.words = true
		return nil
	}
	if err := json.Unmarshal(data, &s.runes); err != nil || s.runes < 1 {
		return fmt.Errorf("split: %s is neither \"words\" nor a number of characters", data)
	}
	return nil
}

// pieces cuts text; the pieces joined are the text. Empty text has no pieces.
func (s split) pieces(text string) []string {
	switch {
	case text == "":
		return nil
	case s.words:
		return words(text)
	case s.runes > 0:
		return every(text, s.runes)
	}
	return []string{text}
}

// words cuts before each word, so a space travels with the word before it.
func words(text string) []string {
	var out []string
	start, inSpace := 0, false
	for i, r := range text {
		space := strings.ContainsRune(" \t\r\n", r)
		if inSpace && !space && strings.TrimSpace(text[start:i]) != "" {
			out = append(out, text[start:i])
			start = i
		}
		inSpace = space
	}
	return append(out, text[start:])
}

func every(text string, n int) []string {
	var out []string
	for text != "" {
		end := 0
		for range n {
			if end == len(text) {
				break
			}
			_, size := utf8.DecodeRuneInString(text[end:])
			end += size
		}
		out = append(out, text[:end])
		text = text[end:]
	}
	return out
}
