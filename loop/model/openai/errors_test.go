package openai_test

import (
	"bytes"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/model/openai"
)

const key = "sk-secret-0123456789"

func TestAProvidersErrorIsTyped(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		play playback
		text string // what was shown before
		want loop.ModelError
	}{
		{
			"FirstFrame", playback{body: fixture(t, "error_first")}, "",
			loop.ModelError{Status: 200, Code: "insufficient_quota", Message: "quota used up"},
		},
		{
			"MidStream", playback{body: fixture(t, "error_mid")}, "text/1: Part\n",
			loop.ModelError{Status: 200, Code: "server_error/internal", Message: "upstream failure 7f", Retryable: true},
		},
		{
			"AfterFinish", playback{body: fixture(t, "finish_no_done") + "data: {\"error\":\"late\"}\n\n"}, "text/1: The total is 42.\n",
			loop.ModelError{Status: 200, Message: "late"},
		},
		{
			"AfterUsage", playback{body: usage(5, 2) + text("a") + "data: {\"error\":\"late\"}\n\n"}, "text/1: a\n",
			loop.ModelError{Status: 200, Message: "late", Usage: stream.Usage{InputTokens: 5, OutputTokens: 2}},
		},
		{
			"NumericCode", playback{body: `data: {"error":{"code":502,"message":""}}`}, "",
			loop.ModelError{Status: 200, Code: "502", Message: "the provider reported an error", Retryable: true},
		},
		{
			"RateLimit", playback{status: 429, body: `{"error":{"message":"slow\n\u0000down","type":"requests","code":"rate_limit_exceeded"}}`}, "",
			loop.ModelError{Status: 429, Code: "requests/rate_limit_exceeded", Message: "slow \uFFFDdown", Retryable: true},
		},
		{
			"Quota", playback{status: 429, body: `{"error":{"message":"pay","type":"insufficient_quota","code":"insufficient_quota"}}`}, "",
			loop.ModelError{Status: 429, Code: "insufficient_quota", Message: "pay"},
		},
		{
			"EchoedKey", playback{status: 401, body: `{"error":{"message":"bad key ` + key + `","type":"auth","code":null}}`}, "",
			loop.ModelError{Status: 401, Code: "auth", Message: "bad key [API key]"},
		},
		{
			"ErrorText", playback{status: 400, body: `{"error":"no such model"}`}, "",
			loop.ModelError{Status: 400, Message: "no such model"},
		},
		{
			"FlatMessage", playback{status: 422, body: `{"detail":"wrong field"}`}, "",
			loop.ModelError{Status: 422, Message: "wrong field"},
		},
		{
			"ErrorInAList", playback{status: 400, body: `[{"error":{"code":400,"message":"no such model","status":"INVALID_ARGUMENT"}}]`}, "",
			loop.ModelError{Status: 400, Code: "INVALID_ARGUMENT/400", Message: "no such model"},
		},
		{
			"FlatError", playback{status: 404, body: `{"object":"error","message":"no such model","type":"NotFoundError","param":null,"code":404}`}, "",
			loop.ModelError{Status: 404, Code: "NotFoundError/404", Message: "no such model"},
		},
		{
			"NoBalance", playback{status: 429, body: `{"error":{"message":"pay","type":"exceeded_current_quota_error"}}`}, "",
			loop.ModelError{Status: 429, Code: "exceeded_current_quota_error", Message: "pay"},
		},
		{
			"EmptyList", playback{status: 500, body: `[]`}, "",
			loop.ModelError{Status: 500, Message: "the provider answered 500 Internal Server Error", Retryable: true},
		},
		{
			"HTMLPage", playback{status: 502, body: "<html>nginx</html>"}, "",
			loop.ModelError{Status: 502, Message: "the provider answered 502 Bad Gateway", Retryable: true},
		},
		{
			"BodyCut", playback{status: 503, body: `{"error":`, end: "cut"}, "",
			loop.ModelError{Status: 503, Message: "the provider answered 503 Service Unavailable", Retryable: true},
		},
		{
			"Redirect", playback{status: 307, body: `{"error":{"message":"from elsewhere"}}`, header: map[string]string{"Location": "/elsewhere"}}, "",
			loop.ModelError{Status: 307, Message: "the provider answered 307 Temporary Redirect: redirects are not followed, check that OPENAI_BASE_URL is right"},
		},
		{
			"NotAChunk", playback{body: "data: <html>\n\n"}, "",
			loop.ModelError{Status: 200, Code: "malformed_stream", Message: "the provider sent a frame that is not a chunk", Retryable: true},
		},
		{
			"UnnamedCall", playback{body: `data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"x","function":{"arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`}, "",
			loop.ModelError{Status: 200, Code: "malformed_stream", Message: "the provider asked for a tool call without naming the tool", Retryable: true},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var logged bytes.Buffer
			f := newFake(t, tt.play)
			m := f.model(t, openai.Config{APIKey: key, Logger: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))})
			text, err := play(t.Context(), m, hello())
			got := wantModelError(t, err)
			got.Err = nil
			if got != tt.want || text != tt.text {
				t.Errorf("got %+v after %q, want %+v after %q", got, text, tt.want, tt.text)
			}
			if strings.Contains(logged.String()+err.Error(), key) || !strings.Contains(logged.String(), "error") {
				t.Errorf("logged %s", logged.String())
			}
			if n := len(f.sent()); n != 1 {
				t.Errorf("the provider was called %d times", n)
			}
		})
	}
}

