package anthropic_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/loop/model/anthropic"
)

// slowBody gives one byte per pause, and then waits for its context.
type slowBody struct {
	ctx   context.Context //nolint:containedctx // a response's body has its request's
	rest  string
	pause time.Duration
}

func (b *slowBody) Read(p []byte) (int, error) {
	var next <-chan time.Time
	if b.rest != "" {
		next = time.After(b.pause)
	}
	select {
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	case <-next:
	}
	p[0], b.rest = b.rest[0], b.rest[1:]
	return 1, nil
}

// slow is a provider without a network, so that hours pass in no time under
// synctest.
func slow(t *testing.T, status int, body string, pause time.Duration, cfg anthropic.Config) *anthropic.Model {
	cfg.BaseURL = "http://provider.invalid"
	cfg.HTTPClient = through(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Body: io.NopCloser(&slowBody{r.Context(), body, pause})}, nil
	})
	return newModel(t, cfg)
}

func TestASlowAnswerHasNoTotalLimit(t *testing.T) {
	t.Parallel()
	body := fixture(t, "keepalive.sse")
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		got, err := transcribe(slow(t, http.StatusOK, body, time.Second, anthropic.Config{}).Stream(t.Context(), hello()))
		if err != nil || got != "text/1: Hello\nfinish: stop (end_turn) 11/7" || time.Since(start) < 10*time.Minute {
			t.Errorf("got %q and error %v after %v", got, err, time.Since(start))
		}
	})
}

func TestASlowConsumerIsNotASilentProvider(t *testing.T) {
	t.Parallel()
	body := fixture(t, "keepalive.sse")
	synctest.Test(t, func(t *testing.T) {
		for _, err := range slow(t, http.StatusOK, body, 0, anthropic.Config{}).Stream(t.Context(), hello()) {
			if err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Hour)
		}
	})
}

func TestHowLongAProviderIsWaitedFor(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status int
		body   string
		pause  time.Duration
		code   string
		took   time.Duration
	}{
		"NoByte":        {http.StatusOK, "", 0, "first_byte_timeout", time.Minute},
		"Idle":          {http.StatusOK, ":\n", time.Second, "idle_timeout", 62 * time.Second},
		"Pings":         {http.StatusOK, strings.Repeat(event(`{"type":"ping"}`), 100), time.Second, "data_timeout", 10 * time.Minute},
		"SlowRefusal":   {http.StatusServiceUnavailable, strings.Repeat("<", 100), time.Second, "", 10 * time.Second},
		"SilentRefusal": {http.StatusUnauthorized, "", 0, "", 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				_, err := transcribe(slow(t, tt.status, tt.body, tt.pause, anthropic.Config{}).Stream(t.Context(), hello()))
				if me := wantModelError(t, err); me.Code != tt.code || me.Status != tt.status || time.Since(start) != tt.took {
					t.Errorf("got %+v after %v", me, time.Since(start))
				}
			})
		})
	}
}

func TestHeadersAreNoFirstByte(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		m := newModel(t, anthropic.Config{BaseURL: "http://provider.invalid", HTTPClient: through(func(r *http.Request) (*http.Response, error) {
			<-time.After(40 * time.Second)
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(&slowBody{ctx: r.Context()})}, nil
		})})
		_, err := transcribe(m.Stream(t.Context(), hello()))
		if me := wantModelError(t, err); me.Code != "first_byte_timeout" || time.Since(start) != time.Minute {
			t.Errorf("got %+v after %v", me, time.Since(start))
		}
	})
}

// TestCancelEndsACallAtOnce runs in a bubble that fails when a goroutine is left
// behind.
func TestCancelEndsACallAtOnce(t *testing.T) {
	t.Parallel()
	part := opening(0, `{"type":"text","text":"a"}`)
	for name, tt := range map[string]struct {
		status int
		body   string
	}{
		"BeforeAnyByte": {http.StatusOK, ""}, "MidStream": {http.StatusOK, part}, "InARefusal": {http.StatusServiceUnavailable, "{"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				var cancelled time.Time
				time.AfterFunc(5*time.Second, func() { cancelled = time.Now(); cancel() })
				_, err := transcribe(slow(t, tt.status, tt.body, 0, anthropic.Config{FirstByteTimeout: -1, IdleTimeout: -1, DataTimeout: -1}).Stream(ctx, hello()))
				if !errors.Is(err, context.Canceled) || !time.Now().Equal(cancelled) {
					t.Errorf("got error %v %v after the cancel", err, time.Since(cancelled))
				}
			})
		})
	}
}
