package openaitest

import (
	"fmt"
	"strconv"
	"strings"
)

// Script is what a model says in one answer.
type Script struct {
	Reasoning string
	// Text is sent piece by piece.
	Text  []string
	Calls []Call
	// Finish is the finish reason; "" stands for stop, or for tool_calls if
	// there are calls.
	Finish string
}

// Call is a tool call that the model asks for.
type Call struct {
	ID, Name, Arguments string
}

// Text is an answer of these pieces of text.
func Text(pieces ...string) Answer { return Script{Text: pieces}.Answer() }

// Calls is an answer that asks for tool calls.
func Calls(calls ...Call) Answer { return Script{Calls: calls}.Answer() }

// Chunks is an answer whose frames hold these texts, with [DONE] behind them.
func Chunks(data ...string) Answer {
	w := newWriter()
	for _, d := range data {
		w.frame(d)
	}
	w.frame(done)
	return w.answer()
}

// Answer writes the script down as a stream, with usage 11/7 for who asks for
// it. The quirks bend it; a quirk that does not exist panics.
func (s Script) Answer(quirks ...string) Answer {
	w := newWriter(quirks...)
	w.script(s)
	return w.answer()
}

// Usage of every scripted answer.
const usage = `{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18}`

const (
	done = "[DONE]"
	null = "null"
)

// writer writes a stream down.
type writer struct {
	bends map[string]bool
	body  strings.Builder
	usage [2]int
	// stopped drops what follows: the stream is cut off.
	stopped bool
}

func newWriter(quirks ...string) *writer {
	w := &writer{bends: make(map[string]bool)}
	for _, q := range quirks {
		if quirkTable[q] == "" {
			panic("openaitest: there is no quirk " + strconv.Quote(q))
		}
		w.bends[q] = true
	}
	return w
}

func (w *writer) answer() Answer {
	a := Answer{Body: []byte(w.body.String()), usage: w.usage}
	switch {
	case w.bends["html"]:
		return Page(502)
	case w.bends["rate"]:
		return RateLimited("1")
	case w.bends["reset"]:
		a.End = EndReset
	case w.bends["nocharset"]:
		return a.With("Content-Type", "application/octet-stream")
	}
	return a.With("Content-Type", "text/event-stream; charset=utf-8")
}

func (w *writer) script(s Script) {
	if w.bends["comment"] {
		w.raw(": PROCESSING")
	}
	if w.bends["preamble"] {
		w.frame(`{"id":"","object":"","created":0,"model":"","choices":[],"prompt_filter_results":[{"prompt_index":0}]}`)
	}
	if !w.bends["norole"] {
		content := `""`
		if w.bends["nullcontent"] {
			content = null
		}
		w.delta(`{"role":"assistant","content":` + content + `,"refusal":null}`)
	}
	if s.Reasoning != "" {
		w.delta(`{` + quoted(w.either("reasoning", "reasoning", "reasoning_content")) + `:` + quoted(s.Reasoning) + `}`)
	}
	for _, piece := range s.Text {
		w.delta(`{` + quoted(w.either("refusal", "refusal", "content")) + `:` + quoted(piece) + `}`)
		switch {
		case w.bends["comment"]:
			w.raw(": keep-alive")
		case w.bends["emptydata"]:
			w.raw("data:")
		case w.bends["reset"], w.bends["truncate"]:
			w.stopped = true
		}
	}
	if w.bends["midstream"] {
		w.frame(`{"error":{"message":"scripted provider failure","type":"server_error","param":null,"code":"server_error"}}`)
		w.stopped = true
	}
	for i, c := range s.Calls {
		w.call(i, c)
	}
	w.end(s)
}

// end writes the finish reason, the usage and [DONE].
func (w *writer) end(s Script) {
	finish := s.Finish
	for _, word := range []string{"stop", "eos", "end_turn", "function_call", "content_filter"} {
		if w.bends["fr_"+word] {
			finish = word
		}
	}
	if finish == "" {
		if finish = "stop"; len(s.Calls) > 0 {
			finish = "tool_calls"
		}
	}
	if w.bends["fr_empty"] {
		w.chunk(`{}`, `""`, "")
	}
	report := `,"usage":` + usage
	if !w.bends["nofinish"] {
		w.chunk(`{}`, quoted(finish), w.either("usage_on_last", report, ""))
	}
	if !w.bends["usage_on_last"] {
		w.usage[0] = w.body.Len()
		w.frame(`{"id":"cc-1","object":"chat.completion.chunk","created":1700000000,"model":"test-model-1","choices":` +
			w.either("usage_nullchoices", null, "[]") + report + `}`)
		w.usage[1] = w.body.Len()
	}
	if !w.bends["nodone"] {
		w.frame(done)
	}
}

func (w *writer) delta(d string) { w.chunk(d, null, "") }

func (w *writer) chunk(delta, finish, more string) {
	if w.bends["errnull"] {
		more += `,"error":null`
	}
	w.frame(fmt.Sprintf(`{"id":"cc-1","object":"chat.completion.chunk","created":1700000000,"model":"test-model-1",`+
		`"choices":[{"index":0,"delta":%s,"logprobs":null,"finish_reason":%s}]%s}`, delta, finish, more))
}

func (w *writer) frame(data string) { w.raw(w.either("nospace", "data:", "data: ") + data) }

// raw writes a block of one line.
func (w *writer) raw(line string) {
	if !w.stopped {
		end := w.either("crlf", "\r\n", "\n")
		w.body.WriteString(line + end + end)
	}
}

// either returns bent if the quirk is on.
func (w *writer) either(quirk, bent, straight string) string {
	if w.bends[quirk] {
		return bent
	}
	return straight
}
