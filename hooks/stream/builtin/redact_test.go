package builtin_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-2ca4966b/agentd/hooks/pattern"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/hooks/stream/builtin"
)

const (
	secretKey = "key-test-0123456789abcdef"
	keyLike   = `key-test-[0-9a-f]{16}`
)

func redacting(t testing.TB, c builtin.RedactConfig) stream.Registration {
	t.Helper()
	r, err := builtin.Redact(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// answer is what goes on of an answer.
type answer struct {
	// texts are by lane and block.
	texts map[string]string
	calls []stream.CallStart
	stop  *stream.Stopped
	// all is everything that went on at any time, and at what was there after each
	// chunk.
	all string
}

func answerOf(t testing.TB, a *stream.Attempt, chunks ...stream.Chunk) (got answer) {
	t.Helper()
	got.texts = map[string]string{}
	for _, c := range chunks {
		out := a.Push(c)
		for _, c := range out.Chunks {
			switch c.Kind {
			case stream.KindToolCall:
				got.calls = append(got.calls, c.Call)
				fallthrough
			case stream.KindDelta:
				got.texts[string(c.Lane)+" "+c.BlockID] += c.Text
				got.all += c.Text + c.Call.Name + c.Call.ProviderID
			default:
			}
		}
		if got.stop = out.Stop; got.stop != nil {
			break
		}
	}
	return got
}

func inLane(lane stream.Lane, text string) stream.Chunk {
	return stream.Chunk{Kind: stream.KindDelta, Lane: lane, BlockID: "1", Text: text}
}

// fixture is the text of a recorded answer, as the provider has split it.
func fixture(t *testing.T) (chunks []string) {
	t.Helper()
	file, err := os.ReadFile("testdata/secret_split.sse")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(file)) {
		var c struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		data, _ := strings.CutPrefix(line, "data: ")
		if json.Unmarshal([]byte(data), &c) == nil && c.Choices[0].Delta.Content != "" {
			chunks = append(chunks, c.Choices[0].Delta.Content)
		}
	}
	return chunks
}

func TestASecretIsNeverThereWhereverItIsSplit(t *testing.T) {
	t.Parallel()
	recorded := fixture(t)
	if strings.Join(recorded, "") != "token is "+secretKey+" bye" {
		t.Fatalf("the fixture is %q", recorded)
	}
	r := redacting(t, builtin.RedactConfig{Patterns: []string{pattern.SetSecrets}, Matching: []string{keyLike}})
	check := func(t testing.TB, lane stream.Lane, pieces []string, want string) {
		t.Helper()
		var chunks []stream.Chunk
		for _, p := range pieces {
			chunks = append(chunks, inLane(lane, p))
		}
		got := answerOf(t, begun(t, r), append(chunks, finish(stream.FinishStop))...)
		if got.stop != nil || got.all != want || strings.Contains(got.all, "key-test-0") {
			t.Fatalf("%s in %q: %q, %+v; want %q", lane, pieces, got.all, got.stop, want)
		}
		for n := range chunks { // an answer that breaks off
			got := answerOf(t, begun(t, r), chunks[:n]...)
			if !strings.HasPrefix(want, got.all) {
				t.Fatalf("%s: %q of %q; want a beginning of %q", lane, got.all, pieces[:n], want)
			}
		}
	}
	asJSON := `{"token":"key\u002dtest-0123456789abcdef \ud83d\ude00","bye":[` + `"` + secretKey + `"]}`
	lanes := map[stream.Lane][2]string{
		stream.LaneText:          {strings.Join(recorded, ""), "token is [redacted] bye"},
		stream.LaneReasoning:     {strings.Join(recorded, "") + " " + secretKey, "token is [redacted] bye [redacted]"},
		stream.LaneToolArguments: {asJSON, `{"token":"[redacted] \ud83d\ude00","bye":["[redacted]"]}`},
	}
	check(t, stream.LaneText, recorded, "token is [redacted] bye")
	for lane, c := range lanes {
		for i := range c[0] {
			check(t, lane, []string{c[0][:i], c[0][i:]}, c[1])
		}
		rapid.Check(t, func(rt *rapid.T) {
			cuts := rapid.SliceOfN(rapid.IntRange(0, len(c[0])), 0, 5).Draw(rt, "cuts")
			slices.Sort(cuts)
			var pieces []string
			from := 0
			for _, at := range append(cuts, len(c[0])) {
				pieces = append(pieces, c[0][from:at])
				from = at
			}
			check(t, lane, pieces, c[1])
		})
	}
}

func TestWordsOfACallAreRedactedToo(t *testing.T) {
	t.Parallel()
	r := redacting(t, builtin.RedactConfig{Matching: []string{keyLike}, With: "gone"})
	open := func(id, name, arguments string) stream.Chunk {
		return stream.Chunk{
			Kind: stream.KindToolCall, Lane: stream.LaneToolArguments, BlockID: id, Text: arguments,
			Call: stream.CallStart{ProviderID: "id-" + name, Name: name},
		}
	}
	args := inLane(stream.LaneToolArguments, `test-0123456789abcdef"}`)
	got := answerOf(t, begun(t, r), open("1", "look", `{"a":"key-`), open("2", secretKey, `{"b":1}`), args, text(secretKey[:8]), finish(stream.FinishToolCalls))
	if want := []stream.CallStart{{ProviderID: "id-look", Name: "look"}, {ProviderID: "id-gone", Name: "gone"}}; !slices.Equal(got.calls, want) {
		t.Errorf("%+v; want %+v", got.calls, want)
	}
	want := map[string]string{"tool_arguments 1": `{"a":"gone"}`, "tool_arguments 2": `{"b":1}`, "text 1": "key-test"}
	if fmt.Sprint(got.texts) != fmt.Sprint(want) || got.stop != nil {
		t.Errorf("%v, %+v; want %v", got.texts, got.stop, want)
	}
	long := redacting(t, builtin.RedactConfig{Matching: []string{`a+b`}, HoldBytes: 10})
	if got := answerOf(t, begun(t, long), open("1", strings.Repeat("a", 20), "")); got.stop == nil || got.all != "" {
		t.Errorf("of a name that is too long: %+v", got)
	}
}

// TestWhatAProviderSaysBesideItsAnswerIsRedacted: of a text that was cut off in the
// middle of what is looked for, that does not stay.
func TestWhatAProviderSaysBesideItsAnswerIsRedacted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"the key key-test-0123456789abcdef is bad":   "the key [redacted] is bad",
		"key-test-0123456789abcdef":                  "[redacted]",
		"key-test-0123":                              "key-test-0123",
		"the key key-test-0123…":                     "the key …",
		"the key key-test-0123456789abcdef is bad …": "the key [redacted] is bad …",
	} {
		set, err := stream.NewSet(redacting(t, builtin.RedactConfig{Matching: []string{`key-test-[0-9a-f]{16}`}}))
		if err != nil {
			t.Fatal(err)
		}
		a := set.Begin(stream.Call{})
		if got, ok := a.Clean(text); !ok || got != want {
			t.Errorf("%s: %q, %t", text, got, ok)
		}
		out := a.Push(stream.Chunk{Kind: stream.KindFinish, Finish: stream.Finish{Reason: stream.FinishUnknown, Raw: text}})
		if got := out.Chunks[0].Finish.Raw; got != want {
			t.Errorf("%s: ends with %q", text, got)
		}
	}
	long := redacting(t, builtin.RedactConfig{Matching: []string{`<[^>]*>`}})
	set, err := stream.NewSet(long)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := set.Begin(stream.Call{}).Clean("<" + strings.Repeat("x", pattern.MaxHold)); ok || got != "" {
		t.Errorf("%d bytes are kept of what cannot be redacted", len(got))
	}
}

