package openai_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/model/openai"
)

func TestARequestHoldsNoCredential(t *testing.T) {
	t.Parallel()
	m := newFake(t).model(t, openai.Config{APIKey: key})
	p, err := m.Request(hello())
	want := []hooks.Header{{Name: "Accept", Value: "text/event-stream"}, {Name: "Content-Type", Value: "application/json"}, {Name: "User-Agent", Value: "agentd"}}
	if err != nil || !slices.Equal(p.Headers, want) || strings.Contains(p.Body, key) {
		t.Errorf("got %+v and error %v", p, err)
	}
}

// TestExactlyWhatWasDecidedIsSent sends other headers and another body than
// the model would, as hooks may want.
func TestExactlyWhatWasDecidedIsSent(t *testing.T) {
	t.Parallel()
	for name, apiKey := range map[string]string{"Key": key, "NoKey": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, playback{body: fixture(t, "finish_and_done")})
			const body = `{ "model": "other", "stream": true,"messages":[{"role":"user","content":"<é>"}], "extra": 18446744073709551615}`
			p := loop.ProviderRequest{Body: body, Headers: []hooks.Header{
				{Name: "Authorization", Value: "Bearer theirs"}, {Name: "Content-Type", Value: "application/json; x=1"}, {Name: "X-Trace-Id", Value: "7"},
			}}
			if got, err := transcribe(f.model(t, openai.Config{APIKey: apiKey}).Send(t.Context(), hello(), p, nil)); err != nil || !strings.Contains(got, "finish: stop") {
				t.Fatalf("got %q and error %v", got, err)
			}
			sent := f.sent()[0]
			if sent.body != body {
				t.Errorf("sent %s", sent.body)
			}
			auth := "Bearer theirs"
			if apiKey != "" {
				auth = "Bearer " + key
			}
			want := http.Header{
				"Authorization": {auth}, "Content-Type": {"application/json; x=1"}, "X-Trace-Id": {"7"}, "Content-Length": {fmt.Sprint(len(body))},
				"Host": {strings.TrimSuffix(strings.TrimPrefix(f.URL, "http://"), "/v1")},
			}
			if fmt.Sprint(sent.header) != fmt.Sprint(want) {
				t.Errorf("sent %v, want %v", sent.header, want)
			}
		})
	}
}

func TestTheBeginningOfAnAnswerIsToldBeforeItsBody(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]playback{
		"Stream":  {body: fixture(t, "finish_and_done"), header: map[string]string{"Set-Cookie": "a=b", "X-Request-Id": "r1", "X-Echo": key}},
		"Refusal": {status: 429, header: map[string]string{"Set-Cookie": "a=b", "X-Request-Id": "r1", "X-Echo": key}},
		"Stalled": {end: "stall", header: map[string]string{"Set-Cookie": "a=b", "X-Request-Id": "r1", "X-Echo": key}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, p)
			m := f.model(t, openai.Config{APIKey: key})
			req, err := m.Request(hello())
			if err != nil {
				t.Fatal(err)
			}
			refused := errors.New("refused by a hook")
			got, err := transcribe(m.Send(t.Context(), hello(), req, func(_ context.Context, r loop.ProviderResponse) error {
				names := make(map[string]string)
				for _, h := range r.Headers {
					names[h.Name] = h.Value
				}
				sorted := slices.IsSortedFunc(r.Headers, func(a, b hooks.Header) int { return strings.Compare(a.Name, b.Name) })
				if r.Status != max(p.status, 200) || names["X-Request-Id"] != "r1" || names["Set-Cookie"] != "" || names["X-Echo"] != "[API key]" || !sorted {
					t.Errorf("was told %+v", r)
				}
				return refused
			}))
			if !errors.Is(err, refused) || got != "" {
				t.Errorf("got %q and error %v, want the callback's error as it is", got, err)
			}
			if name == "Stalled" {
				f.given(t)
			}
		})
	}
}

func TestAnAnswerIsReadOnceItsBeginningIsAccepted(t *testing.T) {
	t.Parallel()
	f := newFake(t, playback{body: fixture(t, "finish_and_done")}, playback{status: 429, header: map[string]string{"Retry-After": "7"}})
	m := f.model(t, openai.Config{})
	req, err := m.Request(hello())
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	received := func(context.Context, loop.ProviderResponse) error { told++; return nil }
	if got, err := transcribe(m.Send(t.Context(), hello(), req, received)); err != nil || !strings.Contains(got, "finish: stop") {
		t.Errorf("got %q and error %v", got, err)
	}
	_, err = transcribe(m.Send(t.Context(), hello(), req, received))
	if me := wantModelError(t, err); me.Status != 429 || me.RetryAfter != 7*time.Second || !me.Retryable || told != 2 {
		t.Errorf("got %+v, told %d times", me, told)
	}
}

func TestACallBackThatNobodyWaitsForAnyMore(t *testing.T) {
	t.Parallel()
	f := newFake(t, playback{status: 500})
	m := f.model(t, openai.Config{})
	req, err := m.Request(hello())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = transcribe(m.Send(ctx, hello(), req, func(context.Context, loop.ProviderResponse) error { cancel(); return nil }))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want that of the caller", err)
	}
}
