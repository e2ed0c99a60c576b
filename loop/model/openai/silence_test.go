package openai_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/model/openai"
)

func TestASlowAnswerHasNoTotalLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		got, err := play(t.Context(), pacedProvider{beats: bytewise(fixture(t, "finish_no_done"), time.Second)}.model(t, openai.Config{}), hello())
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
		_, err := play(ctx, pacedProvider{beats: bytewise(strings.Repeat(":\n", 1000), 20*time.Second)}.model(t, openai.Config{DataTimeout: -1}), hello())
		if err == nil || err.Error() != context.DeadlineExceeded.Error() {
			t.Errorf("got error %v, want that of the caller's hour", err)
		}
	})
}

func TestASlowConsumerIsNotASilentProvider(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var closed atomic.Int32
		m := pacedProvider{beats: bytewise(fixture(t, "finish_and_done"), 0), closed: &closed}.model(t, openai.Config{})
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
				m := pacedProvider{beats: bytewise(fixture(t, "finish_no_done"), 0), then: beat{pause: -1}}.model(t, openai.Config{IdleTimeout: limit})
				got, err := play(t.Context(), m, hello())
				if err != nil || got != "text/1: The total is 42.\nfinish: stop (stop) 0/0" || time.Since(start) != 5*time.Second {
					t.Errorf("got %q and error %v after %v", got, err, time.Since(start))
				}
			})
		})
	}
}
