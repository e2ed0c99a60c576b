package builtin

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/pattern"
	"github.com/seed-2ca4966b/agentd/hooks/setting"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
)

// RedactConfig says what is taken out of answers. What to look for is named as in
// the guard of that name.
type RedactConfig struct {
	// Patterns names sets of patterns and single ones of package pattern, such as
	// secrets or email.
	Patterns []string `json:"patterns,omitempty" yaml:"patterns"`
	// Matching are regular expressions as package regexp knows them (RE2). None may
	// match the empty text.
	Matching []string `json:"matching,omitempty" yaml:"matching"`
	// With stands in the place of what was found; "" is [redacted].
	With string `json:"with,omitempty" yaml:"with"`
	// Lanes are those that are redacted; empty is all of them.
	Lanes []stream.Lane `json:"lanes,omitempty" yaml:"lanes"`
	// HoldBytes is how much of a block is held back at most, since it may become a
	// match; 0, and no more than, [pattern.MaxHold]. An answer that would need more
	// is stopped.
	HoldBytes int `json:"hold_bytes,omitempty" yaml:"hold_bytes,positive"`
}

// The time limits of redacting. The work grows with the bytes and with nothing
// else, but a provider may send a megabyte of arguments as one chunk.
const (
	redactChunkTime   = 100 * time.Millisecond
	redactAttemptTime = 10 * time.Second
)

// Redact takes secrets out of answers: of the text, of reasoning, of the names and
// ids of tool calls and of their arguments, which are redacted as JSON, and out of
// what a provider says of errors and of the end of an answer, whichever lanes are
// configured: nobody knows of which they are. Where the provider splits an answer makes no difference to what is left, and of what is
// found not even the beginning goes on, but for what might have been something
// else as well: it is held back until that is known.
//
// An answer of which more would have to be held back is stopped, and so is one
// with long arguments that turn out to be no JSON.
func Redact(c RedactConfig) (stream.Registration, error) {
	const kind = "redact"
	r, err := setting.Redaction{Patterns: c.Patterns, Matching: c.Matching, With: c.With}.Redactor(kind)
	if err != nil {
		return stream.Registration{}, err
	}
	if c.HoldBytes < 0 || c.HoldBytes > pattern.MaxHold {
		return stream.Registration{}, setting.Errorf(kind, "hold_bytes", "must be 1 to %d", pattern.MaxHold)
	}
	lanes, err := lanesOf(kind, c.Lanes, allLanes...)
	if err != nil {
		return stream.Registration{}, err
	}
	return stream.Registration{
		ID: "redact", Version: "1", Config: asJSON(c),
		New: func(stream.Call) stream.Observer {
			return &redact{r: r, lanes: lanes, hold: c.HoldBytes}
		},
		Redacting: true, OnFailure: stream.FailStop,
		ChunkTime: redactChunkTime, AttemptTime: redactAttemptTime,
		// It counts the bytes itself, and a slow provider is no failure of it.
		HoldBytes: -1, HoldTime: -1,
	}, nil
}

var _ stream.Cleaner = (*redact)(nil)

// redact is the observer of one attempt.
type redact struct {
	r     *pattern.Redactor
	lanes []stream.Lane
	hold  int
	open  opened[redacting]
	// out is what came of a chunk.
	out []byte
}

// redacting is a block: a [pattern.TextStream] or a [pattern.JSONStream].
type redacting interface {
	Push(dst []byte, piece string) ([]byte, error)
	End(dst []byte) ([]byte, error)
	Owes() bool
}

// OnChunk implements [stream.Observer].
func (o *redact) OnChunk(c stream.Chunk) stream.Verdict {
	if c.Kind != stream.KindFinish && !slices.Contains(o.lanes, laneOf(&c)) {
		return stream.Continue()
	}
	var err error
	call := c.Call
	switch c.Kind {
	case stream.KindToolCall:
		if call, err = o.call(c.Call); err != nil {
			return unredacted(err)
		}
	case stream.KindDelta:
	case stream.KindEnd:
		return o.end(c)
	default:
		return stream.Continue()
	}
	block := o.block(&c)
	if o.out, err = block.Push(o.out[:0], c.Text); err != nil {
		return unredacted(err)
	}
	sameCall := call == c.Call
	switch {
	case string(o.out) == c.Text && sameCall:
		return stream.Continue()
	case len(o.out) == 0 && sameCall && block.Owes():
		return stream.Hold()
	case string(o.out) != c.Text:
		c.Text = string(o.out)
	}
	c.Call = call
	return stream.Amend(c)
}

// Clean implements [stream.Cleaner]. Of a text that was cut off, the end goes that
// may be the beginning of what is looked for.
func (o *redact) Clean(text string) (string, bool) {
	const ellipsis = "…"
	whole, cut := strings.CutSuffix(text, ellipsis)
	s := o.r.Text(0)
	out, err := s.Push(nil, whole)
	switch {
	case err != nil:
		return "", false
	case cut:
		return string(out) + ellipsis, true
	}
	out, err = s.End(out)
	return string(out), err == nil
}

// OnEnd implements [stream.Observer]. Nothing is left of the attempt by then.
func (o *redact) OnEnd(stream.Summary) {}

func (o *redact) block(c *stream.Chunk) redacting {
	name := blockName{laneOf(c), c.BlockID}
	if b, ok := o.open.get(name); ok {
		return b
	}
	var b redacting
	if name.lane == stream.LaneToolArguments {
		b = o.r.JSON(o.hold)
	} else {
		b = o.r.Text(o.hold)
	}
	o.open.put(name, b)
	return b
}

// end gives back what is held of a block; the next time there is nothing.
func (o *redact) end(c stream.Chunk) stream.Verdict {
	name := blockName{c.Lane, c.BlockID}
	block, ok := o.open.get(name)
	if !ok {
		return stream.Continue()
	}
	o.open.drop(name)
	rest, err := block.End(nil)
	switch {
	case err != nil:
		return unredacted(err)
	case len(rest) == 0:
		return stream.Continue()
	}
	return stream.Amend(stream.Chunk{Kind: stream.KindDelta, Lane: c.Lane, BlockID: c.BlockID, Text: string(rest)})
}

// call redacts the words of a call.
func (o *redact) call(c stream.CallStart) (stream.CallStart, error) {
	for _, word := range []*string{&c.Name, &c.ProviderID} {
		s := o.r.Text(o.hold)
		out, err := s.Push(nil, *word)
		if err == nil {
			out, err = s.End(out)
		}
		if err != nil {
			return c, err
		}
		if string(out) != *word {
			*word = string(out)
		}
	}
	return c, nil
}

// unredacted stops an answer that cannot be redacted.
func unredacted(err error) stream.Verdict {
	var long *pattern.HoldError
	if errors.As(err, &long) {
		return stream.Stop(fmt.Sprintf("A value that may have to be redacted is longer than %d bytes, which is what may be held back of an answer.", long.Limit))
	}
	return stream.Stop(fmt.Sprintf("The arguments of a tool call are no JSON and longer than %d bytes, so they cannot be redacted.", pattern.MaxHold))
}
