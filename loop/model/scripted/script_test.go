package scripted_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/model/scripted"
)

func TestParseSaysWhatIsWrongAndWhere(t *testing.T) {
	t.Parallel()
	scenario := func(s string) string { return `{"scenarios":[` + s + `]}` }
	matching := func(m string) string {
		return scenario(`{"name":"s","match":` + m + `,"answers":[{"steps":[]}]}`)
	}
	tests := []struct{ name, script, want string }{
		{"NotJSON", `scenarios:`, "invalid character"},
		{"TrailingText", oneAnswer(``) + `{}`, "text after the end"},
		{"NoScenarios", `{}`, "scenarios: there are none"},
		{"UnknownKey", oneAnswer(`{"txt":"hi"}`), `unknown field "txt"`},
		{"NoName", scenario(`{"match":{"default":true},"answers":[{"steps":[]}]}`), "scenarios[0].name"},
		{"NoAnswers", scenario(`{"name":"s","match":{"default":true}}`), "scenarios[0].answers: there are none"},
		{"NoMatch", matching(`{}`), "scenarios[0].match: set exactly one"},
		{"TwoMatches", matching(`{"default":true,"exact":"x"}`), "set exactly one"},
		{"BadRegexp", matching(`{"regexp":"("}`), "match: regexp: "},
		{"BehindTheDefault", scenario(`{"name":"a","match":{"default":true},"answers":[{"steps":[]}]},{"name":"b","match":{"exact":"x"},"answers":[{"steps":[]}]}`), "scenarios[1]: never reached"},
		{"EmptyStep", oneAnswer(`{}`), "scenarios[0].answers[0].steps[0]: a step does exactly one"},
		{"TwoThings", oneAnswer(`{"text":"a","cut":true}`), "a step does exactly one"},
		{"BehindTheEnd", oneAnswer(`{"cut":true},{"text":"a"}`), "steps[1]: never reached"},
		{"SplitOfNothing", oneAnswer(`{"delay":"1s","split":"words"}`), "split and every belong to"},
		{"EveryWithoutSplit", oneAnswer(`{"text":"a","every":"1s"}`), "set split too"},
		{"BadSplit", oneAnswer(`{"text":"a","split":0}`), `split: 0 is neither`},
		{"BadDelay", oneAnswer(`{"delay":5}`), `5 is not a duration`},
		{"UnknownUnit", oneAnswer(`{"delay":"5 parsecs"}`), `unknown unit`},
		{"NegativeDelay", oneAnswer(`{"delay":"-1s"}`), "negative"},
		{"NegativeAttempt", oneAnswer(`{"text":"a","attempt":-1}`), "attempt counts from 1"},
		{"UnknownTemplate", oneAnswer(`{"text":"{{nobody}}"}`), "{{nobody}} is neither"},
		{"UnknownTemplateInReasoning", oneAnswer(`{"reasoning":"{{nobody}}"}`), "{{nobody}} is neither"},
		{"UnknownTemplateInArguments", oneAnswer(`{"tool":{"name":"t","arguments":{"a":"{{nobody}}"}}}`), "{{nobody}} is neither"},
		{"UnnamedTool", oneAnswer(`{"tool":{}}`), "tool: name"},
		{"FailWithoutMessage", oneAnswer(`{"fail":{"status":500}}`), "fail: message"},
		{"UnknownReason", oneAnswer(`{"finish":{"reason":"bored"}}`), `"bored" is none of`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := scripted.Parse([]byte(tt.script))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want %q in it", err, tt.want)
			}
		})
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.json"), filepath.Join(dir, "bad.json")
	for path, content := range map[string]string{good: oneAnswer(`{"text":"hi"}`), bad: `{}`} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := scripted.Load(good); err != nil {
		t.Error(err)
	}
	for _, path := range []string{bad, filepath.Join(dir, "missing.json")} {
		if _, err := scripted.Load(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("got error %v, want the path in it", err)
		}
	}
}

func TestTheDocumentedExamplesParse(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../../docs/scripted.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllSubmatch(doc, -1)
	if len(examples) < 3 {
		t.Fatalf("found %d examples, the document has more", len(examples))
	}
	for _, ex := range examples {
		if _, err := scripted.Parse(ex[1]); err != nil {
			t.Errorf("%v in\n%s", err, ex[1])
		}
	}
}

// TestTheDemoShowsEverySide plays what the demo's texts suggest to a newcomer.
func TestTheDemoShowsEverySide(t *testing.T) {
	t.Parallel()
	m := scripted.New(scripted.Demo(), scripted.Options{})
	tests := []struct {
		say    string
		first  []string // in the first answer
		second string   // in the answer to the tool result "R"; "" if no tool is called
	}{
		{"hello", []string{`text/1 "Hello! "`, "call/2 get_time", `{\"zone\": \"UTC\"}`}, `"R. "`},
		{"What time is it?", []string{"call/2 get_time"}, `"R."`},
		{"please ping", []string{"call/1 ping", `please ping`}, `"R"`},
		{"Remember that my name is Ada.", []string{"call/2 memory_write", `{\"key\": \"name\", \"content\": \"Ada\"}`}, `"R. "`},
		{"remember the milk!", []string{"call/2 memory_write", `\"content\": \"the milk\"}`}, `"R. "`},
		{"What do you remember?", []string{"call/2 memory_search"}, "R"},
		{"Forget my name.", []string{"call/2 memory_delete", `{\"key\": \"name\"}`}, "R"},
		{"forget the milk!", []string{"call/2 memory_delete", `{\"key\": \"the milk\"}`}, "R"},
		{"forget everything", []string{"call/2 memory_clear"}, "R"},
		{"use several tools", []string{"call/2 get_time", "call/3 get_time", "call/4 ping"}, "All"},
		{"think", []string{"reasoning/1", "text/2"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.say, func(t *testing.T) {
			t.Parallel()
			history := []hooks.Message{user(tt.say)}
			synctestPlay(t, m, history, tt.first)
			if tt.second != "" {
				synctestPlay(t, m, append(history, calling("1"), result("1", "R")), []string{tt.second})
			}
		})
	}
}

// synctestPlay plays an answer without waiting for its pauses.
func synctestPlay(t *testing.T, m *scripted.Model, history []hooks.Message, want []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		got, err := play(t.Context(), m, request(history...))
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Join(got, "\n")
		for _, w := range append(want, "\nfinish ") {
			if !strings.Contains(all, w) {
				t.Errorf("got:\n%s\nwant %s in it", all, w)
			}
		}
	})
}
