package scripted_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/model/scripted"
	"github.com/seed-2ca4966b/agentd/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }

func text(role hooks.Role, s string) hooks.Message {
	return hooks.Message{Role: role, Parts: []hooks.Part{{Type: hooks.PartText, Text: s}}}
}

func user(s string) hooks.Message { return text(hooks.RoleUser, s) }

func calling(ids ...string) hooks.Message {
	m := hooks.Message{Role: hooks.RoleAssistant}
	for _, id := range ids {
		m.Parts = append(m.Parts, hooks.Part{Type: hooks.PartToolCall, ToolCall: &hooks.ToolCall{ID: id, Name: "t"}})
	}
	return m
}

func result(id, content string) hooks.Message {
	return hooks.Message{Role: hooks.RoleTool, Parts: []hooks.Part{{
		Type: hooks.PartToolResult, ToolResult: &hooks.ToolResult{CallID: id, Content: content},
	}}}
}

// oneAnswer is a script whose only answer has those steps.
func oneAnswer(steps string) string {
	return `{"scenarios":[{"name":"s","match":{"default":true},"answers":[{"steps":[` + steps + `]}]}]}`
}

func newModel(t *testing.T, script string, opts scripted.Options) *scripted.Model {
	t.Helper()
	s, err := scripted.Parse([]byte(script))
	if err != nil {
		t.Fatal(err)
	}
	return scripted.New(s, opts)
}

// play writes an answer down, one line per chunk.
func play(ctx context.Context, m loop.Model, req loop.ModelRequest) (lines []string, err error) {
	for c, cerr := range m.Stream(ctx, req) {
		if cerr != nil {
			return lines, cerr
		}
		switch c.Kind {
		case stream.KindDelta:
			lines = append(lines, fmt.Sprintf("%s/%s %q", c.Lane, c.BlockID, c.Text))
		case stream.KindToolCall:
			lines = append(lines, fmt.Sprintf("call/%s %s %s", c.BlockID, c.Call.Name, c.Call.ProviderID))
		case stream.KindFinish:
			lines = append(lines, fmt.Sprintf("finish %s %q %d/%d", c.Finish.Reason, c.Finish.Raw,
				c.Finish.Usage.InputTokens, c.Finish.Usage.OutputTokens))
		case stream.KindEnd:
			return lines, fmt.Errorf("chunk %+v is no adapter's", c)
		}
	}
	return lines, nil
}

func request(messages ...hooks.Message) loop.ModelRequest {
	return loop.ModelRequest{Messages: messages}
}

