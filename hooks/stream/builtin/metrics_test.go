package builtin_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/hooks/stream/builtin"
)

// begun is an attempt with observers.
func begun(t testing.TB, regs ...stream.Registration) *stream.Attempt {
	t.Helper()
	s, err := stream.NewSet(regs...)
	if err != nil {
		t.Fatal(err)
	}
	still := func() time.Time { return time.Unix(1, 0) }
	return s.WithClock(still).Begin(stream.Call{Class: stream.ClassMain, Model: "m"})
}

func measuring(t testing.TB, c builtin.MetricsConfig) stream.Registration {
	t.Helper()
	r, err := builtin.Metrics(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// cut is s in pieces of n bytes.
func cut(s string, n int) []string {
	var all []string
	for len(s) > n {
		all = append(all, s[:n])
		s = s[n:]
	}
	return append(all, s)
}

func TestMetricsAreEmittedWithTheFinishWhereverTheTextIsSplit(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 2, 3, 7, 100} {
		a := begun(t, measuring(t, builtin.MetricsConfig{}))
		at := 40 * time.Millisecond
		said := 0
		push := func(c stream.Chunk) {
			c.At, at = at, at+time.Millisecond
			if c.Kind == stream.KindToolCall || c.Text != "" {
				said++
			}
			if out := a.Push(c); len(out.Chunks) != 1 || len(out.Emissions) > 0 || out.Chunks[0].Text != c.Text {
				t.Fatalf("goes on: %+v", out)
			}
		}
		push(stream.Chunk{Kind: stream.KindDelta, Lane: stream.LaneReasoning, BlockID: "1"}) // it has nothing in it
		for _, p := range cut("thinking", size) {
			push(stream.Chunk{Kind: stream.KindDelta, Lane: stream.LaneReasoning, BlockID: "1", Text: p})
		}
		for _, p := range cut("grüße", size) {
			push(stream.Chunk{Kind: stream.KindDelta, Lane: stream.LaneText, BlockID: "2", Text: p})
		}
		push(stream.Chunk{Kind: stream.KindToolCall, BlockID: "3", Call: stream.CallStart{Name: "look"}, Text: "{"})
		for _, p := range cut(`"a":1}`, size) {
			push(stream.Chunk{Kind: stream.KindDelta, Lane: stream.LaneToolArguments, BlockID: "3", Text: p})
		}
		out := a.Push(stream.Chunk{
			Kind: stream.KindFinish, At: 2500 * time.Millisecond,
			Finish: stream.Finish{Reason: stream.FinishToolCalls, Usage: stream.Usage{InputTokens: 7, OutputTokens: 9}},
		})
		if len(out.Emissions) != 1 || len(out.Chunks) != 1 {
			t.Fatalf("goes on: %+v", out)
		}
		want := `{"class":"main","model":"m","chunks":` + strconv.Itoa(said) + `,"text_bytes":7,"reasoning_bytes":8,"tool_arguments_bytes":7,"tool_calls":1,` +
			`"first_token_ms":41,"total_ms":2500,"finish":"tool_calls","usage":{"input_tokens":7,"output_tokens":9}}`
		if e := out.Emissions[0]; e.Channel != "metrics" || e.Observer != "metrics" || string(e.Envelope) != want {
			t.Errorf("pieces of %d: on %s by %s:\n%s; want\n%s", size, e.Channel, e.Observer, e.Envelope, want)
		}
	}
}

func TestMetricsOfNothingHaveNoFirstToken(t *testing.T) {
	t.Parallel()
	a := begun(t, measuring(t, builtin.MetricsConfig{Channel: "numbers.1"}))
	out := a.Push(stream.Chunk{Kind: stream.KindFinish, Finish: stream.Finish{Reason: stream.FinishStop}})
	if len(out.Emissions) != 1 || out.Emissions[0].Channel != "numbers.1" || strings.Contains(string(out.Emissions[0].Envelope), "first_token_ms") {
		t.Errorf("goes on: %+v", out)
	}
}

func TestMetricsOfAnAnswerThatBreaksOffAreNotEmitted(t *testing.T) {
	t.Parallel()
	a := begun(t, measuring(t, builtin.MetricsConfig{}))
	a.Push(stream.Chunk{Kind: stream.KindDelta, Lane: stream.LaneText, BlockID: "1", Text: "a"})
	if r := a.End(stream.EndFailed)[0]; r.Emitted != 0 || r.Failure != nil {
		t.Errorf("report %+v", r)
	}
}

func TestMetricsCountWhatAnObserverBeforeThemHasLeft(t *testing.T) {
	t.Parallel()
	empty := stream.Registration{ID: "empty", New: func(stream.Call) stream.Observer { return emptying{} }}
	a := begun(t, empty, measuring(t, builtin.MetricsConfig{}))
	a.Push(stream.Chunk{Kind: stream.KindDelta, Lane: stream.LaneText, BlockID: "1", Text: "a"})
	out := a.Push(stream.Chunk{Kind: stream.KindFinish, Finish: stream.Finish{Reason: stream.FinishStop}})
	if got := string(out.Emissions[0].Envelope); !strings.Contains(got, `"chunks":0,"text_bytes":0`) {
		t.Errorf("counted %s", got)
	}
}

// emptying leaves nothing of a text.
type emptying struct{}

func (emptying) OnChunk(c stream.Chunk) stream.Verdict {
	if c.Kind != stream.KindDelta {
		return stream.Continue()
	}
	c.Text = ""
	return stream.Amend(c)
}

func (emptying) OnEnd(stream.Summary) {}

func TestMetricsWantAChannelWithAName(t *testing.T) {
	t.Parallel()
	for _, channel := range []string{"Metrics", "a b", "-", strings.Repeat("a", 65)} {
		refused(t, "metrics", "channel")(builtin.Metrics(builtin.MetricsConfig{Channel: channel}))
	}
}