func TestVerdictsOfRedacting(t *testing.T) {
	t.Parallel()
	o := redacting(t, builtin.RedactConfig{Matching: []string{keyLike, `x+.?y`}}).New(stream.Call{})
	for _, c := range []struct {
		in     stream.Chunk
		action stream.Action
		text   string
	}{
		{text("nothing. "), "", ""},
		{text("ke"), stream.ActionHold, ""},
		{text("y-test-0123456789abcde"), stream.ActionHold, ""},
		{text("f and"), stream.ActionAmend, "[redacted] and"},
		{text(""), "", ""},
		{text("xxy"), stream.ActionHold, ""},
		{text("y"), stream.ActionAmend, "[redacted]"},
		{text("y key"), stream.ActionAmend, "y "},
		{stream.Chunk{Kind: stream.KindEnd, Lane: stream.LaneReasoning, BlockID: "9"}, "", ""},
		{textEnd(), stream.ActionAmend, "key"},
		{textEnd(), "", ""},
		{finish(stream.FinishStop), "", ""},
	} {
		v := o.OnChunk(c.in)
		if v.Action != c.action || v.Chunk.Text != c.text {
			t.Errorf("%q: %s %q; want %s %q", c.in.Text, v.Action, v.Chunk.Text, c.action, c.text)
		}
	}
	o.OnEnd(stream.Summary{})
}

