package stream_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
)

func TestEachObserverSeesWhatTheOneBeforeItMade(t *testing.T) {
	t.Parallel()
	upper := func(c stream.Chunk) stream.Verdict {
		if c.Kind != stream.KindDelta {
			return stream.Continue()
		}
		c.Text = strings.ToUpper(c.Text)
		return stream.Amend(c)
	}
	bracket := func(c stream.Chunk) stream.Verdict {
		if c.Kind != stream.KindDelta {
			return stream.Continue()
		}
		c.Text = "[" + c.Text + "]"
		return stream.Amend(c)
	}
	var saw []string
	a := begin(t, saying("upper", upper), saying("bracket", bracket), saying("last", func(c stream.Chunk) stream.Verdict {
		saw = append(saw, shown([]stream.Chunk{c}))
		return stream.Continue()
	}))
	expect(t, pushed(a, text("1", "ab"), reasoning("2", ""), toolCall("3", "look"), arguments("3", "{}"), finish()),
		"1=[AB]", "2=[]", "3!look()", "3=[{}]", "stop")
	expect(t, saw, "1=[AB]", "2=[]", "3!look()", "3=[{}]", "1 END", "2 END", "3 END", "stop")
	r := a.End(stream.EndFinished)[1]
	if r.Chunks != 5 || r.Bytes != 4 || r.BytesOut != 10 || r.Amended != 3 || r.Failure != nil || r.Stopped != nil ||
		!slices.Equal(r.Lanes, []stream.Lane{stream.LaneReasoning, stream.LaneText, stream.LaneToolArguments}) {
		t.Errorf("report %+v", r)
	}
}

func TestAmendingToTheSameChangesNothing(t *testing.T) {
	t.Parallel()
	a := begin(t, saying("same", stream.Amend))
	expect(t, pushed(a, text("1", "ab")), "1=ab")
	if r := a.End(stream.EndFailed)[0]; r.Amended != 1 || r.Lanes != nil {
		t.Errorf("report %+v", r)
	}
}

// TestAmendTakesOneForOneAndNothingElse: each case is what stands in the place of
// a chunk, and what goes on; none if the observer has failed.
func TestAmendTakesOneForOneAndNothingElse(t *testing.T) {
	t.Parallel()
	call := stream.Chunk{Kind: stream.KindToolCall, BlockID: "c", Text: `{"a":1}`, Call: stream.CallStart{Name: "look"}}
	reason := func(r stream.FinishReason) stream.Chunk {
		c := finish()
		c.Finish.Reason = r
		return c
	}
	spent := finish()
	spent.Finish.Usage.OutputTokens++
	end := stream.Chunk{Kind: stream.KindEnd, Lane: stream.LaneText, BlockID: "1"}
	for name, c := range map[string]struct {
		chunk, to stream.Chunk
		want      string
	}{
		"text":                           {text("1", "a"), text("1", "b"), "1=b"},
		"text that vanishes":             {text("1", "a"), text("1", ""), "1="},
		"text in a block of its own":     {text("1", "a"), text("x", "b"), "o:x=b"},
		"text in no block":               {text("1", "a"), text("", "b"), ""},
		"text as reasoning":              {text("1", "a"), reasoning("1", "b"), ""},
		"text as arguments":              {text("1", "a"), arguments("1", "b"), ""},
		"text as a call":                 {text("1", "a"), call, `o:c!look({"a":1})`},
		"text as a call without a name":  {text("1", "a"), toolCall("c", ""), ""},
		"text as a call without a block": {text("1", "a"), toolCall("", "look"), ""},
		"text as a finish":               {text("1", "a"), finish(), ""},
		"text as an end":                 {text("1", "a"), end, ""},
		"text as no chunk":               {text("1", "a"), stream.Chunk{Kind: 9, Lane: stream.LaneText, BlockID: "1"}, ""},
		"reasoning":                      {reasoning("1", "a"), reasoning("x", "b"), "o:x=b"},
		"reasoning as a call":            {reasoning("1", "a"), call, ""},
		"arguments":                      {arguments("1", "a"), arguments("1", "b"), "1=b"},
		"arguments elsewhere":            {arguments("1", "a"), arguments("2", "b"), ""},
		"arguments as a call":            {arguments("1", "a"), call, ""},
		"call":                           {toolCall("1", "look"), toolCall("1", "see"), "1!see()"},
		"call elsewhere":                 {toolCall("1", "look"), toolCall("2", "look"), ""},
		"call without a name":            {toolCall("1", "look"), toolCall("1", ""), ""},
		"call as text":                   {toolCall("1", "look"), text("1", "look"), ""},
		"finish":                         {finish(), reason(stream.FinishLength), "length"},
		"finish of no reason":            {finish(), reason("because"), ""},
		"finish of another usage":        {finish(), spent, ""},
		"finish as text":                 {finish(), text("1", "a"), ""},
		"no chunk":                       {stream.Chunk{Kind: 9}, text("1", "a"), ""},
	} {
		chunk := c.chunk
		chunk.At = time.Second
		a := begin(t, scripted("o", stream.Amend(c.to)))
		out := a.Push(chunk)
		r := a.End(stream.EndFailed)[0]
		if c.want == "" {
			if r.Failure == nil || r.Failure.Outcome != "malformed" || r.Failure.Chunk != 1 || shown(out.Chunks) != shown([]stream.Chunk{c.chunk}) {
				t.Errorf("%s: %+v goes on; failure %+v", name, out.Chunks, r.Failure)
			}
			continue
		}
		if r.Failure != nil || shown(out.Chunks) != c.want || out.Chunks[0].At != time.Second {
			t.Errorf("%s: %q goes on as %+v; failure %+v", name, shown(out.Chunks), out.Chunks, r.Failure)
		}
	}
}