func TestWhatLooksLikeAKeyIsNotTold(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"upstream refused sk-other-9876543210.":        "upstream refused sk-…redacted.",
		`key "sk-proj-a_B-c1234567", key sk-12345678`:  `key "sk-…redacted", key sk-…redacted`,
		"Incorrect API key provided: sk-abcd****wxyz.": "Incorrect API key provided: sk-abcd****wxyz.",
		"the task-distribution of sk-short is wrong":   "the task-distribution of sk-short is wrong",
	} {
		body := `{"error":{"message":` + strconv.Quote(said) + `,"type":"auth"}}`
		for _, p := range []playback{{status: 401, body: body}, {body: "data: " + body + "\n\n"}, {body: body}} {
			f := newFake(t, p)
			_, err := play(t.Context(), f.model(t, openai.Config{APIKey: key}), hello())
			if got := wantModelError(t, err).Message; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	}
	f := newFake(t, playback{status: 401, body: `{"error":{"message":"no","code":"sk-other-9876543210"}}`})
	_, err := play(t.Context(), f.model(t, openai.Config{}), hello())
	if got := wantModelError(t, err).Code; got != "sk-…redacted" {
		t.Errorf("got code %q", got)
	}
}

func TestALongMessageIsShortened(t *testing.T) {
	t.Parallel()
	f := newFake(t, playback{status: 400, body: `{"error":{"message":"` + strings.Repeat("é", 5000) + `"}}`})
	_, err := play(t.Context(), f.model(t, openai.Config{}), hello())
	if m := wantModelError(t, err).Message; len(m) > 500 || !strings.HasPrefix(m, "éé") || !strings.HasSuffix(m, "é…") {
		t.Errorf("got %d bytes: %s", len(m), m)
	}
}

func TestAProviderThatCannotBeReached(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	m := newFake(t).model(t, openai.Config{BaseURL: "http://" + l.Addr().String() + "/v1?token=hidden", APIKey: key})
	_, err = play(t.Context(), m, hello())
	me := wantModelError(t, err)
	if me.Code != "network_error" || !me.Retryable || me.Status != 0 || !strings.Contains(me.Message, "refused") {
		t.Errorf("got %+v", me)
	}
	if all := me.Message + me.Err.Error(); strings.Contains(all, "hidden") || strings.Contains(all, key) {
		t.Errorf("the error tells a secret: %s", all)
	}
}

func TestAHeaderHasALimit(t *testing.T) {
	t.Parallel()
	f := newFake(t, playback{header: map[string]string{"X-Much": strings.Repeat("x", 300<<10)}, body: fixture(t, "finish_and_done")})
	_, err := play(t.Context(), f.model(t, openai.Config{}), hello())
	if me := wantModelError(t, err); me.Code != "network_error" || !me.Retryable || len(me.Message) > 500 {
		t.Errorf("got %+v", me)
	}
}

func TestAnUnwritableRequestIsNotSent(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	req := hello()
	req.Tools = []loop.ToolSpec{{Name: "t", Schema: []byte(`{`)}}
	_, err := play(t.Context(), f.model(t, openai.Config{}), req)
	if me := wantModelError(t, err); me.Code != "invalid_request" || me.Retryable || len(f.sent()) > 0 {
		t.Errorf("got %+v after %d requests", me, len(f.sent()))
	}
}

func TestALineHasALimit(t *testing.T) {
	t.Parallel()
	line := func(size int) string {
		return `data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"x","function":{"name":"save","arguments":"` +
			strings.Repeat("x", size) + `"}}]},"finish_reason":"tool_calls"}]}` + "\n\n"
	}
	f := newFake(t, playback{body: line(2 << 20)}, playback{body: line(4 << 20)})
	m := f.model(t, openai.Config{})
	got, err := play(t.Context(), m, hello())
	if err != nil || strings.Count(got, "x") < 2<<20 || !strings.Contains(got, "finish: tool_calls") {
		t.Errorf("2 MiB: got %d bytes and error %v", len(got), err)
	}
	got, err = play(t.Context(), m, hello())
	if me := wantModelError(t, err); me.Code != "line_too_long" || me.Retryable || !strings.Contains(me.Message, "4194304 bytes") || got != "" {
		t.Errorf("4 MiB: got %+v after %d bytes", me, len(got))
	}
}
