package openai_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/model/openai"
)

// slowProvider answers with a body of one byte per pause, without a network,
// so that hours pass in no time under synctest.
type slowProvider struct {
	body  string
	pause time.Duration
	// stall, if it is set, follows the body instead of its end.
	stall bool
	// closed counts the bodies that were closed.
	closed *atomic.Int32
}

func (s slowProvider) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: &slowBody{slowProvider: s, done: r.Context().Done(), err: r.Context().Err}}, nil
}

type slowBody struct {
	slowProvider
	done <-chan struct{}
	err  func() error
}

func (b *slowBody) Read(p []byte) (int, error) {
	pause := time.NewTimer(b.pause)
	defer pause.Stop()
	switch {
	case b.body == "" && b.stall:
		<-b.done
		return 0, b.err()
	case b.body == "":
		return 0, io.EOF
	}
	select {
	case <-b.done:
		return 0, b.err()
	case <-pause.C:
	}
	n := copy(p[:1], b.body)
	b.body = b.body[n:]
	return n, nil
}

func (b *slowBody) Close() error {
	if b.closed != nil {
		b.closed.Add(1)
	}
	return nil
}

func (s slowProvider) model(t *testing.T, cfg openai.Config) *openai.Model {
	t.Helper()
	cfg.BaseURL, cfg.HTTPClient = "http://provider.invalid/v1", &http.Client{Transport: s}
	m, err := openai.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestASlowAnswerHasNoTotalLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		got, err := play(t.Context(), slowProvider{body: fixture(t, "finish_no_done"), pause: time.Second}.model(t, openai.Config{}), hello())
		if err != nil || got != "text/1: The total is 42.\nfinish: stop (stop) 0/0" {
			t.Errorf("got %q and error %v", got, err)
		}
		if took := time.Since(start); took < 10*time.Minute {
			t.Errorf("took %v, the test wants a long answer", took)
		}
	})
}

func TestKeepAlivesKeepACallAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		// A comment line takes 40 s, a byte 20 s.
		_, err := play(ctx, slowProvider{body: strings.Repeat(":\n", 1000), pause: 20 * time.Second}.model(t, openai.Config{}), hello())
		if err == nil || err.Error() != context.DeadlineExceeded.Error() {
			t.Errorf("got error %v, want that of the caller's hour", err)
		}
	})
}

func TestASlowConsumerIsNotASilentProvider(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var closed atomic.Int32
		m := slowProvider{body: fixture(t, "finish_and_done"), closed: &closed}.model(t, openai.Config{})
		last := stream.Chunk{}
		for c, err := range m.Stream(t.Context(), hello()) {
			if err != nil {
				t.Fatal(err)
			}
			last = c
			<-time.After(time.Hour)
		}
		if last.Kind != stream.KindFinish {
			t.Errorf("the last chunk was %+v", last)
		}
		if n := closed.Load(); n != 1 {
			t.Errorf("the body was closed %d times", n)
		}
	})
}

func TestAFinishedAnswerIsNotHeldUp(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]time.Duration{"NoLimit": -1, "LongLimit": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				m := slowProvider{body: fixture(t, "finish_no_done"), stall: true}.model(t, openai.Config{IdleTimeout: limit})
				got, err := play(t.Context(), m, hello())
				if err != nil || got != "text/1: The total is 42.\nfinish: stop (stop) 0/0" || time.Since(start) != 5*time.Second {
					t.Errorf("got %q and error %v after %v", got, err, time.Since(start))
				}
			})
		})
	}
}
