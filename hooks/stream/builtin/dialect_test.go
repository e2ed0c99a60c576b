package builtin_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/hooks/stream/builtin"
)

// normalizing is a set of the one observer.
func normalizing(t testing.TB, tools ...string) *stream.Set {
	t.Helper()
	reg, err := builtin.NormalizeToolDialect(builtin.NormalizeToolDialectConfig{Tools: tools})
	if err != nil {
		t.Fatal(err)
	}
	reg.ChunkTime, reg.AttemptTime = -1, -1 // a loaded machine is no failure
	set, err := stream.NewSet(reg)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func textIn(block, s string) stream.Chunk {
	return stream.Chunk{Kind: stream.KindDelta, Lane: stream.LaneText, BlockID: block, Text: s}
}

func finish(reason stream.FinishReason) stream.Chunk {
	return stream.Chunk{Kind: stream.KindFinish, Finish: stream.Finish{Reason: reason}}
}

// played is what comes of chunks, a text, reasoning or call after the other as they
// were opened, such as `0: Hello`, `call look {"id":7}` and `finish stop`.
func played(t rapid.TB, set *stream.Set, chunks ...stream.Chunk) []string {
	t.Helper()
	type block struct{ head, text string }
	var blocks []*block
	byID := map[string]*block{}
	at := func(key, head string) *block {
		if byID[key] == nil {
			byID[key] = &block{head: head}
			blocks = append(blocks, byID[key])
		}
		return byID[key]
	}
	a := set.Begin(stream.Call{Class: stream.ClassMain, Attempt: 1})
	for _, c := range chunks {
		out := a.Push(c)
		if out.Stop != nil {
			t.Fatalf("it is stopped at %+v: %s", c, out.Stop.Reason)
		}
		for _, c := range out.Chunks {
			switch {
			case c.Kind == stream.KindFinish:
				at("finish", "finish ").text = string(c.Finish.Reason)
			case c.Kind == stream.KindToolCall:
				at("call "+c.BlockID, "call "+c.Call.Name+" ").text += c.Text
			case c.Lane == stream.LaneToolArguments:
				at("call "+c.BlockID, "no call ").text += c.Text
			case c.Text != "":
				at(string(c.Lane)+c.BlockID, strings.TrimPrefix(c.BlockID, "normalize-tool-dialect:")+": ").text += c.Text
			}
		}
	}
	for _, r := range a.End(stream.EndFinished) {
		if r.Failure != nil {
			t.Fatalf("the observer failed: %+v", r.Failure)
		}
	}
	var got []string
	for _, b := range blocks {
		got = append(got, b.head+b.text)
	}
	return got
}

// pieces cuts text at places.
func pieces(text string, at ...int) (chunks []stream.Chunk) {
	from := 0
	for _, to := range append(at, len(text)) {
		chunks = append(chunks, textIn("0", text[from:to]))
		from = to
	}
	return append(chunks, finish(stream.FinishStop))
}

// same checks that text comes to want in one piece, byte for byte, and in two
// pieces wherever they are cut.
func same(t *testing.T, set *stream.Set, text string, want ...string) {
	t.Helper()
	cuts := [][]int{nil, nil}
	for i := range len(text) {
		cuts[1] = append(cuts[1], i)
		cuts = append(cuts, []int{i})
	}
	for _, at := range cuts {
		if got := played(t, set, pieces(text, at...)...); !slices.Equal(got, want) {
			t.Fatalf("%q cut at %v comes to\n%q, want\n%q", text, at, got, want)
		}
	}
}

func TestCallsInATextBecomeCalls(t *testing.T) {
	t.Parallel()
	set := normalizing(t)
	const done = "finish tool_calls"
	for text, want := range map[string][]string{
		`<tool name="look">{"id": 7}</tool>`:                             {`call look {"id": 7}`},
		`<tool name='look'>{}</tool>`:                                    {`call look {}`},
		"<tool \n name\t= \"a/b.c-d:e_F9\" >\r\n{} \n</tool >":           {`call a/b.c-d:e_F9 {}`},
		`{0:"look",1:{"id": 7}}`:                                         {`call look {"id": 7}`},
		"{ 0 : 'look' ,\n 1 :\t{ } }":                                    {`call look { }`},
		`Let me see. <tool name="look">{}</tool> There.`:                 {`0: Let me see. `, `call look {}`, `~2:  There.`},
		`<tool name="a">{}</tool><tool name="b">{}</tool>`:               {`call a {}`, `call b {}`},
		`<tool name="a">{}</tool> {0:"b",1:{}}ü`:                         {`call a {}`, `~2:  `, `call b {}`, `~4: ü`},
		`<tool name="a">{"x":"}</tool>\"{[","y":{"z":[{}]}}</tool>`:      {`call a {"x":"}</tool>\"{[","y":{"z":[{}]}}`},
		`{0:"a",1:{"x":"\\","y":"\u00e9\n"}}`:                            {`call a {"x":"\\","y":"\u00e9\n"}`},
		`<tool name="a">{"x":"ü€😀"}</tool>`:                              {`call a {"x":"ü€😀"}`},
		`<tool name="a">{"x":1,"x":2}</tool>`:                            {`call a {"x":1,"x":2}`},
		`<tool name="a">{"n":[-0.5e+3,0,10,1E9,true,false,null]}</tool>`: {`call a {"n":[-0.5e+3,0,10,1E9,true,false,null]}`},
		`<<tool name="a">{}</tool>>`:                                     {`0: <`, `call a {}`, `~2: >`},
		`[{0:"a",1:{}},{0:"b",1:{}}]`:                                    {`0: [`, `call a {}`, `~2: ,`, `call b {}`, `~4: ]`},
		// What did not become a call ends where the next one begins.
		`<tool <tool name="a">{}</tool>`:                {`0: <tool `, `call a {}`},
		`<tool name="x">{} <tool name="a">{}</tool>`:    {`0: <tool name="x">{} `, `call a {}`},
		`<tool name="x">{bad} <tool name="a">{}</tool>`: {`0: <tool name="x">{bad} `, `call a {}`},
		`{{0:"a",1:{}}`:                               {`0: {`, `call a {}`},
		`{0:"x",1:{}<tool name="a">{}</tool>`:         {`0: {0:"x",1:{}`, `call a {}`},
		"Code `x` and ``` <tool name=\"a\">{}</tool>": {"0: Code `x` and ``` ", `call a {}`},
		"```go\nx\n```\n<tool name=\"a\">{}</tool>":   {"0: ```go\nx\n```\n", `call a {}`},
		"~~~\n```\n~~~  \n<tool name=\"a\">{}</tool>": {"0: ~~~\n```\n~~~  \n", `call a {}`},
		"```x``` <tool name=\"a\">{}</tool>":          {"0: ```x``` ", `call a {}`},
		"    ```\n<tool name=\"a\">{}</tool>\n```\n":  {"0:     ```\n", `call a {}`, "~2: \n```\n"},
	} {
		same(t, set, text, append(want, done)...)
	}
}

func TestWhatIsNoCallStaysText(t *testing.T) {
	t.Parallel()
	set := normalizing(t)
	for _, text := range []string{
		"", "Hello.", "<", "{", "<tool", "a < b {c} <tools>", "Use <tool name=\"x\"> to look.", "</tool>", `<tool name="x">`, `<tool name="x">{}`, `<tool name="x">{}</tool`,
		`<tool>{}</tool>`, `<tool name="">{}</tool>`, `<tool name=x>{}</tool>`, `<tool name="x' >{}</tool>`, `<toolname="x">{}</tool>`, `<TOOL name="x">{}</TOOL>`,
		`<tool name="x" name="y">{}</tool>`, `<tool name="x"/>`, `<tool name="x"></tool>`, `<tool name="a b">{}</tool>`, `<tool name="a&quot;">{}</tool>`,
		`<tool name="x">{}</tools>`, `<tool name="x">{}</function>`, `<tool name="x">{} and so on</tool>`, `<tool name="x">[]</tool>`, `<tool name="x">"{}"</tool>`,
		`<tool name="x">{"a":}</tool>`, `<tool name="x">{"a":1,}</tool>`, `<tool name="x">{a:1}</tool>`, `<tool name="x">{'a':1}</tool>`, `<tool name="x">{"a":01}</tool>`,
		`<tool name="x">{"a":[1}</tool>`, `<tool name="x">{"a":tru}</tool>`, `<tool name="x">{"a":"\x"}</tool>`, `<tool name="x">{"a":"\u00g0"}</tool>`,
		"<tool name=\"x\">{\"a\":\"\n\"}</tool>", "<tool name=\"x\">{\"a\":\"\xff\"}</tool>", `<tool name="x">{"a":1 2}</tool>`, `<tool name="x">{"a":-}</tool>`,
		`<tool name="x">{"a":1.}</tool>`, `<tool name="x">{"a":1e}</tool>`, `<tool name="x">{"a":.5}</tool>`, `<tool name="x">{}}</tool>`,
		`{0:"x"}`, `{0:"x",1:[]}`, `{0:"x",1:{},}`, `{0:x,1:{}}`, `{1:"x",0:{}}`, `{0:"x",1:{},2:{}}`, `{"0":"x","1":{}}`, `{0:"x",1:{0:"y",1:{}}}`, `{0:"x";1:{}}`,
		"Write `<tool name=\"x\">{}</tool>` for that.", "`{0:\"x\",1:{}}`",
		"```\n<tool name=\"x\">{}</tool>\n```", "Like this:\n\n```xml\n<tool name=\"x\">{}</tool>\n```\n", "   ````\n{0:\"x\",1:{}}\n```\n{0:\"x\",1:{}}\n", "~~~ `a`\n{0:\"x\",1:{}}",
		"``` {0:\"x\",1:{}}\n", "```\n``` {0:\"x\",1:{}}\n{0:\"x\",1:{}}", "```\r\n{0:\"x\",1:{}}\r\n``` \r\n",
		strings.Repeat("ü", 300) + "\xff\xc3",
	} {
		want := []string{"finish stop"}
		if text != "" {
			want = []string{"0: " + text, "finish stop"}
		}
		same(t, set, text, want...)
	}
}

func TestACallThatIsTooLongOrTooDeepOrOneTooManyStaysText(t *testing.T) {
	t.Parallel()
	set := normalizing(t)
	call := func(n int) string {
		const around = `<tool name="a">{"x":""}</tool>`
		return `<tool name="a">{"x":"` + strings.Repeat("y", n-len(around)) + `"}</tool>`
	}
	const most = 64 << 10
	for _, at := range [][]int{nil, {1}, {most - 1}, {100, 200, 50_000}} {
		if got := played(t, set, pieces(call(most)+"!", at...)...); len(got) != 3 || !strings.HasPrefix(got[0], "call a {") || got[1] != "~2: !" {
			t.Errorf("64 KiB cut at %v come to %.100q", at, got)
		}
		long := call(most+1) + " " + call(50)
		if got := played(t, set, pieces(long, at...)...); len(got) != 3 || got[0] != "0: "+long[:most+2] || !strings.HasPrefix(got[1], "call a {") {
			t.Errorf("a byte more cut at %v comes to %.100q", at, got)
		}
	}
	deep := func(n int) string {
		return `{0:"a",1:` + strings.Repeat(`{"x":`, n-1) + "{}" + strings.Repeat("}", n)
	}
	if got := played(t, set, pieces(deep(1_000))...); len(got) != 2 || !strings.HasPrefix(got[0], "call a {") {
		t.Errorf("1,000 levels come to %.100q", got)
	}
	if got := played(t, set, pieces(deep(1_001))...); got[0] != "0: "+deep(1_001) {
		t.Errorf("1,001 levels come to %.100q", got)
	}
	name := strings.Repeat("n", 128)
	if got := played(t, set, pieces(`{0:"`+name+`",1:{}}`)...); got[0] != "call "+name+" {}" {
		t.Errorf("a name of 128 bytes comes to %q", got)
	}
	if got := played(t, set, pieces(`{0:"`+name+`n",1:{}}`)...); !strings.HasPrefix(got[0], "0: {0:") {
		t.Errorf("a name of 129 bytes comes to %q", got)
	}
	var want []string
	for range 64 {
		want = append(want, "call a {}")
	}
	const one = `{0:"a",1:{}}`
	want = append(want, "~65: "+one+one+".", "finish tool_calls")
	if got := played(t, set, pieces(strings.Repeat(one, 66)+".")...); !slices.Equal(got, want) {
		t.Errorf("66 calls come to %q", got)
	}
}

func TestOnlyCallsOfToolsThatAreNamedBecomeCalls(t *testing.T) {
	t.Parallel()
	set := normalizing(t, "memory_*", "look")
	same(t, set, `{0:"lock",1:{}}{0:"memory_get",1:{}}<tool name="look">{}</tool><tool name="Look">{}</tool>`,
		`0: {0:"lock",1:{}}`, `call memory_get {}`, `call look {}`, `~3: <tool name="Look">{}</tool>`, "finish tool_calls")
}

func TestOtherLanesAndBlocksStayAsTheyAre(t *testing.T) {
	t.Parallel()
	set := normalizing(t)
	const call = `<tool name="a">{}</tool>`
	reasoning := stream.Chunk{Kind: stream.KindDelta, Lane: stream.LaneReasoning, BlockID: "r", Text: call}
	native := stream.Chunk{Kind: stream.KindToolCall, BlockID: "n", Call: stream.CallStart{Name: "b", ProviderID: "p"}, Text: "{"}
	arguments := stream.Chunk{Kind: stream.KindDelta, Lane: stream.LaneToolArguments, BlockID: "n", Text: `"x":"` + call + `"}`}
	got := played(t, set, reasoning, textIn("0", "Hi <to"), native, arguments, textIn("1", "ol "+call), textIn("0", "ol>"), finish(stream.FinishUnknown))
	want := []string{"r: " + call, "0: Hi <tool>", `call b {"x":"` + call + `"}`, "1: ol ", "call a {}", "finish tool_calls"}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
	// Texts that wait for calls before them stay in their order.
	got = played(t, set, textIn("0", `{0:"a",1:{}}{0:"b",1:{}}`), textIn("1", "C"), textIn("2", "D"), textIn("1", "E"), finish(stream.FinishStop))
	if want := []string{"call a {}", "call b {}", "~3: CE", "~4: D", "finish tool_calls"}; !slices.Equal(got, want) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
	// What goes on with a block of the provider's waits for a chunk of that.
	got = played(t, set, textIn("0", `A`), textIn("1", `B{0:"a",1:{}}{0:"b",1:{}}`), textIn("0", "C"), textIn("1", "D"), textIn("1", "E"), finish(stream.FinishStop))
	if want := []string{"0: AC", "1: B", "call a {}", "call b {}", "~3: DE", "finish tool_calls"}; !slices.Equal(got, want) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
	// A call is not put together from two texts, and what a text leaves undone
	// does not wait for the other.
	got = played(t, set, textIn("0", `{0:"a",1:{}`), textIn("1", "}"), finish(stream.FinishStop))
	if want := []string{`1: }`, `0: {0:"a",1:{}`, "finish stop"}; !slices.Equal(got, want) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

func TestAFinishThatSaysMoreThanThatItIsDoneIsKept(t *testing.T) {
	t.Parallel()
	for reason, want := range map[stream.FinishReason]stream.FinishReason{
		stream.FinishStop: stream.FinishToolCalls, stream.FinishUnknown: stream.FinishToolCalls, stream.FinishToolCalls: stream.FinishToolCalls,
		stream.FinishLength: stream.FinishLength, stream.FinishContentFilter: stream.FinishContentFilter,
	} {
		got := played(t, normalizing(t), textIn("0", `{0:"a",1:{}}`), finish(reason))
		if got[len(got)-1] != "finish "+string(want) {
			t.Errorf("%s: %q", reason, got)
		}
	}
}

func TestACallGoesOnAsSoonAsItIsWhole(t *testing.T) {
	t.Parallel()
	a := normalizing(t).Begin(stream.Call{Class: stream.ClassMain, Attempt: 1})
	var got []string
	for _, text := range []string{"One <t", "d>two</td> <to", `ol name="a">{"x":`, `1}</tool>`, "three ", "four"} {
		for _, c := range a.Push(textIn("0", text)).Chunks {
			got = append(got, fmt.Sprintf("%s %s%s", strings.TrimPrefix(c.BlockID, "normalize-tool-dialect:"), c.Call.Name, c.Text))
		}
	}
	want := []string{"0 One ", "0 <td>two</td> ", "0 ", `~1 a{"x":1}`, "~2 three ", "~2 four"}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

// callish are texts near to calls.
var callish = []string{
	`<tool name="a">`, `<tool name='b' >`, `<tool `, "</tool>", "<", ">", "{", "}", `{0:"c",1:`, `{ 0 :'d' , 1 : `, `{}`, `{"x":`, `{"y":[1,2,{}]}`, `"z`, `"`, `\"`, `\u00e9`, ":", ",", "1", "-0.5e3", "true",
	"`", "```", "~~~", "\n", "  ", "\t", "ü", "😀", "\xff", "text", "0", "name", "[", "]",
}

func TestHowATextIsCutChangesNothing(t *testing.T) {
	t.Parallel()
	set := normalizing(t)
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(callish), 0, 40).Draw(t, "text"), "")
		cuts := rapid.SliceOfN(rapid.IntRange(0, len(text)), 0, 8).Draw(t, "cuts")
		slices.Sort(cuts)
		checkCut(t, set, text, cuts)
	})
}

