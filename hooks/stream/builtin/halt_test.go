package builtin_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/hooks/stream/builtin"
)

func halting(t interface{ Fatal(...any) }, c builtin.HaltOnPatternConfig) stream.Observer {
	r, err := builtin.HaltOnPattern(c)
	if err != nil {
		t.Fatal(err)
	}
	return r.New(stream.Call{})
}

func text(s string) stream.Chunk {
	return stream.Chunk{Kind: stream.KindDelta, Lane: stream.LaneText, BlockID: "1", Text: s}
}

func textEnd() stream.Chunk {
	return stream.Chunk{Kind: stream.KindEnd, Lane: stream.LaneText, BlockID: "1"}
}

// haltsAt is the number of the chunk with which an answer of those pieces is
// stopped, from 1, which may be that of the end; 0 for none.
func haltsAt(o stream.Observer, pieces ...string) int {
	for i, p := range pieces {
		if o.OnChunk(text(p)).Action == stream.ActionStop {
			return i + 1
		}
	}
	if o.OnChunk(textEnd()).Action == stream.ActionStop {
		return len(pieces) + 1
	}
	return 0
}

func TestAnAnswerIsStoppedWhereverThePatternIsSplit(t *testing.T) {
	t.Parallel()
	c := builtin.HaltOnPatternConfig{Patterns: []string{`never`, `gr[üÜ]n+e\s+x`}}
	const said = "a grün\nnnne grünne  x and more"
	end := strings.Index(said, "x") + 1
	for size := 1; size <= len(said); size++ {
		pieces := cut(said, size)
		if got, want := haltsAt(halting(t, c), pieces...), (end+size-1)/size; got != want {
			t.Errorf("pieces of %d: stopped with chunk %d; want %d", size, got, want)
		}
	}
	for at := range said {
		if got := haltsAt(halting(t, c), said[:at], said[at:]); got == 0 || got == 3 {
			t.Errorf("split at %d: stopped with chunk %d", at, got)
		}
	}
}

// TestPatternsAreFoundAsInTheWholeText: whatever the pattern is, and however the
// text is split, an answer is stopped if and only if package regexp finds the
// pattern in the whole.
func TestPatternsAreFoundAsInTheWholeText(t *testing.T) {
	t.Parallel()
	patterns := []string{
		`ab+a`, `(?i)Ab`, `\bab\b`, `\Bb`, `^b`, `(?m)^b`, `a$`, `(?m)a$`, `\Aa+\z`, `ü.b`, `(?s)a.b`, `[^a]{2}b`, `(a|b|\n){4}ü`, `(?:a.*)b$`, `\x{FFFD}a`, `a{3}|b{3}`,
		`(?m)^$\nb`, `(a*)(b)\b`, `ſ`, `(?i)s`,
	}
	letters := []string{"a", "b", "a", "b", "\n", " ", "ü", "\xff", "\xc3", "s", "ſ"}
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.SliceOfN(rapid.SampledFrom(patterns), 1, 3).Draw(t, "patterns")
		said := strings.Join(rapid.SliceOfN(rapid.SampledFrom(letters), 0, 12).Draw(t, "said"), "")
		cuts := rapid.SliceOfN(rapid.IntRange(0, len(said)), 0, 5).Draw(t, "cuts")
		slices.Sort(cuts)
		var pieces []string
		from := 0
		for _, at := range append(cuts, len(said)) {
			pieces = append(pieces, said[from:at])
			from = at
		}
		want := slices.ContainsFunc(some, func(p string) bool { return regexp.MustCompile(p).MatchString(said) })
		if got := haltsAt(halting(t, builtin.HaltOnPatternConfig{Patterns: some}), pieces...); (got > 0) != want {
			t.Fatalf("%q in %q: stopped with chunk %d; package regexp: %v", some, pieces, got, want)
		}
	})
}

func TestAConditionWaitsForTheNextCharacter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern string
		pieces  []string
		want    int
	}{
		{`ab\b`, []string{"ab", "c"}, 0},
		{`ab\b`, []string{"ab", " "}, 2},
		{`ab\b`, []string{"ab"}, 2},
		{`ab\b`, []string{"ab\xc3", "\xbc"}, 2},
		{`ab\b`, []string{"ab\xc3"}, 2},
		{`ab\b`, []string{"ab\xc3", "ab"}, 2},
		{`ab\b|\b[^\x00-\x{10FFFF}]`, []string{"ab "}, 1},
		{`b\x{FFFD}`, []string{"ab\xc3"}, 2},
		{`b\x{FFFD}\x{FFFD}`, []string{"ab\xe2\x82"}, 2},
		{`b\x{FFFD}a`, []string{"ab\xe2", "\x82", "a"}, 0},
		{`b\x{FFFD}{2}a`, []string{"ab\xe2", "\x82", "a"}, 3},
		{`ab$`, []string{"ab", ""}, 3},
		{`ab(?m)$`, []string{"ab", "\n"}, 2},
		{`a(?m)\n^`, []string{"a\n", "b"}, 1},
	} {
		if got := haltsAt(halting(t, builtin.HaltOnPatternConfig{Patterns: []string{c.pattern}}), c.pieces...); got != c.want {
			t.Errorf("%q in %q: stopped with chunk %d; want %d", c.pattern, c.pieces, got, c.want)
		}
	}
}

