package openai_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/model/openai"
)

func tools(names ...string) (list []loop.ToolSpec) {
	for _, name := range names {
		list = append(list, loop.ToolSpec{Name: name, Schema: []byte(`{"type":"object"}`)})
	}
	return list
}

var sentName = regexp.MustCompile(`"name":"([^"]*)"`)

func sentNames(body string) (names []string) {
	for _, m := range sentName.FindAllStringSubmatch(body, -1) {
		names = append(names, m[1])
	}
	return names
}

func TestANameThatAProviderDoesNotTakeIsMadeToFit(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a-B", 30)
	tests := []struct{ name, pattern, tool, want string }{
		{"Fits", "", "get_time-2", "get_time-2"},
		{"JustFits", "", long[:64], long[:64]},
		{"TooLong", "", long, "a_ba_ba_ba_ba_ba_ba_ba_ba_ba_ba_ba_ba_ba_ba_ba_ba_ba__fe3c6bc6c0"},
		{"Dots", "", "files.Read", "files_read_5de02878ee"},
		{"Digit", "[a-z_.][a-z0-9_.]*", "7z.pack", "t_7z_pack_2992f0eb89"},
		{"DotsFit", "[a-z_.][a-z0-9_.]*", "files.read", "files.read"},
		{"UpperCase", "[a-z_.][a-z0-9_.]*", "Files", "files_abc7e98928"},
		{"NotLatin", "", "時刻", "t____20d2bb9aec"},
		{"Alternatives", "a|[a-z][a-z0-9_]*", "b.", "b__191078ab32"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := newFake(t).model(t, openai.Config{Quirks: openai.Quirks{ToolNames: openai.ToolNames{Pattern: tt.pattern}}})
			req := hello()
			req.Tools = tools(tt.tool)
			p, err := m.Request(req)
			if err != nil {
				t.Fatal(err)
			}
			if got := sentNames(p.Body); len(got) != 1 || got[0] != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestAnAnswersNamesAreTurnedBack asks with names of which some do not fit, and
// has each of them called.
func TestAnAnswersNamesAreTurnedBack(t *testing.T) {
	t.Parallel()
	req := hello()
	req.Tools = tools("files.read", "files_read", "files-read")
	req.Messages = append(req.Messages, answered(toolCall("u1", "gone/away", "{}"), toolCall("u2", "files.read", "{}")), toolResult("u1", "r"), toolResult("u2", "r"))
	p, err := newFake(t).model(t, openai.Config{}).Request(req)
	if err != nil {
		t.Fatal(err)
	}
	names := sentNames(p.Body)
	if len(names) != 5 || names[1] != names[2] {
		t.Fatalf("sent %q, want two in the history, of which the second is the first tool, and three tools", names)
	}
	body := ""
	for _, name := range append(names, "made_up") {
		body += call(`{"id":"` + name + `","function":{"name":"` + name + `","arguments":"{}"}}`)
	}
	f := newFake(t, playback{body: body + stop})
	got, err := play(t.Context(), f.model(t, openai.Config{}), req)
	want := "tool_arguments/1: " + names[0] + " gone/away {}\n" +
		"tool_arguments/2: " + names[1] + " files.read {}{}\n" + // one id, so one call
		"tool_arguments/3: files_read files_read {}\n" +
		"tool_arguments/4: files-read files-read {}\n" +
		"tool_arguments/5: made_up made_up {}\n" +
		"finish: tool_calls (stop) 0/0"
	if err != nil || got != want {
		t.Errorf("got %q and error %v, want %q", got, err, want)
	}
}

func TestAToolsNameComesBeforeOneInTheHistory(t *testing.T) {
	t.Parallel()
	const made = "files_read_601e4eb608"
	f := newFake(t, playback{body: call(`{"id":"p","function":{"name":"`+made+`","arguments":"{}"}}`) + stop})
	req := hello()
	req.Tools = tools("files.read")
	req.Messages = append(req.Messages, answered(toolCall("u1", made, "{}")), toolResult("u1", "There is no such tool."))
	if got, err := play(t.Context(), f.model(t, openai.Config{}), req); err != nil || got != "tool_arguments/1: p files.read {}\nfinish: tool_calls (stop) 0/0" {
		t.Errorf("got %q and error %v", got, err)
	}
}

func TestToolsThatAProviderCouldNotTellApartAreNotSent(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	req := hello()
	req.Tools = tools("files.read", "files_read_601e4eb608")
	_, err := play(t.Context(), f.model(t, openai.Config{}), req)
	if me := wantModelError(t, err); me.Code != "invalid_request" || me.Retryable || len(f.sent()) > 0 ||
		me.Message != "the tools files.read and files_read_601e4eb608 have the same name, files_read_601e4eb608, for the provider" {
		t.Errorf("got %+v after %d requests", me, len(f.sent()))
	}
}
