package anthropic_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/model/anthropic"
	"github.com/seed-2ca4966b/agentd/loop/model/anthropic/anthropictest"
)

func TestFailuresAreTyped(t *testing.T) {
	t.Parallel()
	overloaded := event(`{"type":"error","error":{"type":"overloaded_error","message":"busy"}}`)
	text := opening(0, `{"type":"text","text":"Part"}`)
	after := func(a anthropictest.Answer, value string) anthropictest.Answer {
		a.Header.Set("Retry-After", value)
		return a
	}
	for name, tt := range map[string]struct {
		answer anthropictest.Answer
		want   loop.ModelError
		text   string
	}{
		"Overloaded":      {after(anthropictest.Error(529, "overloaded_error", "busy"), "7"), loop.ModelError{Status: 529, Code: "overloaded_error", Message: "busy", Retryable: true, RetryAfter: 7 * time.Second}, ""},
		"RateLimit":       {after(anthropictest.Error(429, "rate_limit_error", "slow down"), "3"), loop.ModelError{Status: 429, Code: "rate_limit_error", Message: "slow down", Retryable: true, RetryAfter: 3 * time.Second}, ""},
		"ServerError":     {anthropictest.Error(500, "api_error", "oops"), loop.ModelError{Status: 500, Code: "api_error", Message: "oops", Retryable: true}, ""},
		"BadRequest":      {anthropictest.Error(400, "invalid_request_error", "no"), loop.ModelError{Status: 400, Code: "invalid_request_error", Message: "no"}, ""},
		"NoCredit":        {anthropictest.Error(429, "rate_limit_error", "Your credit balance is too low"), loop.ModelError{Status: 429, Code: "rate_limit_error", Message: "Your credit balance is too low"}, ""},
		"Billing":         {anthropictest.Error(500, "billing_error", "pay"), loop.ModelError{Status: 500, Code: "billing_error", Message: "pay"}, ""},
		"Page":            {anthropictest.Answer{Status: 502, Body: "<html>"}, loop.ModelError{Status: 502, Message: "the provider answered 502 Bad Gateway", Retryable: true}, ""},
		"Redirect":        {anthropictest.Answer{Status: 302, Body: `{"type":"error","error":{"type":"api_error","message":"from elsewhere"}}`, Header: http.Header{"Location": {"/"}}}, loop.ModelError{Status: 302, Message: "the provider answered 302 Found: redirects are not followed, check that ANTHROPIC_BASE_URL is right"}, ""},
		"MidStream":       {anthropictest.Answer{Body: fixture(t, "overloaded_mid.sse")}, loop.ModelError{Status: 200, Code: "overloaded_error", Message: "busy", Retryable: true, Usage: stream.Usage{InputTokens: 11, OutputTokens: 1}}, "text/1: Part\n"},
		"MidStreamEvery":  {anthropictest.Answer{Body: fixture(t, "overloaded_mid.sse"), Every: 1, End: anthropictest.EndCut}, loop.ModelError{Status: 200, Code: "overloaded_error", Message: "busy", Retryable: true, Usage: stream.Usage{InputTokens: 11, OutputTokens: 1}}, "text/1: Part\n"},
		"MidStreamStall":  {anthropictest.Answer{Body: fixture(t, "overloaded_mid.sse"), End: anthropictest.EndStall}, loop.ModelError{Status: 200, Code: "overloaded_error", Message: "busy", Retryable: true, Usage: stream.Usage{InputTokens: 11, OutputTokens: 1}}, "text/1: Part\n"},
		"BeforeOutput":    {anthropictest.Answer{Body: begun + overloaded}, loop.ModelError{Status: 529, Code: "overloaded_error", Message: "busy", Retryable: true, Usage: stream.Usage{InputTokens: 15, OutputTokens: 1}}, ""},
		"ErrorAndStop":    {anthropictest.Answer{Body: text + overloaded + ending("end_turn")}, loop.ModelError{Status: 200, Code: "overloaded_error", Message: "busy", Retryable: true}, "text/1: Part\n"},
		"UnknownError":    {anthropictest.Answer{Body: event(`{"type":"error","message":"odd"}`)}, loop.ModelError{Status: 200, Message: "odd"}, ""},
		"ErrorOfNothing":  {anthropictest.Answer{Body: event(`{"type":"error"}`)}, loop.ModelError{Status: 200, Message: "the provider reported an error"}, ""},
		"ErrorOfAGateway": {anthropictest.Answer{Body: event(`{"error":"gone"}`)}, loop.ModelError{Status: 200, Message: "gone"}, ""},
		"ErrorForAStream": {anthropictest.Answer{Body: `{"type":"error","error":{"type":"api_error","message":"oops"}}`}, loop.ModelError{Status: 200, Code: "api_error", Message: "oops", Retryable: true}, ""},
		"NoEvent":         {anthropictest.Answer{Body: text + "data: {\n\n"}, loop.ModelError{Status: 200, Code: "malformed_stream", Message: "the provider sent a frame that is not an event", Retryable: true}, "text/1: Part\n"},
		"OddStart":        {anthropictest.Answer{Body: event(`{"type":"message_start","message":"hi"}`)}, loop.ModelError{Status: 200, Code: "malformed_stream", Message: "the provider sent a frame that is not an event", Retryable: true}, ""},
		"UnnamedCall":     {anthropictest.Answer{Body: opening(0, `{"type":"tool_use"}`)}, loop.ModelError{Status: 200, Code: "malformed_stream", Message: "the provider asked for a tool call without naming the tool", Retryable: true}, ""},
		"UnopenedCall":    {anthropictest.Answer{Body: delta(0, `{"type":"input_json_delta","partial_json":"{}"}`)}, loop.ModelError{Status: 200, Code: "malformed_stream", Message: "the provider asked for a tool call without naming the tool", Retryable: true}, ""},
		"EmptyAnswer":     {anthropictest.Answer{Body: event(`{"type":"message_stop"}`)}, loop.ModelError{Status: 200, Code: "empty_answer", Message: "the provider ended its answer before it had begun", Retryable: true}, ""},
		"LongLine":        {anthropictest.Answer{Body: "data: " + strings.Repeat("x", 4<<20)}, loop.ModelError{Status: 200, Code: "line_too_long", Message: "the provider sent a line longer than 4194304 bytes"}, ""},
		"ManyCalls": {
			anthropictest.Answer{Body: strings.Repeat(opening(0, `{"type":"tool_use","name":"f"}`), 1001)},
			loop.ModelError{Status: 200, Code: "too_many_calls", Message: "the provider's answer has more than 1000 tool calls"}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := asked(t, tt.answer)
			me := wantModelError(t, err)
			me.Err = nil
			if name != "ManyCalls" && got != tt.text || me != tt.want {
				t.Errorf("got %+v after %.200q, want %+v", me, got, tt.want)
			}
		})
	}
}

