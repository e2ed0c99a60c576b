package openai_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/loop/model/openai"
)

func TestSilenceEndsTheCall(t *testing.T) {
	t.Parallel()
	begun := fixture(t, "eof_no_finish")
	tests := []struct {
		name string
		play playback
		cfg  openai.Config
		code string
		text string
	}{
		{"NoHeaders", playback{beforeHeaders: true}, openai.Config{FirstByteTimeout: 50 * time.Millisecond}, "first_byte_timeout", ""},
		{"NoByte", playback{end: "stall"}, openai.Config{FirstByteTimeout: 50 * time.Millisecond}, "first_byte_timeout", ""},
		{"NoFurtherByte", playback{body: begun, end: "stall"}, openai.Config{IdleTimeout: 50 * time.Millisecond}, "idle_timeout", "text/1: The total is 4\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, tt.play)
			text, err := play(t.Context(), f.model(t, tt.cfg), hello())
			if me := wantModelError(t, err); me.Code != tt.code || !me.Retryable || !strings.Contains(me.Message, "50ms") || text != tt.text {
				t.Errorf("got %+v after %q", me, text)
			}
			f.given(t) // the connection was given up
		})
	}
}

func TestSilenceBehindAFinishIsAWholeAnswer(t *testing.T) {
	t.Parallel()
	f := newFake(t, playback{body: fixture(t, "finish_no_done"), end: "stall"})
	got, err := play(t.Context(), f.model(t, openai.Config{IdleTimeout: 50 * time.Millisecond}), hello())
	if err != nil || got != "text/1: The total is 42.\nfinish: stop (stop) 0/0" {
		t.Errorf("got %q and error %v", got, err)
	}
	f.given(t)
}

func TestCancelEndsAStalledCall(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]playback{
		"BeforeHeaders": {beforeHeaders: true},
		"MidStream":     {body: fixture(t, "eof_no_finish"), end: "stall"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, p)
			m := f.model(t, openai.Config{FirstByteTimeout: -1, IdleTimeout: -1})
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, err := play(ctx, m, hello()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got error %v", err)
			}
			f.given(t)
		})
	}
	f := newFake(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := play(ctx, f.model(t, openai.Config{}), hello()); !errors.Is(err, context.Canceled) || len(f.sent()) > 0 {
		t.Errorf("after cancel: got error %v and %d requests", err, len(f.sent()))
	}
}

func TestAConsumerThatStopsGivesTheConnectionUp(t *testing.T) {
	t.Parallel()
	f := newFake(t, playback{body: fixture(t, "eof_no_finish"), end: "stall"}, playback{body: fixture(t, "finish_and_done")})
	var logged bytes.Buffer
	m := f.model(t, openai.Config{Logger: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	for _, err := range m.Stream(t.Context(), hello()) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	if !strings.Contains(logged.String(), `outcome="consumer stopped"`) {
		t.Errorf("logged %s", logged.String())
	}
	f.given(t)
	chunks := 0
	for _, err := range m.Stream(t.Context(), hello()) { // to stop at the finish is fine too
		if err != nil {
			t.Fatal(err)
		}
		if chunks++; chunks == 3 {
			break
		}
	}
	if chunks != 3 {
		t.Errorf("got %d chunks, want two deltas and the finish", chunks)
	}
}
