package stream_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
)

func TestWhatIsHeldIsGivenBackByALaterAmend(t *testing.T) {
	t.Parallel()
	var saw []string
	behind := saying("behind", func(c stream.Chunk) stream.Verdict {
		saw = append(saw, shown([]stream.Chunk{c}))
		return stream.Continue()
	})
	a := begin(t, scripted("h", stream.Hold(), stream.Hold(), stream.Amend(text("1", "abc"))), behind)
	expect(t, pushed(a, text("1", "a"), text("1", "b"), text("1", "c"), finish()), "1=", "1=", "1=abc", "stop")
	expect(t, saw, "1=", "1=", "1=abc", "1 END", "stop")
	if r := a.End(stream.EndFinished)[0]; r.Failure != nil || r.Held != 2 || r.BytesOut != 3 || !slices.Equal(r.Lanes, []stream.Lane{stream.LaneText}) {
		t.Errorf("report %+v", r)
	}
}

func TestEndsOfBlocksAreSentUntilTheyPass(t *testing.T) {
	t.Parallel()
	// holder keeps all text and gives it back at the end, a byte at a time.
	holder := func(id string) stream.Registration {
		return stream.Registration{ID: id, New: func(stream.Call) stream.Observer {
			held := map[string]string{}
			return observer{chunk: func(c stream.Chunk) stream.Verdict {
				key := string(c.Lane) + c.BlockID
				switch {
				case c.Kind == stream.KindDelta && c.Text != "":
					held[key] += c.Text
					return stream.Hold()
				case c.Kind == stream.KindEnd && held[key] != "":
					next := stream.Chunk{Kind: stream.KindDelta, Lane: c.Lane, BlockID: c.BlockID, Text: held[key][:1]}
					held[key] = held[key][1:]
					return stream.Amend(next)
				}
				return stream.Continue()
			}}
		}}
	}
	var saw []string
	a := begin(t, holder("one"), holder("two"), saying("last", func(c stream.Chunk) stream.Verdict {
		saw = append(saw, shown([]stream.Chunk{c}))
		return stream.Continue()
	}))
	expect(t, pushed(a, text("1", "ab"), reasoning("1", "x"), toolCall("2", "look"), arguments("2", "{}"), text("1", "c"), finish()),
		"1=", "1=", "2!look()", "2=", "1=", "1= | 1= | 1= | 1= | 2= | 2= | 1=a | 1=b | 1=c | 1=x | 2={ | 2=} | stop")
	if got := strings.Join(saw[len(saw)-10:], ","); got != "1=a,1=b,1=c,1=x,2={,2=},1 END,1 END,2 END,stop" {
		t.Errorf("the last one saw %q", got)
	}
	for _, r := range a.End(stream.EndFinished) {
		if r.Failure != nil {
			t.Errorf("failure %+v", r.Failure)
		}
	}
}

func TestAnAnswerThatBreaksOffHasNoEnds(t *testing.T) {
	t.Parallel()
	a := begin(t, scripted("h", stream.Hold()))
	expect(t, pushed(a, text("1", "a")), "1=")
	if r := a.End(stream.EndFailed)[0]; r.Failure != nil || r.Chunks != 1 {
		t.Errorf("report %+v", r)
	}
}

func TestAnEndThatNeverPassesIsAFailure(t *testing.T) {
	t.Parallel()
	a := begin(t, saying("o", func(c stream.Chunk) stream.Verdict {
		if c.Kind == stream.KindEnd {
			return stream.Amend(text(c.BlockID, ""))
		}
		return stream.Continue()
	}))
	a.Push(text("1", "a"))
	out := a.Push(finish())
	if n := len(out.Chunks); n != 1001 || out.Chunks[n-1].Kind != stream.KindFinish {
		t.Errorf("%d chunks go on", n)
	}
	if f := a.End(stream.EndFinished)[0].Failure; f == nil || f.Outcome != "malformed" || f.Chunk != 2 {
		t.Errorf("failure %+v", f)
	}
}

func TestAnEndMayEmitAndMayStop(t *testing.T) {
	t.Parallel()
	atEnd := func(v stream.Verdict) stream.Registration {
		return saying("o", func(c stream.Chunk) stream.Verdict {
			if c.Kind == stream.KindEnd {
				return v
			}
			return stream.Continue()
		})
	}
	a := begin(t, atEnd(stream.Emit("c", json.RawMessage("1"))))
	a.Push(text("1", "a"))
	if out := a.Push(finish()); shown(out.Chunks) != "stop" || len(out.Emissions) != 1 || out.Emissions[0].Chunk != 2 {
		t.Errorf("goes on: %+v", out)
	}
	a = begin(t, scripted("h", stream.Hold(), stream.Amend(text("1", "a"))), atEnd(stream.Stop("no")))
	a.Push(text("1", "a"))
	if out := a.Push(finish()); out.Stop == nil || out.Chunks != nil || out.Stop.Chunk != 2 || out.Stop.Accepted != 0 {
		t.Errorf("goes on: %+v", out)
	}
}