func FuzzNormalizeToolDialect(f *testing.F) {
	f.Add(`Now <tool name="a">{"x":"}"}</tool> and {0:'b',1:{}} then`, 3, 40)
	f.Add("```\n{0:\"b\",1:{}}\n```\n{0:\"b\",1:{}}", 5, 6)
	f.Add(`<tool name="a">{"a":[-1.5e+9,"\u12aF"]} <tool`, 20, 30)
	set := normalizing(f)
	f.Fuzz(func(t *testing.T, text string, a, b int) {
		cuts := []int{int(uint(a) % uint(len(text)+1)), int(uint(b) % uint(len(text)+1))}
		slices.Sort(cuts)
		checkCut(t, set, text, cuts)
	})
}

func FuzzArgumentsAreOneObject(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":[1,-0.5e+3,{"b":"\u00e9\"}"}],"c":null}`, `{"a":01}`, `{"a":"\x"}`, `[]`, `{"a":1}}`} {
		f.Add(s)
	}
	set := normalizing(f)
	f.Fuzz(func(t *testing.T, args string) { checkArguments(t, set, args) })
}

func TestArgumentsAreWhatJSONTakesForAnObject(t *testing.T) {
	t.Parallel()
	set := normalizing(t)
	rapid.Check(t, func(t *rapid.T) {
		checkArguments(t, set, strings.Join(rapid.SliceOfN(rapid.SampledFrom(callish), 0, 12).Draw(t, "arguments"), ""))
	})
}

// checkArguments compares with what encoding/json makes of them.
func checkArguments(t rapid.TB, set *stream.Set, args string) {
	t.Helper()
	inner := strings.Trim(args, " \t\r\n")
	want := json.Valid([]byte(inner)) && strings.HasPrefix(inner, "{") && utf8.ValidString(inner) && len(args) < 60_000
	got := played(t, set, pieces(`{0:"a",1:`+args+`}`)...)[0]
	if is := got == "call a "+inner; is != want {
		t.Fatalf("%q comes to %q; as an object it is taken: %v", args, got, want)
	}
}

// checkCut checks that a text comes to the same however it is cut, that each of
// its calls has arguments which are an object, and that nothing else of it is
// lost.
func checkCut(t rapid.TB, set *stream.Set, text string, cuts []int) {
	t.Helper()
	whole := played(t, set, pieces(text)...)
	if got := played(t, set, pieces(text, cuts...)...); !slices.Equal(got, whole) {
		t.Fatalf("%q cut at %v comes to\n%q, whole to\n%q", text, cuts, got, whole)
	}
	rest := text
	for _, one := range whole[:len(whole)-1] {
		what, is, _ := strings.Cut(one, " ")
		if what != "call" {
			if !strings.HasPrefix(rest, is) {
				t.Fatalf("%q: %q is not what follows in %q", text, is, whole)
			}
			rest = rest[len(is):]
			continue
		}
		name, args, _ := strings.Cut(is, " ")
		var object map[string]any
		if err := json.Unmarshal([]byte(args), &object); err != nil {
			t.Fatalf("%q: the arguments %q: %v", text, args, err)
		}
		at := strings.Index(rest, args)
		if at < 0 || !strings.Contains(rest[:at], name) || rest[0] != '<' && rest[0] != '{' {
			t.Fatalf("%q: the call %q is not what follows", text, one)
		}
		end := strings.IndexByte(rest[at+len(args):], map[byte]byte{'<': '>', '{': '}'}[rest[0]])
		rest = rest[at+len(args)+end+1:]
	}
	if rest != "" {
		t.Fatalf("%q: %q is lost in %q", text, rest, whole)
	}
}