func TestWhatIsLongerThanTheWindowIsNotFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		window int
		said   string
		want   bool
	}{
		{10, "b" + strings.Repeat("x", 8) + "e", true},
		{10, "b" + strings.Repeat("x", 9) + "e", false},
		{10, strings.Repeat("b", 100) + strings.Repeat("x", 8) + "e", true},
		{10, "b" + strings.Repeat("x", 50) + "bxe", true},
		{0, "b" + strings.Repeat("x", 4094) + "e", true},
		{0, "b" + strings.Repeat("x", 4095) + "e", false},
		{16 << 10, "b" + strings.Repeat("x", 16<<10-2) + "e", true},
	} {
		for _, size := range []int{1, 7, 100_000} {
			o := halting(t, builtin.HaltOnPatternConfig{Patterns: []string{`b[bx]*e`}, Window: c.window})
			if got := haltsAt(o, cut(c.said, size)...) > 0; got != c.want {
				t.Errorf("window of %d, %d bytes in pieces of %d: stopped: %v", c.window, len(c.said), size, got)
			}
		}
	}
}

func TestOnlyTheLanesAreLookedAtAndEachBlockAlone(t *testing.T) {
	t.Parallel()
	delta := func(lane stream.Lane, block, s string) stream.Chunk {
		return stream.Chunk{Kind: stream.KindDelta, Lane: lane, BlockID: block, Text: s}
	}
	begins := stream.Chunk{Kind: stream.KindToolCall, Lane: stream.LaneToolArguments, BlockID: "3", Call: stream.CallStart{Name: "ab"}, Text: "a"}
	for name, c := range map[string]struct {
		lanes  []stream.Lane
		chunks []stream.Chunk
		want   bool
	}{
		"text by default":          {nil, []stream.Chunk{text("a"), text("b")}, true},
		"not reasoning by default": {nil, []stream.Chunk{delta(stream.LaneReasoning, "1", "ab")}, false},
		"reasoning":                {[]stream.Lane{stream.LaneReasoning}, []stream.Chunk{text("ab"), delta(stream.LaneReasoning, "1", "ab")}, true},
		"not text":                 {[]stream.Lane{stream.LaneReasoning}, []stream.Chunk{text("ab")}, false},
		"arguments":                {[]stream.Lane{stream.LaneToolArguments}, []stream.Chunk{begins, delta(stream.LaneToolArguments, "3", "b")}, true},
		"not the name of a tool":   {[]stream.Lane{stream.LaneToolArguments}, []stream.Chunk{begins}, false},
		"half in each of two":      {nil, []stream.Chunk{delta(stream.LaneText, "1", "a"), delta(stream.LaneText, "2", "b")}, false},
		"two that take turns":      {nil, []stream.Chunk{text("a"), delta(stream.LaneText, "2", "x"), text("b")}, true},
		"a finish":                 {nil, []stream.Chunk{text("a"), {Kind: stream.KindFinish, Finish: stream.Finish{Raw: "ab"}}}, false},
	} {
		o := halting(t, builtin.HaltOnPatternConfig{Patterns: []string{"ab"}, Lanes: c.lanes})
		got := slices.ContainsFunc(c.chunks, func(c stream.Chunk) bool { return o.OnChunk(c).Action == stream.ActionStop })
		if got != c.want {
			t.Errorf("%s: stopped: %v", name, got)
		}
	}
}

