package openai_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/model/openai"
)

// beat is a piece of a body and the pause before it.
type beat struct {
	pause time.Duration
	data  string
}

// pacedProvider answers without a network, so that hours pass in no time under
// synctest.
type pacedProvider struct {
	status int // 0 means 200
	header http.Header
	// headers is the pause before them; a negative one is for ever.
	headers time.Duration
	beats   []beat
	// then follows them again and again; an empty one is the end of the body,
	// and one with a negative pause comes never.
	then beat
	// closed, unless it is nil, counts the bodies that were closed.
	closed *atomic.Int32
}

// bytewise is a body of one byte per pause.
func bytewise(body string, pause time.Duration) (beats []beat) {
	for i := range len(body) {
		beats = append(beats, beat{pause, body[i : i+1]})
	}
	return beats
}

func (p pacedProvider) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := pass(r.Context(), p.headers); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: max(p.status, http.StatusOK), Header: p.header, Body: &pacedBody{pacedProvider: p, ctx: r.Context()}}, nil
}

type pacedBody struct {
	pacedProvider
	ctx  context.Context //nolint:containedctx // a response's body has its request's
	rest string
}

func (b *pacedBody) Read(p []byte) (int, error) {
	if b.rest == "" {
		next := b.then
		if len(b.beats) > 0 {
			next, b.beats = b.beats[0], b.beats[1:]
		} else if next == (beat{}) {
			return 0, io.EOF
		}
		if err := pass(b.ctx, next.pause); err != nil {
			return 0, err
		}
		b.rest = next.data
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

func (b *pacedBody) Close() error {
	if b.closed != nil {
		b.closed.Add(1)
	}
	return nil
}

func pass(ctx context.Context, d time.Duration) error {
	if d < 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func (p pacedProvider) model(t *testing.T, cfg openai.Config) *openai.Model {
	t.Helper()
	cfg.BaseURL, cfg.HTTPClient = "http://provider.invalid/v1", &http.Client{Transport: p}
	m, err := openai.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

const ping = ": ping\n\n"

func TestHowLongAProviderIsWaitedFor(t *testing.T) {
	t.Parallel()
	never := beat{pause: -1}
	tests := []struct {
		name     string
		provider pacedProvider
		cfg      openai.Config
		code     string // "" for a whole answer
		message  string
		took     time.Duration
	}{
		{"NoHeaders", pacedProvider{headers: -1}, openai.Config{}, "first_byte_timeout", "the provider sent nothing for 1m0s", time.Minute},
		{"HeadersAndThenNothing", pacedProvider{headers: 40 * time.Second, then: never}, openai.Config{}, "first_byte_timeout", "the provider sent nothing for 1m0s", time.Minute},
		{"NoFirstByteIsNotIdle", pacedProvider{then: never}, openai.Config{FirstByteTimeout: time.Hour, IdleTimeout: time.Second, DataTimeout: -1}, "first_byte_timeout", "the provider sent nothing for 1h0m0s", time.Hour},
		{"ReadsOfNothing", pacedProvider{beats: []beat{{time.Minute, ""}}, then: never}, openai.Config{FirstByteTimeout: time.Hour, IdleTimeout: time.Second, DataTimeout: -1}, "first_byte_timeout", "the provider sent nothing for 1h0m0s", time.Hour},
		{"Idle", pacedProvider{beats: []beat{{0, text("a")}}, then: never}, openai.Config{FirstByteTimeout: time.Second, IdleTimeout: time.Hour, DataTimeout: -1}, "idle_timeout", "the provider went silent for 1h0m0s", time.Hour},
		{
			"KeepAlivesWithoutData", pacedProvider{then: beat{5 * time.Second, ping}}, openai.Config{DataTimeout: 12 * time.Minute},
			"data_timeout", "the provider sent nothing but keep-alives for 12m0s", 12 * time.Minute,
		},
		{
			"KeepAlivesWithoutDataByDefault", pacedProvider{then: beat{5 * time.Second, ping}}, openai.Config{},
			"data_timeout", "the provider sent nothing but keep-alives for 10m0s", 10 * time.Minute,
		},
		{
			"EmptyDataWithoutData", pacedProvider{beats: []beat{{5 * time.Second, text("a")}}, then: beat{5 * time.Second, "data:\n\n"}}, openai.Config{DataTimeout: time.Minute},
			"data_timeout", "the provider sent nothing but keep-alives for 1m0s", 65 * time.Second,
		},
		{
			"DataNowAndThen", pacedProvider{beats: []beat{{50 * time.Second, text("a")}, {50 * time.Second, ping}, {50 * time.Second, text("b")}, {50 * time.Second, stop}}},
			openai.Config{DataTimeout: 110 * time.Second}, "", "", 200 * time.Second,
		},
		{"KeepAlivesBehindTheFinish", pacedProvider{beats: []beat{{0, text("a") + stop}}, then: beat{4 * time.Second, ping}}, openai.Config{}, "", "", time.Minute},
		{"FramesBehindTheFinish", pacedProvider{beats: []beat{{0, text("a")}}, then: beat{4 * time.Second, stop}}, openai.Config{}, "", "", 64 * time.Second},
		{
			"AFloodBehindTheFinish", pacedProvider{beats: []beat{{0, text("a") + stop}}, then: beat{time.Second, strings.Repeat(stop, 10)}}, openai.Config{IdleTimeout: -1}, "", "", time.Minute,
		},
		{
			"ARefusalThatTrickles", pacedProvider{status: 503, header: http.Header{"Retry-After": {"7"}}, then: beat{time.Second, "<"}}, openai.Config{},
			"", "the provider answered 503 Service Unavailable", 10 * time.Second,
		},
		{"ARefusalThatStalls", pacedProvider{status: 401, beats: []beat{{0, "{"}}, then: never}, openai.Config{IdleTimeout: time.Second}, "", "the provider answered 401 Unauthorized", time.Second},
		{"ARefusalWithoutEnd", pacedProvider{status: 401, then: beat{0, strings.Repeat("<p>", 1000)}}, openai.Config{}, "", "the provider answered 401 Unauthorized", 0},
		{"ARefusalWithoutABody", pacedProvider{status: 401, then: never}, openai.Config{FirstByteTimeout: -1, IdleTimeout: -1}, "", "the provider answered 401 Unauthorized", 10 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				got, err := play(t.Context(), tt.provider.model(t, tt.cfg), hello())
				if took := time.Since(start); took != tt.took {
					t.Errorf("took %v, want %v", took, tt.took)
				}
				if tt.message == "" {
					if err != nil || !strings.HasSuffix(got, "finish: stop (stop) 0/0") {
						t.Errorf("got %q and error %v, want a whole answer", got, err)
					}
					return
				}
				me := wantModelError(t, err)
				if me.Code != tt.code || me.Message != tt.message || me.Retryable != (tt.provider.status != 401) || me.Status != tt.provider.status && tt.provider.status > 0 {
					t.Errorf("got %+v", me)
				}
				if wait := tt.provider.header.Get("Retry-After"); wait != "" && me.RetryAfter != 7*time.Second {
					t.Errorf("is told to wait %v", me.RetryAfter)
				}
			})
		})
	}
}

func TestASlowHookIsNotASilentProvider(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := pacedProvider{headers: 50 * time.Second, beats: []beat{{9 * time.Second, text("a") + stop}}}.model(t, openai.Config{})
		req, err := m.Request(hello())
		if err != nil {
			t.Fatal(err)
		}
		got, err := transcribe(m.Send(t.Context(), hello(), req, func(context.Context, loop.ProviderResponse) error {
			<-time.After(time.Hour)
			return nil
		}))
		if err != nil || got != "text/1: a\nfinish: stop (stop) 0/0" {
			t.Errorf("got %q and error %v", got, err)
		}
	})
}

// TestCancelEndsACallAtOnce runs in a bubble that fails when a goroutine is
// left behind.
func TestCancelEndsACallAtOnce(t *testing.T) {
	t.Parallel()
	never := beat{pause: -1}
	for name, p := range map[string]pacedProvider{
		"BeforeHeaders":   {headers: -1},
		"BeforeAnyByte":   {then: never},
		"MidStream":       {beats: []beat{{0, text("a")}}, then: never},
		"AmongKeepAlives": {then: beat{7 * time.Second, ping}},
		"InARefusal":      {status: 503, then: never},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				m := p.model(t, openai.Config{FirstByteTimeout: -1, IdleTimeout: -1, DataTimeout: time.Hour})
				var cancelled time.Time
				time.AfterFunc(5*time.Second, func() { cancelled = time.Now(); cancel() })
				_, err := play(ctx, m, hello())
				if !errors.Is(err, context.Canceled) || !time.Now().Equal(cancelled) {
					t.Errorf("got error %v %v after the cancel", err, time.Since(cancelled))
				}
			})
		})
	}
}
