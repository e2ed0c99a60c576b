package openaitest_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/seed-2ca4966b/agentd/loop/model/openai/openaitest"
)

// digests are those of the recorded bytes: an editor that touches them would
// turn a hard case into an easy one.
var digests = map[string]string{
	"colliding_index.sse":      "5c927ae7c91890ee7ac2b44a30c0eb2010b2cf08a1f80f18cc845044d6c4ab13",
	"complete_then_length.sse": "67f77b434cad3a214664c95c35024c8a2338ea0f161dcefab6788e6b0567ed0a",
	"done_no_finish.sse":       "cac589413994871fb2faa712a607cd52b1f62d8cbebd8eec3b788eb5303d78ea",
	"empty_arguments.sse":      "ca96d63a344fc2d35c98066517852f63478722157bd975703b08ae08e791bf29",
	"empty_choices.sse":        "5c0c841d340bbe3ee48eda512b5cef3134fe355ace12fa7ce2ef20bc5ea9e4d8",
	"eof_no_finish.sse":        "a6b58987f4f077913f20a5a2181db89a583a142b9063f9d8fb0641df1286303e",
	"error_first.sse":          "a7ee8a6dcc5a553141edaf4bb049999f51fea05094ba7c7ed087f95d4289cbc0",
	"error_mid.sse":            "6815a4a0ec78ce9e8b1953d2dbbfb8cfa24577c57f61f60511f36eff062dd90d",
	"finish_and_done.sse":      "b5f4efd33bcf8c9205463fca0ced4ce8a13ce82384f61f4806aa05b328753554",
	"finish_no_done.sse":       "bba6ebde2d56d815bb258c3fce383d3635944b896611dc1386e540caa91d83a5",
	"history.json":             "c8676fd22300c9baa79f1b39aab78fea7632122493ef5e3ad92cbf9862944a0e",
	"keepalive.sse":            "767091e6bf88ae1d1a089e3e8e3b09c6d5e3696dcc853dd26c87ad7739464640",
	"length_cut.sse":           "c6030b15b739b5039f33dff9e9ccfe110d75a05287f0d43ab3767a98770744b9",
	"misreported_cut.sse":      "13cd1ef68064aff29228779da41082b6281ddfefc659513e2d76240280bcbfa8",
	"no_index_one_chunk.sse":   "0fdbc14f7fc932277ea3ae311d1a734809daa0f155c0a8878f66ee9e2a1680f4",
	"no_index_sequential.sse":  "4be428fd98589c0838077bdf5ac39763e75abe6bfb07eabb5a99c4b36dd37605",
	"repairable_cut.sse":       "ea4a1a6f94d0897924d752f1cdbc95ae129bef52f2240e95ac154038f7a44ba8",
	"stall.sse":                "95e897e77a0028c6270a509de5427dfe2b6ac3bd388508ff0fa794d236e25c0c",
	"utf8.cuts.json":           "650e3db068d18433593505271c32deb015633128ad4ea9c1fc88e70e77de925f",
	"utf8.sse":                 "bbf7fbd729e4ce024097b29bf7eea161bca3392bc1e5c03a0624a2a175d49a59",
	"long_line.sse":            "a601337f3385df8561d7c6b70a7bab9aedef561004a6638896b552d17e62d39d",
}

func TestFixturesAreWhatWasRecorded(t *testing.T) {
	t.Parallel()
	for file, want := range digests {
		name, stream := strings.CutSuffix(file, ".sse")
		var data []byte
		var err error
		if stream {
			data = openaitest.Fixture(name).Body
		} else if data, err = os.ReadFile("testdata/" + file); err != nil {
			t.Fatal(err)
		}
		if got := sha256.Sum256(data); hex.EncodeToString(got[:]) != want {
			t.Errorf("%s has changed", file)
		}
		if stream && name != "long_line" && !slices.Contains(openaitest.Fixtures(), name) {
			t.Errorf("%s is not in the list", name)
		}
	}
	files, err := os.ReadDir("testdata")
	if err != nil || len(files)+1 != len(digests) {
		t.Errorf("%d files and %d digests, %v", len(files), len(digests), err)
	}
}

func TestTheCutsAreInsideOfCharacters(t *testing.T) {
	t.Parallel()
	offsets, text := openaitest.UTF8Cuts()
	body := openaitest.FixtureBytes("utf8")
	inside := 0
	for _, at := range offsets {
		if !utf8.RuneStart(body[at]) {
			inside++
		}
	}
	if inside < 3 || text != "Preis 3€ 東京 🧭 e\u0301" {
		t.Errorf("%d of %d cuts are inside of a character of %q", inside, len(offsets), text)
	}
}