func TestACallMadeOfTextOpensABlockOfItsOwnAndEndsTheAnswerAsACall(t *testing.T) {
	t.Parallel()
	made := func(block string) stream.Verdict {
		return stream.Amend(stream.Chunk{Kind: stream.KindToolCall, BlockID: block, Text: "{}", Call: stream.CallStart{Name: "look"}})
	}
	var saw []string
	behind := saying("behind", func(c stream.Chunk) stream.Verdict {
		saw = append(saw, shown([]stream.Chunk{c}))
		return stream.Continue()
	})
	a := begin(t, scripted("d", made("1"), made("2"), stream.Amend(text("rest", "x")), stream.Amend(text("rest", "y"))), behind)
	expect(t, pushed(a, text("1", "a"), text("1", "b"), text("1", "c"), text("1", "d"), toolCall("2", "see"), finish()),
		"d:1!look({})", "d:2!look({})", "d:rest=x", "d:rest=y", "2!see()", "tool_calls")
	if got := strings.Join(saw[5:], ","); got != "d:1 END,d:2 END,d:rest END,2 END,tool_calls" {
		t.Errorf("the one behind is sent the ends %q", got)
	}
	if r := a.End(stream.EndFinished)[0]; r.Failure != nil || !slices.Equal(r.Lanes, []stream.Lane{stream.LaneText, stream.LaneToolArguments}) {
		t.Errorf("report %+v", r)
	}

	// A second call in the block of the first is none.
	a = begin(t, scripted("d", made("1"), made("1")))
	expect(t, pushed(a, text("1", "a"), text("1", "b"), finish()), "d:1!look({})", "1=b", "stop")
	if r := a.End(stream.EndFinished)[0]; r.Failure == nil || r.Failure.Outcome != "malformed" {
		t.Errorf("failure %+v", r.Failure)
	}
	// A finish that says something else stays.
	a = begin(t, scripted("d", made("1")))
	cut := finish()
	cut.Finish.Reason = stream.FinishLength
	expect(t, pushed(a, text("1", "a"), cut), "d:1!look({})", "length")
}

func TestAnObserverOpensOnlySoManyBlocks(t *testing.T) {
	t.Parallel()
	n := 0
	a := begin(t, saying("o", func(c stream.Chunk) stream.Verdict {
		n++
		c.BlockID = fmt.Sprint(n)
		return stream.Amend(c)
	}))
	for range 1000 {
		a.Push(text("t", "x"))
	}
	expect(t, pushed(a, text("t", "x")), "t=x")
	if r := a.End(stream.EndFailed)[0]; r.Amended != 1000 || r.Failure == nil || r.Failure.Chunk != 1001 {
		t.Errorf("report %+v", r)
	}
}