func wantLines(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func wantModelError(t *testing.T, err error, code, part string) loop.ModelError {
	t.Helper()
	var me *loop.ModelError
	if !errors.As(err, &me) || me.Code != code || !strings.Contains(me.Message, part) {
		t.Fatalf("got error %v, want a ModelError with code %q that says %q", err, code, part)
	}
	return *me
}

func TestStepsBecomeChunks(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, steps string
		want        []string
	}{
		{"PlainText", `{"text":"hi"}`, []string{`text/1 "hi"`, `finish stop "stop" 0/0`}},
		{"EmptyAnswer", ``, []string{`finish stop "stop" 0/0`}},
		{"Words", `{"text":" a  b\nc","split":"words"}`, []string{`text/1 " a  "`, `text/1 "b\n"`, `text/1 "c"`, `finish stop "stop" 0/0`}},
		{"Runes", `{"text":"a😀é!","split":3}`, []string{`text/1 "a😀é"`, `text/1 "!"`, `finish stop "stop" 0/0`}},
		{
			"ToolsAndBlocks",
			`{"reasoning":"r"},{"text":"a"},{"text":"b"},{"tool":{"name":"x","id":"p1","arguments":{"n": 18446744073709551615}}},
			 {"tool":{"name":"y","arguments":"{\"cut"}},{"tool":{"name":"z"}},{"text":"c"}`,
			[]string{
				`reasoning/1 "r"`, `text/2 "a"`, `text/2 "b"`, `call/3 x p1`, `tool_arguments/3 "{\"n\": 18446744073709551615}"`,
				`call/4 y `, `tool_arguments/4 "{\"cut"`, `call/5 z `, `text/6 "c"`, `finish tool_calls "tool_calls" 0/0`,
			},
		},
		{"ArgumentsInPieces", `{"tool":{"name":"x","arguments":"{}"},"split":1}`, []string{
			`call/1 x `, `tool_arguments/1 "{"`, `tool_arguments/1 "}"`, `finish tool_calls "tool_calls" 0/0`,
		}},
		{"Cut", `{"text":"half"},{"cut":true}`, []string{`text/1 "half"`}},
		{"Finish", `{"finish":{"reason":"length","raw":"max_tokens","input_tokens":3,"output_tokens":4}}`, []string{`finish length "max_tokens" 3/4`}},
		{"FinishWithoutReason", `{"finish":{"reason":"unknown"}}`, []string{`finish unknown "" 0/0`}},
		{"StepsOfOtherAttempts", `{"attempt":2,"cut":true},{"attempt":1,"text":"one"}`, []string{`text/1 "one"`, `finish stop "stop" 0/0`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := play(t.Context(), newModel(t, oneAnswer(tt.steps), scripted.Options{}), request(user("x")))
			if err != nil {
				t.Fatal(err)
			}
			wantLines(t, got, tt.want...)
		})
	}
}

const choosing = `{"scenarios":[
	{"name":"exact","match":{"exact":"Hi"},"answers":[{"steps":[{"text":"exact"}]}]},
	{"name":"contains","match":{"contains":"Weather"},"answers":[{"steps":[{"text":"contains"}]}]},
	{"name":"regexp","match":{"regexp":"^say (?P<what>.+)$"},"answers":[
		{"steps":[{"tool":{"name":"echo","arguments":{"q":"{{what}}"}}}]},
		{"steps":[{"text":"{{last_user}} -> {{tool_result}}"}]}]}]}`

func TestTheHistoryChoosesTheAnswer(t *testing.T) {
	t.Parallel()
	m := newModel(t, choosing, scripted.Options{})
	tests := []struct {
		name    string
		history []hooks.Message
		want    string
	}{
		{"Exact", []hooks.Message{user(" Hi\n")}, `text/1 "exact"`},
		{"Contains", []hooks.Message{user("nice weather")}, `text/1 "contains"`},
		{"NamedGroupInArguments", []hooks.Message{user(`say "a<b"`)}, `tool_arguments/1 "{\"q\":\"\\\"a<b\\\"\"}"`},
		{"SecondCall", []hooks.Message{user("say hi"), calling("1"), result("1", "done")}, `text/1 "say hi -> done"`},
		{"OnlyWhatIsBehindTheLastUser", []hooks.Message{
			text(hooks.RoleSystem, "be kind"), user("Hi"), text(hooks.RoleAssistant, "exact"), user("say ho"), calling("1"), result("1", "ok"),
		}, `text/1 "say ho -> ok"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := play(t.Context(), m, request(tt.history...))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(strings.Join(got, "\n"), tt.want) {
				t.Errorf("got %q, want %q in it", got, tt.want)
			}
		})
	}
	_, err := play(t.Context(), m, request(user("unheard of")))
	wantModelError(t, err, "no_scenario", "no scenario")
	_, err = play(t.Context(), m, request(user("Hi"), text(hooks.RoleAssistant, "exact")))
	wantModelError(t, err, "no_answer", `scenario "exact" has 1 answers, and this is model call 2`)
}

func TestFailYieldsTheError(t *testing.T) {
	t.Parallel()
	m := newModel(t, oneAnswer(`{"text":"a"},{"attempt":1,"fail":{"status":429,"code":"rate","message":"slow down","retryable":true}}`), scripted.Options{})
	got, err := play(t.Context(), m, request(user("x")))
	wantLines(t, got, `text/1 "a"`)
	if me := wantModelError(t, err, "rate", "slow down"); me.Status != 429 || !me.Retryable {
		t.Errorf("got %+v", me)
	}
	req := request(user("x"))
	req.Attempt = 2
	if got, err = play(t.Context(), m, req); err != nil {
		t.Fatal(err)
	}
	wantLines(t, got, `text/1 "a"`, `finish stop "stop" 0/0`)
}

func TestPausesTakeTheirTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t, oneAnswer(`{"delay":"1s"},{"text":"abc","split":1,"every":"10ms"}`), scripted.Options{})
		start := time.Now()
		if _, err := play(t.Context(), m, request(user("x"))); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d != 1020*time.Millisecond {
			t.Errorf("took %v, want 1.02s", d)
		}
	})
}

func TestAnEndedContextEndsTheAnswer(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string]string{
		"Stall": `{"stall":true}`, "Delay": `{"delay":"1h"}`, "Every": `{"text":"ab","split":1,"every":"1h"}`,
		"WaitFile": `{"wait_file":"/nonexistent/go"}`, "Wait": `{"wait":"gate"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				wait := func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }
				m := newModel(t, oneAnswer(steps), scripted.Options{Wait: wait})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start := time.Now()
				if _, err := play(ctx, m, request(user("x"))); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got error %v, want the context's", err)
				}
				if d := time.Since(start); d != time.Second {
					t.Errorf("ended after %v, want 1s", d)
				}
			})
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got, err := play(ctx, newModel(t, oneAnswer(`{"text":"a"}`), scripted.Options{}), request(user("x")))
	if len(got) > 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("after cancel: got %q and error %v", got, err)
	}
}