func TestWhatIsGivenBackAtTheEndMayStillBeStopped(t *testing.T) {
	t.Parallel()
	a := begin(t, scripted("h", stream.Hold(), stream.Amend(text("1", "secret"))), saying("halt", func(c stream.Chunk) stream.Verdict {
		if c.Text == "secret" {
			return stream.Stop("no")
		}
		return stream.Continue()
	}))
	expect(t, pushed(a, text("1", "secret"), finish()), "1=", "STOP")
}

// TestWhatIsHeldIsGivenBackAsItWasWhenTheObserverFails: in order, ahead of the
// chunk, through the observers behind.
func TestWhatIsHeldIsGivenBackAsItWasWhenTheObserverFails(t *testing.T) {
	t.Parallel()
	hold, released := stream.Hold(), stream.Amend(reasoning("2", "X"))
	bad := stream.Verdict{Action: "secret words"}
	upper := saying("upper", func(c stream.Chunk) stream.Verdict {
		c.Text = strings.ToUpper(c.Text)
		if c.Kind != stream.KindDelta {
			return stream.Continue()
		}
		return stream.Amend(c)
	})
	a := begin(t, scripted("h", hold, hold, hold, released, hold, bad), upper)
	expect(t, pushed(a, text("1", "a"), reasoning("2", "b"), text("1", "c"), reasoning("2", "d"), reasoning("2", "e"), text("3", "f"), text("1", "g"), finish()),
		"1=", "2=", "1=", "2=X", "2=", "1=A | 1=C | 2=E | 3=F", "1=G", "stop")
	r := a.End(stream.EndFinished)[0]
	if f := r.Failure; f == nil || f.Outcome != "malformed" || f.Chunk != 6 || strings.Contains(f.Text, "secret") {
		t.Errorf("failure %+v", f)
	}
	if r.Chunks != 6 || r.BytesOut != 4 {
		t.Errorf("report %+v", r)
	}
}

func TestGivingBackMayBeStoppedByAnObserverBehind(t *testing.T) {
	t.Parallel()
	a := begin(t, scripted("h", stream.Hold(), stream.Verdict{Action: "none"}), saying("halt", func(c stream.Chunk) stream.Verdict {
		if c.Text == "a" {
			return stream.Stop("an a")
		}
		return stream.Continue()
	}))
	expect(t, pushed(a, text("1", "a"), text("1", "b")), "1=", "STOP")
	reports := a.End(stream.EndStopped)
	if reports[0].Failure == nil || reports[0].Stopped != nil || reports[1].Stopped == nil {
		t.Errorf("reports %+v", reports)
	}
}