func TestTheImportedHistoryIsOdd(t *testing.T) {
	t.Parallel()
	var roles []string
	for _, m := range openaitest.ImportedHistory() {
		roles = append(roles, m.Role)
		for _, c := range m.ToolCalls {
			if c.ID != "t1" || c.Name != "get_time" || string(c.Args) != "{}" {
				t.Errorf("call %+v", c)
			}
		}
	}
	if got := strings.Join(roles, " "); got != "user assistant tool assistant user user assistant user user" {
		t.Errorf("roles %s", got)
	}
}

func TestWhatDoesNotExistPanics(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(){
		"Fixture": func() { openaitest.Fixture("x") },
		"Quirk":   func() { openaitest.Script{}.Answer("x") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

// TestEveryQuirkBends holds that a quirk changes the answer, and leaves JSON in
// every frame where it is not about the arguments.
func TestEveryQuirkBends(t *testing.T) {
	t.Parallel()
	script := openaitest.Script{
		Reasoning: "hm", Text: []string{"Hel", "lo"},
		Calls: []openaitest.Call{{ID: "a", Name: "f", Arguments: `{"city":"Paris"}`}, {ID: "b", Name: "g", Arguments: `{"city":"Rome"}`}},
	}
	straight := script.Answer()
	seen := map[string]string{}
	for _, q := range openaitest.Quirks() {
		bent := script.Answer(q)
		key := string(bent.Body) + openaitestHeader(bent)
		if key == string(straight.Body)+openaitestHeader(straight) && bent.End == straight.End {
			t.Errorf("%s bends nothing", q)
		}
		if other := seen[key]; other != "" && q != "truncate" {
			t.Errorf("%s is %s", q, other)
		}
		seen[key] = q
		if openaitest.Meaning(q) == "" || openaitest.Meaning("no such") != "" {
			t.Errorf("%s means %q", q, openaitest.Meaning(q))
		}
		if bent.Status != 0 {
			continue
		}
		for line := range strings.Lines(string(bent.Body)) {
			data, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "data:")
			if data = strings.TrimSpace(data); ok && data != "" && data != "[DONE]" && !json.Valid([]byte(data)) {
				t.Errorf("%s: %s", q, data)
			}
		}
	}
}

func openaitestHeader(a openaitest.Answer) string {
	var all string
	for _, h := range a.Header {
		all += h.Name + h.Value
	}
	return all
}

func TestUsageIsReportedToWhoAsks(t *testing.T) {
	t.Parallel()
	const asking = `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hi"}]}`
	p := openaitest.New(t, openaitest.Text("Hi."), openaitest.Text("Hi."), openaitest.Script{Text: []string{"Hi."}}.Answer("usage_on_last"))
	c := client(t)
	for i, tt := range []struct {
		body string
		want int
	}{{asking, 1}, {hello, 0}, {hello, 1}} {
		got := ask(t, c, p, tt.body)
		if n := strings.Count(got.text, `"prompt_tokens":11`); n != tt.want || got.err != nil || !strings.HasSuffix(got.text, "data: [DONE]\n\n") {
			t.Errorf("answer %d: %d reports, %v: %s", i+1, n, got.err, got.text)
		}
	}
}

func TestAScriptWrittenDown(t *testing.T) {
	t.Parallel()
	const frame = `data: {"id":"cc-1","object":"chat.completion.chunk","created":1700000000,"model":"test-model-1","choices":`
	chunk := func(delta, finish string) string {
		return frame + `[{"index":0,"delta":` + delta + `,"logprobs":null,"finish_reason":` + finish + `}]}` + "\n\n"
	}
	want := chunk(`{"role":"assistant","content":"","refusal":null}`, "null") + chunk(`{"reasoning_content":"h<m"}`, "null") + chunk(`{"content":"\"é\""}`, "null") +
		chunk(`{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}]}`, "null") +
		chunk(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"é\":"}}]}`, "null") +
		chunk(`{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}`, "null") +
		chunk(`{}`, `"tool_calls"`) + frame + `[],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18}}` + "\n\ndata: [DONE]\n\n"
	got := openaitest.Script{Reasoning: "h<m", Text: []string{`"é"`}, Calls: []openaitest.Call{{ID: "a", Name: "f", Arguments: `{"é":1}`}}}.Answer()
	if string(got.Body) != want {
		t.Errorf("got  %s\nwant %s", got.Body, want)
	}
}
