package builtin

import (
	"slices"
	"strconv"
	"strings"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/setting"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
)

// NormalizeToolDialectConfig says which calls are taken for calls.
type NormalizeToolDialectConfig struct {
	// Tools are globs as [hooks.MatchName] knows them; what is written as a call of
	// another tool stays text. Empty is every tool.
	Tools []string `json:"tools,omitempty" yaml:"tools"`
}

const (
	// maxCallBytes is how long a call may be as it is written: what is longer stays
	// text. It is also how much is held of an answer.
	maxCallBytes = 64 << 10
	// maxCalls is how many calls are taken out of an answer: what follows stays text.
	maxCalls = 64
)

// NormalizeToolDialect makes tool calls of those that a model has written into its
// text,
//
//	<tool name="look_up">{"id": 7}</tool>
//	{0:"look_up",1:{"id": 7}}
//
// with white space between the parts as one likes, the name in either kind of
// quotes, and arguments that are one JSON object. The text before and behind a
// call stays text, the one behind it in a block of its own, so that the parts of
// the message stand in the order in which the model wrote them. An answer with
// such calls that ended without a reason, or because it was done, ends for the
// reason that tools are called.
//
// What does not become a call is text as it was, not one byte of it changed or
// lost: something longer than 64 KiB, arguments that are no JSON, another tag, the
// end of the answer in the middle of a call, calls behind the 64th; and what is
// quoted as Markdown, between fences of backticks or tildes or right behind a
// backtick. All that is held is what may still become a call.
//
// One chunk becomes one chunk, so what follows a call goes on with the chunks that
// come next, and with the end of the block. If these are no text, such as a call
// that the provider makes itself, it comes behind them.
func NormalizeToolDialect(c NormalizeToolDialectConfig) (stream.Registration, error) {
	const kind = "normalize_tool_dialect"
	if err := setting.CheckGlobs(kind, "tools", c.Tools); err != nil {
		return stream.Registration{}, err
	}
	tools := slices.Clone(c.Tools)
	return stream.Registration{
		ID: "normalize-tool-dialect", Version: "1", Config: asJSON(c),
		New: func(stream.Call) stream.Observer {
			return &dialect{tools: tools}
		},
		// It holds no more than maxCallBytes. How long the rest of a call takes to
		// come is the model's affair.
		HoldBytes: -1, HoldTime: -1,
	}, nil
}

// dialect is the observer of one attempt.
type dialect struct {
	tools    []string
	scanners opened[*scanner] // of the blocks of text that are open
	// queue is what was made of the text and has not gone on yet, in its order.
	queue []piece
	// held is how many bytes the scanners hold, calls how many were found, blocks
	// how many were made.
	held, calls, blocks int
}

// piece is a text or a call.
type piece struct {
	// source is the block that it was in.
	source string
	// block is that which it goes to, own whether it is made here.
	block string
	own   bool
	text  []byte
	// call is the name of the tool, "" for a text.
	call string
}

// OnChunk implements [stream.Observer].
func (d *dialect) OnChunk(c stream.Chunk) stream.Verdict {
	switch {
	case c.Kind == stream.KindFinish && d.calls > 0 && (c.Finish.Reason == stream.FinishStop || c.Finish.Reason == stream.FinishUnknown):
		c.Finish.Reason = stream.FinishToolCalls
		return stream.Amend(c)
	case c.Lane != stream.LaneText:
		return stream.Continue()
	case c.Kind == stream.KindDelta:
		return d.delta(c)
	case c.Kind == stream.KindEnd:
		return d.end(c)
	}
	return stream.Continue()
}

// OnEnd implements [stream.Observer].
func (d *dialect) OnEnd(stream.Summary) {}

func (d *dialect) delta(c stream.Chunk) stream.Verdict {
	name := blockName{c.Lane, c.BlockID}
	s, ok := d.scanners.get(name)
	if !ok {
		s = &scanner{in: d, source: c.BlockID, block: c.BlockID}
		d.scanners.put(name, s)
	}
	if len(d.queue) == 0 && s.block == c.BlockID && s.try.form == nil && strings.IndexByte(c.Text, '<') < 0 && strings.IndexByte(c.Text, '{') < 0 {
		s.plain(c.Text)
		s.begun = true
		return stream.Continue()
	}
	s.write(c.Text)
	// What is for another block of the provider's waits for a chunk of that.
	i := slices.IndexFunc(d.queue, func(p piece) bool { return p.block == c.BlockID || p.own })
	switch {
	case i >= 0:
		return d.give(i, c)
	case c.Text == "":
		return stream.Continue()
	}
	return stream.Hold()
}

// end gives back what is left of a block, one after the other.
func (d *dialect) end(c stream.Chunk) stream.Verdict {
	name := blockName{c.Lane, c.BlockID}
	if s, ok := d.scanners.get(name); ok {
		s.giveUp()
		d.scanners.drop(name)
	}
	i := slices.IndexFunc(d.queue, func(p piece) bool { return p.source == c.BlockID })
	if i < 0 {
		return stream.Continue()
	}
	return d.give(i, c)
}

// give lets a piece go in the place of c.
func (d *dialect) give(i int, c stream.Chunk) stream.Verdict {
	p := d.queue[i]
	d.queue = slices.Delete(d.queue, i, i+1)
	switch {
	case p.call != "":
		return stream.Amend(stream.Chunk{Kind: stream.KindToolCall, BlockID: p.block, Text: string(p.text), Call: stream.CallStart{Name: p.call}, At: c.At})
	case c.Kind == stream.KindDelta && p.block == c.BlockID && string(p.text) == c.Text:
		return stream.Continue()
	}
	return stream.Amend(stream.Chunk{Kind: stream.KindDelta, Lane: stream.LaneText, BlockID: p.block, Text: string(p.text), At: c.At})
}

// text takes in text that is no call.
func (d *dialect) text(s *scanner, text string) {
	if text == "" {
		return
	}
	if s.block == "" || !s.begun && len(d.queue) > 0 {
		// A block of the provider's would have to wait for its next chunk, and fall
		// behind what comes meanwhile.
		s.block = d.newBlock()
	}
	s.begun = true
	if n := len(d.queue); n == 0 || d.queue[n-1].call != "" || d.queue[n-1].block != s.block {
		d.queue = append(d.queue, piece{source: s.source, block: s.block, own: s.block != s.source})
	}
	last := &d.queue[len(d.queue)-1]
	last.text = append(last.text, text...)
}

// call takes in a call. What follows it in the text goes to another block.
func (d *dialect) call(s *scanner, name, arguments string) {
	d.calls++
	d.queue = append(d.queue, piece{source: s.source, block: d.newBlock(), own: true, text: []byte(arguments), call: name})
	s.block = ""
}

// ownBlock is how the ids of blocks begin that are made here. The chain puts its
// own before them, so that they are those of no provider.
const ownBlock = "~"

func (d *dialect) newBlock() string {
	d.blocks++
	return ownBlock + strconv.Itoa(d.blocks)
}

func (d *dialect) mayCall() bool { return d.calls < maxCalls }

// named reports whether a call of that tool is taken for one.
func (d *dialect) named(tool string) bool {
	return len(d.tools) == 0 || slices.ContainsFunc(d.tools, func(glob string) bool {
		hit, _ := hooks.MatchName(glob, tool)
		return hit
	})
}
