package stream_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }

// observer is one of functions.
type observer struct {
	chunk func(stream.Chunk) stream.Verdict
	end   func(stream.Summary)
}

func (o observer) OnChunk(c stream.Chunk) stream.Verdict {
	if o.chunk == nil {
		return stream.Continue()
	}
	return o.chunk(c)
}

func (o observer) OnEnd(s stream.Summary) {
	if o.end != nil {
		o.end(s)
	}
}

// saying is a registration of an observer that is one function.
func saying(id string, f func(stream.Chunk) stream.Verdict) stream.Registration {
	return stream.Registration{ID: id, New: func(stream.Call) stream.Observer { return observer{chunk: f} }}
}

// scripted says one verdict after the other, whatever comes, and then Continue.
func scripted(id string, verdicts ...stream.Verdict) stream.Registration {
	return stream.Registration{ID: id, New: func(stream.Call) stream.Observer {
		left := slices.Clone(verdicts)
		return observer{chunk: func(stream.Chunk) stream.Verdict {
			if len(left) == 0 {
				return stream.Continue()
			}
			v := left[0]
			left = left[1:]
			return v
		}}
	}}
}

// stopping makes a failure of r stop the answer.
func stopping(r stream.Registration) stream.Registration {
	r.OnFailure = stream.FailStop
	return r
}

// still is a clock that stands.
func still() time.Time { return time.Unix(1, 0) }

// begin begins an attempt with observers, whose time stands still.
func begin(t testing.TB, regs ...stream.Registration) *stream.Attempt {
	t.Helper()
	return set(t, regs...).Begin(stream.Call{Class: stream.ClassMain, Attempt: 1})
}

func set(t testing.TB, regs ...stream.Registration) *stream.Set {
	t.Helper()
	s, err := stream.NewSet(regs...)
	if err != nil {
		t.Fatal(err)
	}
	return s.WithClock(still)
}

// The chunks of tests.

func text(block, s string) stream.Chunk {
	return stream.Chunk{Kind: stream.KindDelta, Lane: stream.LaneText, BlockID: block, Text: s}
}

func reasoning(block, s string) stream.Chunk {
	return stream.Chunk{Kind: stream.KindDelta, Lane: stream.LaneReasoning, BlockID: block, Text: s}
}

func arguments(block, s string) stream.Chunk {
	return stream.Chunk{Kind: stream.KindDelta, Lane: stream.LaneToolArguments, BlockID: block, Text: s}
}

func toolCall(block, name string) stream.Chunk {
	return stream.Chunk{Kind: stream.KindToolCall, BlockID: block, Call: stream.CallStart{Name: name}}
}

func finish() stream.Chunk {
	return stream.Chunk{Kind: stream.KindFinish, Finish: stream.Finish{Reason: stream.FinishStop, Raw: "stop", Usage: stream.Usage{InputTokens: 3, OutputTokens: 5}}}
}

func at(d time.Duration, c stream.Chunk) stream.Chunk {
	c.At = d
	return c
}

// shown are chunks in one line: the block and text of deltas, the name of calls
// with their text, and the reason of a finish.
func shown(chunks []stream.Chunk) string {
	var all []string
	for _, c := range chunks {
		switch c.Kind {
		case stream.KindDelta:
			all = append(all, c.BlockID+"="+c.Text)
		case stream.KindToolCall:
			all = append(all, c.BlockID+"!"+c.Call.Name+"("+c.Text+")")
		case stream.KindFinish:
			all = append(all, string(c.Finish.Reason))
		case stream.KindEnd:
			all = append(all, c.BlockID+" END")
		}
	}
	return strings.Join(all, " | ")
}

// pushed is what goes on of each chunk, up to a stop.
func pushed(a *stream.Attempt, chunks ...stream.Chunk) []string {
	var all []string
	for _, c := range chunks {
		out := a.Push(c)
		if out.Stop != nil {
			return append(all, "STOP")
		}
		all = append(all, shown(out.Chunks))
	}
	return all
}

// expect compares what goes on with what should.
func expect(t testing.TB, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("goes on:\n%q; want\n%q", got, want)
	}
}