// TestHeldTextIsAlwaysOwed: whoever says Hold has to give something back.
func TestHeldTextIsAlwaysOwed(t *testing.T) {
	t.Parallel()
	words := []string{"a", "b", "ab", "c", " ", `"`, "{", "}", ":", `\u0061`, "\xe2", "1", "\n"}
	patterns := []string{`ab+`, `b.*c`, `a(?:.*b)?`, `c+ab`, `[^a]b`, `1`}
	rapid.Check(t, func(t *rapid.T) {
		c := builtin.RedactConfig{Matching: rapid.SliceOfN(rapid.SampledFrom(patterns), 1, 3).Draw(t, "patterns")}
		r, err := builtin.Redact(c)
		if err != nil {
			t.Fatal(err)
		}
		set, err := stream.NewSet(r)
		if err != nil {
			t.Fatal(err)
		}
		a := set.Begin(stream.Call{Class: stream.ClassMain})
		lane := rapid.SampledFrom([]stream.Lane{stream.LaneText, stream.LaneToolArguments}).Draw(t, "lane")
		for _, w := range rapid.SliceOf(rapid.SampledFrom(words)).Draw(t, "text") {
			if out := a.Push(inLane(lane, w)); out.Stop != nil {
				t.Fatalf("%+v", out.Stop)
			}
		}
		if out := a.Push(finish(stream.FinishStop)); out.Stop != nil {
			t.Fatalf("%+v", out.Stop)
		}
		if f := a.End(stream.EndFinished)[0].Failure; f != nil {
			t.Fatalf("%+v", f)
		}
	})
}

func TestWhatCannotBeRedactedStopsTheAnswer(t *testing.T) {
	t.Parallel()
	r := redacting(t, builtin.RedactConfig{Matching: []string{`key-test-[0-9a-f]+!`}, HoldBytes: 100})
	r.OnStop = stream.StopFail
	long := "key-test-" + strings.Repeat("0", 100)
	for name, c := range map[string]struct {
		chunks []stream.Chunk
		reason string
	}{
		"at once":       {[]stream.Chunk{text("so: " + long)}, "longer than 100 bytes"},
		"piece by":      {[]stream.Chunk{text("so: "), text(long[:60]), text(long[60:]), text("!")}, "longer than 100 bytes"},
		"in arguments":  {[]stream.Chunk{inLane(stream.LaneToolArguments, `{"a":"`+long+`"}`)}, "longer than 100 bytes"},
		"no JSON":       {[]stream.Chunk{inLane(stream.LaneToolArguments, `{"a":"`+strings.Repeat(" ", 70_000)), inLane(stream.LaneToolArguments, "\n")}, "no JSON and longer than 65536 bytes"},
		"a cut off one": {[]stream.Chunk{inLane(stream.LaneToolArguments, `{"a":"`+strings.Repeat(" ", 70_000)), finish(stream.FinishLength)}, "no JSON and longer than 65536 bytes"},
	} {
		a := begun(t, r)
		got := answerOf(t, a, c.chunks...)
		if got.stop == nil || got.stop.Failed || got.stop.Policy != stream.StopFail || !strings.Contains(got.stop.Reason, c.reason) {
			t.Errorf("%s: %+v", name, got.stop)
		}
		if strings.Contains(got.all, "key-test-0") {
			t.Errorf("%s: %q", name, got.all)
		}
	}
}

// holder holds what it is handed and panics with the third chunk.
type holder struct{ n int }

func (h *holder) OnChunk(stream.Chunk) stream.Verdict {
	if h.n++; h.n == 3 {
		panic(secretKey)
	}
	return stream.Hold()
}

func (*holder) OnEnd(stream.Summary) {}

func TestARedactorThatPanicsWhileItHoldsStopsTheAnswer(t *testing.T) {
	t.Parallel()
	r := redacting(t, builtin.RedactConfig{Matching: []string{"a"}})
	r.New = func(stream.Call) stream.Observer { return &holder{} }
	a := begun(t, r)
	got := answerOf(t, a, text("key-test-0"), text("123456789"), text("abcdef"))
	if got.stop == nil || !got.stop.Failed || got.all != "" || strings.Contains(got.stop.Reason, "key") {
		t.Errorf("%+v", got)
	}
	if f := a.End(stream.EndStopped)[0].Failure; f == nil || strings.Contains(f.Text, "key") {
		t.Errorf("%+v", f)
	}
}