func TestAPageIsNoStream(t *testing.T) {
	t.Parallel()
	_, err := asked(t, anthropictest.Answer{Body: "<html>log in</html>", Header: http.Header{"Content-Type": {"text/html"}}})
	if me := wantModelError(t, err); me.Code != "not_a_stream" || me.Retryable || !strings.Contains(me.Message, "content type: text/html") {
		t.Errorf("got %+v", me)
	}
}

// endless gives the same text without end.
type endless struct {
	text string
	rest string
}

func (e *endless) Read(p []byte) (int, error) {
	if e.rest == "" {
		e.rest = e.text
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// through is a client whose transport is f.
func through(f roundTripper) *http.Client { return &http.Client{Transport: f} }

func TestAnEndlessAnswerEnds(t *testing.T) {
	t.Parallel()
	body := &endless{text: delta(0, `{"type":"text_delta","text":"`+strings.Repeat("x", 1<<20)+`"}`)}
	m := newModel(t, anthropic.Config{BaseURL: "http://provider.invalid", HTTPClient: through(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(body)}, nil
	})})
	var err error
	for _, err = range m.Stream(t.Context(), hello()) {
	}
	if me := wantModelError(t, err); me.Code != "answer_too_long" {
		t.Errorf("got %+v", me)
	}
}

const key = "sk-ant-the-key-1234567"

