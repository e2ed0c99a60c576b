package loop_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// masks takes secrets out of what a provider says beside its answer.
type masks struct{ fails bool }

func (masks) OnChunk(stream.Chunk) stream.Verdict { return stream.Continue() }

func (masks) OnEnd(stream.Summary) {}

func (m masks) Clean(text string) (string, bool) {
	return strings.ReplaceAll(text, "secret", "[s]"), !m.fails
}

// leavesInClean ends the goroutine that asks it.
type leavesInClean struct{ masks }

func (leavesInClean) Clean(text string) (string, bool) {
	runtime.Goexit()
	return text, true
}

// TestAProvidersErrorIsCleanedAsItsAnswerIs: a provider may repeat what it was asked
// or has said. In the run, the events and the worker's log is what observers leave of it.
func TestAProvidersErrorIsCleanedAsItsAnswerIs(t *testing.T) {
	t.Parallel()
	const withheld = "the model call failed; what the provider says of it cannot be redacted, and is not kept"
	refuses := &loop.ModelError{Status: 400, Code: "secret_code", Message: "a secret", Err: errors.New("the secret")}
	for name, c := range map[string]struct {
		observer stream.Observer
		err      error
		want     string
		code     string
	}{
		"cleaned":               {masks{}, refuses, "a [s]", "[s]_code"},
		"cannot be":             {masks{fails: true}, refuses, withheld, ""},
		"nobody can":            {looptest.Observer(func(stream.Chunk) stream.Verdict { return stream.Continue() }), refuses, withheld, ""},
		"nobody is there":       {nil, refuses, withheld, ""},
		"one is gone":           {leavesInClean{}, refuses, "the observer masks stopped the model's answer: The observer masks failed (panic), so the answer was stopped.", ""},
		"an error of the model": {masks{}, errors.New("lost the secret"), "the model call failed; the worker's log has the cause", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var logged bytes.Buffer
				b := looptest.NewBench(looptest.NewLog(), looptest.Model(func(_ context.Context, _ loop.ModelRequest, yield func(stream.Chunk, error) bool) {
					yield(stream.Chunk{}, c.err)
				}))
				b.Engine.Logger = slog.New(slog.NewTextHandler(&logged, nil))
				r := watches("masks", nil)
				r.OnStop = stream.StopFail
				r.Redacting, r.New = true, func(stream.Call) stream.Observer { return c.observer }
				b.Observe(t, r)
				j := b.Start(t, b.Session(t), "hi")
				b.Advance(t, j)
				events, _ := checked(t, b, j.SessionID)
				if p := only[event.RunFailed](t, events); p.Error != c.want || p.Code != c.code {
					t.Errorf("the run says %q %q; want %q %q", p.Code, p.Error, c.code, c.want)
				}
				for _, e := range events {
					if bytes.Contains(e.Payload, []byte("secret")) {
						t.Errorf("%s has %s", e.Type, e.Payload)
					}
				}
				if strings.Contains(logged.String(), "secret") || name != "one is gone" && !strings.Contains(logged.String(), "model call failed") {
					t.Errorf("the log says %s", logged.String())
				}
			})
		})
	}
}