func TestMetricsBehindRedactCountWhatIsLeft(t *testing.T) {
	t.Parallel()
	a := begun(t, redacting(t, builtin.RedactConfig{Matching: []string{keyLike}, With: "*"}), measuring(t, builtin.MetricsConfig{}))
	a.Push(text("a " + secretKey[:9]))
	a.Push(text(secretKey[9:]))
	out := a.Push(finish(stream.FinishStop))
	var m builtin.MetricsEnvelope
	if len(out.Emissions) != 1 || json.Unmarshal(out.Emissions[0].Envelope, &m) != nil || m.TextBytes != 3 {
		t.Errorf("%+v", out.Emissions)
	}
}

func TestRedactRefusesAConfigThatCannotBeMeant(t *testing.T) {
	t.Parallel()
	for field, c := range map[string]builtin.RedactConfig{
		"patterns":    {},
		"patterns[1]": {Patterns: []string{"secrets", "secret"}},
		"matching[0]": {Patterns: []string{"secrets"}, Matching: []string{"a*"}},
		"matching[1]": {Matching: []string{"a", "("}},
		"with":        {Matching: []string{"a"}, With: strings.Repeat("x", 257)},
		"hold_bytes":  {Matching: []string{"a"}, HoldBytes: pattern.MaxHold + 1},
		"lanes[1]":    {Matching: []string{"a"}, Lanes: []stream.Lane{"text", "words"}},
		"":            {Matching: make([]string, 33)},
	} {
		refused(t, "redact", field)(builtin.Redact(c))
	}
	r := redacting(t, builtin.RedactConfig{Patterns: []string{"email"}, HoldBytes: 9})
	if !r.Redacting || r.OnFailure != stream.FailStop || r.Config != `{"patterns":["email"],"hold_bytes":9}` {
		t.Errorf("%+v", r)
	}
}

func TestOnlyTheConfiguredLanesAreRedacted(t *testing.T) {
	t.Parallel()
	call := stream.Chunk{Kind: stream.KindToolCall, BlockID: "3", Text: `"` + secretKey + `"`, Call: stream.CallStart{Name: secretKey}}
	for name, c := range map[string]struct {
		lanes []stream.Lane
		want  string
		name  string
	}{
		"all":       {nil, `[redacted]|[redacted]|"[redacted]"`, "[redacted]"},
		"text":      {[]stream.Lane{stream.LaneText}, `[redacted]|` + secretKey + `|"` + secretKey + `"`, secretKey},
		"arguments": {[]stream.Lane{stream.LaneToolArguments}, secretKey + `|` + secretKey + `|"[redacted]"`, "[redacted]"},
		"two":       {[]stream.Lane{stream.LaneReasoning, stream.LaneText}, `[redacted]|[redacted]|"` + secretKey + `"`, secretKey},
	} {
		r := redacting(t, builtin.RedactConfig{Matching: []string{keyLike}, Lanes: c.lanes})
		got := answerOf(t, begun(t, r), text(secretKey), inLane(stream.LaneReasoning, secretKey), call, finish(stream.FinishToolCalls))
		said := got.texts["text 1"] + "|" + got.texts["reasoning 1"] + "|" + got.texts["tool_arguments 3"]
		if said != c.want || len(got.calls) != 1 || got.calls[0].Name != c.name || got.stop != nil {
			t.Errorf("%s: %s, %+v", name, said, got)
		}
		// What a provider says of errors is of no lane.
		o, ok := r.New(stream.Call{}).(stream.Cleaner)
		if clean, kept := o.Clean("refused: " + secretKey); !ok || !kept || clean != "refused: [redacted]" {
			t.Errorf("%s: of an error %q is kept", name, clean)
		}
	}
}

func BenchmarkRedact(b *testing.B) {
	r := redacting(b, builtin.RedactConfig{Patterns: []string{"email", "credit_card", "api_key", "private_key", "url_login", "jwt"}})
	o := r.New(stream.Call{})
	chunks := make([]stream.Chunk, 0, 50)
	for _, piece := range cut(strings.Repeat("The quick brown fox, who has been here since 1987, jumps over 12 lazy dogs. ", 13), 20) {
		chunks = append(chunks, text(piece))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if v := o.OnChunk(chunks[i%len(chunks)]); v.Action == stream.ActionStop {
			b.Fatal(v.Reason)
		}
	}
}