func TestWaitHoldsTheAnswer(t *testing.T) {
	t.Parallel()
	script := oneAnswer(`{"wait":"gate"},{"text":"through"}`)
	var asked string
	opts := scripted.Options{Wait: func(_ context.Context, name string) error { asked = name; return nil }}
	got, err := play(t.Context(), newModel(t, script, opts), request(user("x")))
	if err != nil || asked != "gate" {
		t.Fatalf("asked for %q, error %v", asked, err)
	}
	wantLines(t, got, `text/1 "through"`, `finish stop "stop" 0/0`)
	_, err = play(t.Context(), newModel(t, script, scripted.Options{}), request(user("x")))
	wantModelError(t, err, "no_wait", "gate")
}

func TestWaitFileHoldsTheAnswerUntilTheFileExists(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "go")
	m := newModel(t, oneAnswer(fmt.Sprintf(`{"text":"a"},{"wait_file":%q},{"text":"b"}`, path)), scripted.Options{})
	var got string
	for c, err := range m.Stream(t.Context(), request(user("x"))) {
		if err != nil {
			t.Fatal(err)
		}
		if got += c.Text; got == "a" && c.Kind == stream.KindDelta {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got != "ab" {
		t.Errorf("got %q, want ab", got)
	}
	m = newModel(t, oneAnswer(fmt.Sprintf(`{"wait_file":%q}`, path+"/below-a-file")), scripted.Options{})
	_, err := play(t.Context(), m, request(user("x")))
	wantModelError(t, err, "wait_file", "cannot be looked at")
}

func TestAConsumerMayStopAnywhere(t *testing.T) {
	t.Parallel()
	m := newModel(t, oneAnswer(`{"text":"ab","split":1},{"tool":{"name":"t","arguments":{}}},{"finish":{}}`), scripted.Options{})
	const chunks = 5
	for stop := range chunks {
		seen := 0
		// Yielding again after a break panics.
		for _, err := range m.Stream(t.Context(), request(user("x"))) {
			if err != nil {
				t.Fatal(err)
			}
			if seen++; seen > stop {
				break
			}
		}
		if seen != stop+1 {
			t.Errorf("stopped after %d chunks, want %d", seen, stop+1)
		}
	}
}