func TestEmissionsGoOnWithTheChunk(t *testing.T) {
	t.Parallel()
	envelope := json.RawMessage(`{"n": 1}`)
	empty := func(c stream.Chunk) stream.Verdict {
		c.Text = ""
		return stream.Amend(c)
	}
	a := begin(t, scripted("one", stream.Continue(), stream.Emit("numbers", envelope)), scripted("two", stream.Continue(), stream.Emit("n.2", json.RawMessage("2"))), saying("empty", empty))
	a.Push(text("1", "a"))
	out := a.Push(text("1", "b"))
	copy(envelope, "xxxxxxxx")
	if shown(out.Chunks) != "1=" || len(out.Emissions) != 2 {
		t.Fatalf("goes on: %+v", out)
	}
	if e := out.Emissions[0]; e.Observer != "one" || e.Channel != "numbers" || string(e.Envelope) != `{"n": 1}` || e.Chunk != 2 {
		t.Errorf("emission %+v", e)
	}
	if e := out.Emissions[1]; e.Observer != "two" || e.Channel != "n.2" || string(e.Envelope) != "2" || e.Chunk != 2 {
		t.Errorf("emission %+v", e)
	}
	if out := a.Push(text("1", "c")); len(out.Emissions) != 0 {
		t.Errorf("emitted again: %+v", out.Emissions)
	}
	if r := a.End(stream.EndFailed)[0]; r.Emitted != 1 || r.Lanes != nil {
		t.Errorf("report %+v", r)
	}
}

func TestEmissionsOfAChunkThatIsStoppedAreDropped(t *testing.T) {
	t.Parallel()
	a := begin(t, scripted("one", stream.Emit("c", json.RawMessage("1")), stream.Emit("c", json.RawMessage("2"))), scripted("two", stream.Continue(), stream.Stop("no")))
	a.Push(text("1", "a"))
	out := a.Push(text("1", "b"))
	if out.Stop == nil || len(out.Emissions) != 0 || len(out.Chunks) != 0 {
		t.Errorf("goes on: %+v", out)
	}
	if r := a.End(stream.EndStopped)[0]; r.Emitted != 1 {
		t.Errorf("report %+v", r)
	}
}

func TestEnvelopesHaveLimits(t *testing.T) {
	t.Parallel()
	long := func(n int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("a", n-2) + `"`) }
	for name, c := range map[string]struct {
		verdict stream.Verdict
		outcome string
	}{
		"as long as may be":  {stream.Emit("c", long(4096)), ""},
		"longer":             {stream.Emit("c", long(4097)), "oversize"},
		"empty":              {stream.Emit("c", nil), "malformed"},
		"no JSON":            {stream.Emit("c", json.RawMessage("{")), "malformed"},
		"two documents":      {stream.Emit("c", json.RawMessage("1 2")), "malformed"},
		"no UTF-8":           {stream.Emit("c", json.RawMessage("\"\xff\"")), "malformed"},
		"no channel":         {stream.Emit("", json.RawMessage("1")), "malformed"},
		"a channel of words": {stream.Emit("my channel", json.RawMessage("1")), "malformed"},
	} {
		a := begin(t, scripted("o", c.verdict))
		out := a.Push(text("1", "a"))
		outcome := ""
		if f := a.End(stream.EndFailed)[0].Failure; f != nil {
			outcome = f.Outcome
		}
		if outcome != c.outcome || shown(out.Chunks) != "1=a" || (len(out.Emissions) == 1) != (outcome == "") {
			t.Errorf("%s: %q, goes on: %+v", name, outcome, out)
		}
	}
}

func TestAnObserverEmitsOnlySoOften(t *testing.T) {
	t.Parallel()
	a := begin(t, saying("o", func(stream.Chunk) stream.Verdict { return stream.Emit("c", json.RawMessage("1")) }))
	n := 0
	for range stream.MaxEmissions + 1 {
		n += len(a.Push(text("1", "a")).Emissions)
	}
	if r := a.End(stream.EndFailed)[0]; n != 1000 || r.Emitted != 1000 || r.Failure == nil || r.Failure.Outcome != "oversize" {
		t.Errorf("%d emissions; report %+v", n, r)
	}
}