// TestNoFailureTellsTheKey makes calls fail with the key in what fails, and
// looks for it in all that can be printed.
func TestNoFailureTellsTheKey(t *testing.T) {
	t.Parallel()
	answer := func(status int, text string) roundTripper {
		return func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {key}}, Body: io.NopCloser(strings.NewReader(text))}, nil
		}
	}
	for name, f := range map[string]roundTripper{
		"network_error":    func(r *http.Request) (*http.Response, error) { return nil, fmt.Errorf("%s: %v", r.URL, r.Header) },
		"client_panic":     func(r *http.Request) (*http.Response, error) { panic(fmt.Sprint(r.Header)) },
		"not_a_stream":     answer(200, key),
		"malformed_stream": answer(200, event(key)),
		"api_error":        answer(500, `{"error":{"type":"api_error","message":"`+key+`"}}`),
		"[API key]":        answer(200, event(`{"type":"error","error":{"type":"`+key+`","message":"`+key+`"}}`)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var logged bytes.Buffer
			m := newModel(t, anthropic.Config{
				BaseURL: "http://provider.invalid", APIKey: key, HTTPClient: through(f),
				Logger: slog.New(slog.NewJSONHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug})),
			})
			_, err := transcribe(m.Stream(t.Context(), hello()))
			me := wantModelError(t, err)
			if me.Code != name {
				t.Errorf("got code %q", me.Code)
			}
			printed := fmt.Sprintf("%s %v %+v %#v %+v %v", &logged, m, *m, err, me, me.Err)
			if logged.Len() == 0 || strings.Contains(printed, key) {
				t.Errorf("printed %s", printed)
			}
		})
	}
}

func TestTheKeyIsSentAndNotShown(t *testing.T) {
	t.Parallel()
	p := anthropictest.New(t, anthropictest.Answer{Body: fixture(t, "keepalive.sse"), Header: http.Header{"X-Echo": {key}, "Set-Cookie": {"a=b"}}})
	m := newModel(t, anthropic.Config{BaseURL: p.URL, APIKey: key})
	req, err := m.Request(hello())
	if err != nil || strings.Contains(fmt.Sprint(req), key) {
		t.Fatalf("got %v and error %v", req, err)
	}
	var seen string
	_, err = transcribe(m.Send(t.Context(), hello(), req, func(_ context.Context, r loop.ProviderResponse) error {
		seen = fmt.Sprint(r)
		return nil
	}))
	if err != nil || !strings.Contains(seen, "[API key]") || strings.Contains(seen, key) || strings.Contains(seen, "a=b") {
		t.Fatalf("saw %s and error %v", seen, err)
	}
	if got := p.Requests()[0].Header; got.Get("X-Api-Key") != key || got.Get("Anthropic-Version") != "2023-06-01" || got.Get("User-Agent") != "agentd" {
		t.Errorf("sent %v", got)
	}
}

func TestTheCallersErrorsComeAsTheyAre(t *testing.T) {
	t.Parallel()
	refused := errors.New("a hook says no")
	p := anthropictest.New(t, anthropictest.Answer{End: anthropictest.EndStall}, anthropictest.Answer{Body: fixture(t, "no_stop.sse"), End: anthropictest.EndStall})
	m := newModel(t, anthropic.Config{BaseURL: p.URL})
	req, err := m.Request(hello())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := transcribe(m.Send(t.Context(), hello(), req, func(context.Context, loop.ProviderResponse) error { return refused })); !errors.Is(err, refused) {
		t.Errorf("got error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	for _, err = range m.Stream(ctx, hello()) {
		cancel() // at the first delta
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want that of the caller", err)
	}
	if _, err := transcribe(m.Stream(ctx, hello())); !errors.Is(err, context.Canceled) || len(p.Requests()) != 2 {
		t.Errorf("got error %v of a call with an ended context", err)
	}
}

func TestAConsumerMayStop(t *testing.T) {
	t.Parallel()
	p := anthropictest.New(t, anthropictest.Answer{Body: fixture(t, "no_stop.sse"), End: anthropictest.EndStall})
	n := 0
	for _, err := range newModel(t, anthropic.Config{BaseURL: p.URL}).Stream(t.Context(), hello()) {
		if n++; err != nil {
			t.Error(err)
		}
		break
	}
	if n != 1 {
		t.Errorf("got %d chunks", n)
	}
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]anthropic.Config{
		"anthropic: base URL: must begin": {BaseURL: "api.example.com"},
		"anthropic: API key: ":            {BaseURL: "http://provider.invalid", APIKey: key + "\n"},
		"anthropic: max tokens: -1":       {BaseURL: "http://provider.invalid", MaxTokens: -1},
	} {
		if _, err := anthropic.New(cfg); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), key) {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
}
