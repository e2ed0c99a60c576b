package openai

import (
	"encoding/json"
	"strings"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/model/wire"
)

// slot is one tool call of an answer.
type slot struct {
	blockID string
	id      string
	name    string
	// arguments is what has arrived; shown is how much of it was yielded,
	// which is nothing before the name is known. seam holds what is cut off at
	// its end.
	arguments strings.Builder
	shown     int
	seam      wire.Seam
	end       closing
	// checked says that the arguments have been parsed, valid how that went.
	checked bool
	valid   bool
}

// show takes in more arguments and adds what can be yielded of them.
func (s *slot) show(out []stream.Chunk, arguments string) []stream.Chunk {
	s.arguments.WriteString(arguments)
	s.end.read(arguments)
	if s.name == "" {
		return out
	}
	text := s.arguments.String()[s.shown:]
	s.shown += len(text)
	return delta(out, stream.LaneToolArguments, s.blockID, text)
}

// whole reports whether the arguments are over and JSON. It parses them once,
// however often it is asked while they grow: an answer of many small pieces
// must not cost their square.
func (s *slot) whole() bool {
	if !s.end.closed() {
		return false
	}
	if !s.checked {
		s.checked, s.valid = true, json.Valid([]byte(s.arguments.String()))
	}
	return s.valid
}

// begins reports whether a piece begins another call than s: it names another
// tool, or the same one once the arguments of s are whole.
func (s *slot) begins(tc wireToolCall) bool {
	name := string(tc.Function.Name)
	if name == "" || s.name == "" || s.arguments.Len() == 0 {
		return false
	}
	if name != s.name {
		return true
	}
	return strings.TrimSpace(string(tc.Function.Arguments)) != "" && s.whole()
}

// closing follows the brackets of a JSON text while it arrives. The zero value
// has seen nothing.
type closing struct {
	depth    int
	quoted   bool
	escaped  bool
	begun    bool
	finished bool // what was begun has been closed
	beyond   bool // more than white space has followed
}

// closed reports whether one bracketed value has been read and nothing else.
func (c *closing) closed() bool { return c.finished && !c.beyond }

func (c *closing) read(text string) {
	for i := range len(text) {
		b := text[i]
		if c.finished {
			c.beyond = c.beyond || !strings.ContainsRune(" \t\r\n", rune(b))
			continue
		}
		switch {
		case c.escaped:
			c.escaped = false
		case c.quoted:
			c.escaped, c.quoted = b == '\\', b != '"'
		case b == '"':
			c.quoted = true
		case b == '{', b == '[':
			c.begun = true
			c.depth++
		case b == '}', b == ']':
			c.depth--
			c.finished = c.begun && c.depth <= 0
		}
	}
}