func TestThrottleIsClampedPerChunkAndInAll(t *testing.T) {
	t.Parallel()
	a := begin(t, scripted("one", stream.Throttle(10*time.Millisecond), stream.Throttle(-1), stream.Throttle(time.Hour), stream.Throttle(1)),
		scripted("two", stream.Throttle(20*time.Millisecond), stream.Continue(), stream.Continue(), stream.Throttle(2)))
	for i, want := range []time.Duration{30 * time.Millisecond, 0, 250 * time.Millisecond, 3, 0} {
		if out := a.Push(text("1", "a")); out.Pause != want || shown(out.Chunks) != "1=a" {
			t.Errorf("chunk %d: %+v; want a pause of %v", i+1, out, want)
		}
	}
	reports := a.End(stream.EndFailed)
	if r := reports[0]; r.Throttled != 4 || r.Paused != 260*time.Millisecond+1 {
		t.Errorf("report %+v", r)
	}

	a = begin(t, saying("o", func(stream.Chunk) stream.Verdict { return stream.Throttle(time.Second) }))
	var all time.Duration
	for range 20 {
		all += a.Push(text("1", "a")).Pause
	}
	if all != stream.MaxThrottleTotal {
		t.Errorf("paused for %v", all)
	}
}

func TestStopSaysWhereAndWhy(t *testing.T) {
	t.Parallel()
	r := scripted("halt", stream.Continue(), stream.Continue(), stream.Hold(), stream.Stop("a\x00b\xff."+strings.Repeat("ü", 1000)))
	r.OnStop = stream.StopFallback
	var ends []stream.Summary
	before := stream.Registration{ID: "before", New: func(stream.Call) stream.Observer {
		return observer{end: func(s stream.Summary) { ends = append(ends, s) }}
	}}
	a := begin(t, before, r)
	a.Push(text("1", "four"))
	a.Push(toolCall("2", "look"))
	a.Push(arguments("2", `{"a"`))
	out := a.Push(arguments("2", `:1}`))
	if out.Stop == nil || out.Chunks != nil {
		t.Fatalf("goes on: %+v", out)
	}
	s := *out.Stop
	if want := "a\uFFFDb\uFFFD." + strings.Repeat("ü", 495); s.Reason != want {
		t.Errorf("reason of %d bytes, %q", len(s.Reason), s.Reason[:20])
	}
	s.Reason = ""
	if want := (stream.Stopped{Observer: "halt", Policy: stream.StopFallback, Chunk: 4, Accepted: 4}); s != want {
		t.Errorf("stopped %+v; want %+v", s, want)
	}
	if again := a.Push(finish()); again.Stop != out.Stop || again.Chunks != nil {
		t.Errorf("behind the stop goes on %+v", again)
	}
	reports := a.End(stream.EndStopped)
	if reports[0].Stopped != nil || reports[1].Stopped != out.Stop || reports[1].Held != 1 || reports[1].Failure != nil {
		t.Errorf("reports %+v", reports)
	}
	if !slices.Equal(ends, []stream.Summary{{Ending: stream.EndStopped, Chunks: 4}}) {
		t.Errorf("told of the end: %+v", ends)
	}
}

func TestNothingGoesOnBehindTheFinishNorOfAnEndFromOutside(t *testing.T) {
	t.Parallel()
	asked := 0
	a := begin(t, saying("o", func(stream.Chunk) stream.Verdict { asked++; return stream.Continue() }))
	expect(t, pushed(a, stream.Chunk{Kind: stream.KindEnd, BlockID: "1"}, finish(), text("1", "late"), finish()), "", "stop", "", "")
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

func TestSummaryHasTheEndingAndTheUsage(t *testing.T) {
	t.Parallel()
	var got []stream.Summary
	a := begin(t, stream.Registration{ID: "o", New: func(stream.Call) stream.Observer {
		return observer{end: func(s stream.Summary) { got = append(got, s) }}
	}})
	pushed(a, text("1", "a"), finish())
	a.End(stream.EndFinished)
	if !slices.Equal(got, []stream.Summary{{Ending: stream.EndFinished, Chunks: 2, Usage: stream.Usage{InputTokens: 3, OutputTokens: 5}}}) {
		t.Errorf("told %+v", got)
	}
}