func TestARefusalStopsTheAnswerAndTheReasonHoldsNothingOfIt(t *testing.T) {
	t.Parallel()
	for _, said := range []string{
		"I'm sorry, but I can't help with that.", "I’m sorry, but I can’t assist with that request.", "I cannot provide instructions for it.",
		"I'm unable to assist with that.", "I am not able to discuss this.", "As an AI language model, I cannot do it.", "as an AI, I don't have opinions",
		"I must respectfully decline.", "Sorry, I won't write that.", "That goes against my guidelines.", "It would violate our content policy",
	} {
		for size := 1; size < 10; size++ {
			r, err := builtin.HaltOnPattern(builtin.HaltOnPatternConfig{})
			if err != nil {
				t.Fatal(err)
			}
			r.OnStop = stream.StopRetry
			a := begun(t, r)
			var stop *stream.Stopped
			accepted := ""
			for _, p := range append(cut("Hm. ", 2), cut(said, size)...) {
				out := a.Push(text(p))
				if stop = out.Stop; stop != nil {
					break
				}
				accepted += out.Chunks[0].Text
			}
			if stop == nil {
				stop = a.Push(stream.Chunk{Kind: stream.KindFinish, Finish: stream.Finish{Reason: stream.FinishStop}}).Stop
			}
			if stop == nil || stop.Failed || stop.Policy != stream.StopRetry || stop.Reason != "The answer reads like a refusal." || stop.Accepted != len(accepted) {
				t.Errorf("%q in pieces of %d: %+v; %q was accepted", said, size, stop, accepted)
			}
		}
	}
	for _, said := range []string{
		"I can't find an order with that number.", "I cannot see the picture yet; could you send it again?", "The guidelines of the shop are these.",
		"You can't help everybody.", "I will help with that.", "AI cannot write itself", "We must declare the goods.",
	} {
		if at := haltsAt(halting(t, builtin.HaltOnPatternConfig{}), cut(said, 3)...); at > 0 {
			t.Errorf("%q is stopped with chunk %d", said, at)
		}
	}
}

func TestTheReasonIsThatOfTheConfig(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		config builtin.HaltOnPatternConfig
		want   string
	}{
		{builtin.HaltOnPatternConfig{Patterns: []string{"secret"}}, "The answer matched a pattern that is not to be in answers."},
		{builtin.HaltOnPatternConfig{Patterns: []string{"secret"}, Reason: "no"}, "no"},
	} {
		if v := halting(t, c.config).OnChunk(text("a secret")); v.Action != stream.ActionStop || v.Reason != c.want {
			t.Errorf("says %+v; want %q", v, c.want)
		}
	}
}

func TestAConfigThatCannotBeMeantIsRefusedByField(t *testing.T) {
	t.Parallel()
	const kind = "halt_on_pattern"
	many := func(n int, p string) []string { return slices.Repeat([]string{p}, n) }
	for field, configs := range map[string][]builtin.HaltOnPatternConfig{
		"patterns": {{Patterns: many(33, "a")}, {Patterns: many(5, "[ab]{900}")}},
		"patterns[1]": {
			{Patterns: []string{"a", "("}}, {Patterns: []string{"a", ""}}, {Patterns: []string{"a", "b*"}}, {Patterns: []string{"a", `\b`}}, {Patterns: []string{"a", `$`}},
			{Patterns: []string{"a", `(?:x{30}y{30}){70}`}}, {Patterns: []string{"a", strings.Repeat("b", 1025)}},
		},
		"lanes[1]": {{Lanes: []stream.Lane{"text", "words"}}},
		"window":   {{Window: -1}, {Window: 16<<10 + 1}},
		"reason":   {{Reason: strings.Repeat("a", 1001)}, {Reason: "\xff"}, {Reason: "\x00"}},
	} {
		for _, c := range configs {
			refused(t, kind, field)(builtin.HaltOnPattern(c))
		}
	}
	if _, err := builtin.HaltOnPattern(builtin.HaltOnPatternConfig{Patterns: many(32, "ab"), Window: 16 << 10, Reason: strings.Repeat("a", 1000)}); err != nil {
		t.Error(err)
	}
}

func TestWhatIsConfiguredStandsInTheRegistration(t *testing.T) {
	t.Parallel()
	c := builtin.HaltOnPatternConfig{Patterns: []string{"a"}, Lanes: []stream.Lane{stream.LaneText}, Window: 9, Reason: "no"}
	r, err := builtin.HaltOnPattern(c)
	if err != nil {
		t.Fatal(err)
	}
	var back builtin.HaltOnPatternConfig
	if err := json.Unmarshal([]byte(r.Config), &back); err != nil || fmt.Sprint(back) != fmt.Sprint(c) {
		t.Errorf("config %s: %v", r.Config, err)
	}
}

func TestLookingForPatternsCostsNoAllocation(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts for the whole process
	o := halting(t, builtin.HaltOnPatternConfig{})
	c := text("I can’t say that I am an AI. \n")
	o.OnChunk(c)
	if n := testing.AllocsPerRun(100, func() { o.OnChunk(c) }); n != 0 {
		t.Errorf("%v allocations for a chunk", n)
	}
}

func BenchmarkHaltOnPattern(b *testing.B) {
	o := halting(b, builtin.HaltOnPatternConfig{})
	c := text("I said that these are words of an answer ")
	b.SetBytes(int64(len(c.Text)))
	b.ReportAllocs()
	for b.Loop() {
		o.OnChunk(c)
	}
}