func TestHoldingHasLimits(t *testing.T) {
	t.Parallel()
	half := strings.Repeat("x", 32<<10)
	late := 2*time.Second + 1
	for name, c := range map[string]struct {
		verdicts []stream.Verdict
		chunks   []stream.Chunk
		outcome  string
		change   func(*stream.Registration)
	}{
		"64 KiB": {verdicts: []stream.Verdict{stream.Hold(), stream.Hold()}, chunks: []stream.Chunk{text("1", half), text("1", half)}},
		"64 KiB in each of two blocks": {
			verdicts: []stream.Verdict{stream.Hold(), stream.Hold(), stream.Hold(), stream.Hold()},
			chunks:   []stream.Chunk{text("1", half), text("2", half), text("1", half), text("2", half)},
		},
		"a byte more": {
			verdicts: []stream.Verdict{stream.Hold(), stream.Hold(), stream.Hold()},
			chunks:   []stream.Chunk{text("1", half), text("1", half), text("1", "x")}, outcome: "oversize",
		},
		"a byte more without a limit": {
			verdicts: []stream.Verdict{stream.Hold(), stream.Hold(), stream.Hold()},
			chunks:   []stream.Chunk{text("1", half), text("1", half), text("1", "x")}, change: func(r *stream.Registration) { r.HoldBytes = -1 },
		},
		"less under another limit": {
			verdicts: []stream.Verdict{stream.Hold()}, chunks: []stream.Chunk{text("1", "abc")}, outcome: "oversize",
			change: func(r *stream.Registration) { r.HoldBytes = 2 },
		},
		"2 s": {
			verdicts: []stream.Verdict{stream.Hold(), stream.Hold()},
			chunks:   []stream.Chunk{at(1, text("1", "a")), at(late, text("1", "b"))},
		},
		"2 s and more": {
			verdicts: []stream.Verdict{stream.Hold(), stream.Hold()},
			chunks:   []stream.Chunk{at(0, text("1", "a")), at(late, text("1", "b"))}, outcome: "timeout",
		},
		"2 s and more without a limit": {
			verdicts: []stream.Verdict{stream.Hold(), stream.Hold()},
			chunks:   []stream.Chunk{at(0, text("1", "a")), at(late, text("1", "b"))}, change: func(r *stream.Registration) { r.HoldTime = -1 },
		},
		"given back with the chunk that comes late": {
			verdicts: []stream.Verdict{stream.Hold(), stream.Amend(text("1", "ab"))},
			chunks:   []stream.Chunk{at(0, text("1", "a")), at(late, text("1", "b"))},
		},
		"another block comes late": {
			verdicts: []stream.Verdict{stream.Hold()}, chunks: []stream.Chunk{at(0, text("1", "a")), at(late, text("2", "b"))},
		},
		"amended to nothing late": {
			verdicts: []stream.Verdict{stream.Hold(), stream.Amend(text("1", ""))},
			chunks:   []stream.Chunk{at(0, text("1", "a")), at(late, text("1", "b"))}, outcome: "timeout",
		},
		"an empty one is let pass late": {
			verdicts: []stream.Verdict{stream.Hold()}, chunks: []stream.Chunk{at(0, text("1", "a")), at(late, text("1", ""))}, outcome: "timeout",
		},
		"let pass": {
			verdicts: []stream.Verdict{stream.Hold(), stream.Continue(), stream.Continue()}, chunks: []stream.Chunk{text("1", "a"), text("1", "b"), finish()},
		},
		"the end is let pass": {verdicts: []stream.Verdict{stream.Hold()}, chunks: []stream.Chunk{text("1", "a"), finish()}, outcome: "malformed"},
		"the end is let pass with an emission": {
			verdicts: []stream.Verdict{stream.Hold(), stream.Emit("c", json.RawMessage("1"))}, chunks: []stream.Chunk{text("1", "a"), finish()}, outcome: "malformed",
		},
		"the end is let pass with a pause": {
			verdicts: []stream.Verdict{stream.Hold(), stream.Throttle(1)}, chunks: []stream.Chunk{text("1", "a"), finish()}, outcome: "malformed",
		},
		"one of two blocks is given back": {
			verdicts: []stream.Verdict{stream.Hold(), stream.Hold(), stream.Amend(text("1", "ac"))},
			chunks:   []stream.Chunk{text("1", "a"), text("2", "b"), text("1", "c"), finish()}, outcome: "malformed",
		},
		"the end is held":    {verdicts: []stream.Verdict{stream.Continue(), stream.Hold()}, chunks: []stream.Chunk{text("1", "a"), finish()}, outcome: "malformed"},
		"the finish is held": {verdicts: []stream.Verdict{stream.Hold()}, chunks: []stream.Chunk{finish()}, outcome: "malformed"},
		"nothing is held":    {verdicts: []stream.Verdict{stream.Hold(), stream.Continue()}, chunks: []stream.Chunk{text("1", ""), finish()}},
		"given back as a call": {
			verdicts: []stream.Verdict{stream.Hold(), stream.Amend(toolCall("c", "look"))}, chunks: []stream.Chunk{text("1", "<look"), text("1", "/>"), finish()},
		},
	} {
		for _, policy := range []stream.FailurePolicy{stream.FailDetach, stream.FailStop} {
			r := scripted("h", c.verdicts...)
			r.OnFailure = policy
			if c.change != nil {
				c.change(&r)
			}
			a := begin(t, r)
			in, goesOn, stopped := "", "", false
			for _, chunk := range c.chunks {
				out := a.Push(chunk)
				in += chunk.Text
				for _, o := range out.Chunks {
					goesOn += o.Text
				}
				stopped = stopped || out.Stop != nil
			}
			outcome := ""
			if f := a.End(stream.EndFinished)[0].Failure; f != nil {
				outcome = f.Outcome
			}
			if outcome != c.outcome || stopped != (outcome != "" && policy == stream.FailStop) {
				t.Errorf("%s, %s: %q, stopped: %v", name, policy, outcome, stopped)
			}
			if outcome != "" && policy == stream.FailDetach && len(goesOn) != len(in) {
				t.Errorf("%s: of %d bytes %d go on", name, len(in), len(goesOn))
			}
		}
	}
}
