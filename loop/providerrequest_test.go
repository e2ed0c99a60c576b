package loop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// TestWhatIsAskedAboutIsSentOverAConflict: the step is planned again on a
// conversation that has gone on, its hooks are asked once, and the log says of
// the call what was sent.
func TestWhatIsAskedAboutIsSentOverAConflict(t *testing.T) {
	t.Parallel()
	for name, only := range map[string]func(hooks.Hooks) hooks.Hooks{
		"both":    func(h hooks.Hooks) hooks.Hooks { return h },
		"headers": func(h hooks.Hooks) hooks.Hooks { return hooks.Hooks{BeforeProviderHeaders: h.BeforeProviderHeaders} },
		"request": func(h hooks.Hooks) hooks.Hooks { return hooks.Hooks{BeforeProviderRequest: h.BeforeProviderRequest} },
		"answers": func(h hooks.Hooks) hooks.Hooks { return hooks.Hooks{AfterProviderResponse: h.AfterProviderResponse} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var a questions
			p := &looptest.Provider{Plays: says("hello")}
			b := looptest.NewBench(looptest.NewLog(), p)
			b.Use(only(a.hooks()))
			j := b.Start(t, b.Session(t), "hi")
			var once sync.Once
			hooked(b, func(ap loop.Append) {
				if has(ap, event.TypeModelRequested) {
					once.Do(func() {
						write(t, b, j, 0, event.MessageCreated{MessageID: "m", Role: hooks.RoleUser, Parts: []hooks.Part{{Type: hooks.PartText, Text: "psst"}}})
					})
				}
			})
			if run := b.Advance(t, j); run.Status != loop.RunCompleted {
				t.Errorf("run %+v", run)
			}
			events, _ := checked(t, b, j.SessionID)
			for gate, n := range a.counts() {
				if n > 1 {
					t.Errorf("gate %d was asked %d times", gate, n)
				}
			}
			var body struct{ Texts []string }
			if err := json.Unmarshal([]byte(p.Sent()[0].Body), &body); err != nil {
				t.Fatal(err)
			}
			told := payloads[event.ModelRequested](t, events)[0].MessageIDs
			if len(told) != len(body.Texts) || slices.Contains(told, "m") != slices.Contains(body.Texts, "psst") {
				t.Errorf("sent %q, and the log says %q", body.Texts, told)
			}
			if name == "request" && a.requests[0].Body != p.Sent()[0].Body {
				t.Errorf("asked about %s, sent %s", a.requests[0].Body, p.Sent()[0].Body)
			}
		})
	}
}

// TestRequestThatCannotBeWrittenIsNotSentAnotherWay: the call fails, and no
// hook is asked about what there is not.
func TestRequestThatCannotBeWrittenIsNotSentAnotherWay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		writes func(loop.ModelRequest) (loop.ProviderRequest, error)
		want   string
	}{
		"refused": {func(loop.ModelRequest) (loop.ProviderRequest, error) {
			return loop.ProviderRequest{}, &loop.ModelError{Code: "invalid_request", Message: "a schema is no JSON"}
		}, "a schema is no JSON"},
		"failed": {func(loop.ModelRequest) (loop.ProviderRequest, error) {
			return loop.ProviderRequest{}, errors.New("secret")
		}, "the worker's log has the cause"},
		"panicked": {func(loop.ModelRequest) (loop.ProviderRequest, error) { panic("secret") }, "the worker's log has the cause"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var a questions
			p := uncalledProvider(t)
			p.Writes = c.writes
			b := looptest.NewBench(looptest.NewLog(), p)
			retry(b, loop.Retry{Attempts: 5})
			h := a.hooks()
			h.TransformContext = func(context.Context, hooks.TransformContext) (hooks.TransformContextResult, error) {
				return hooks.TransformContextResult{Action: hooks.ActionContinue}, nil
			}
			b.Use(h)
			j := b.Start(t, b.Session(t), "hi")
			if run := b.Advance(t, j); run.Status != loop.RunFailed || run.Reason != string(event.FailModel) || !strings.Contains(run.Error, c.want) {
				t.Errorf("run %+v; want it failed: %s", run, c.want)
			}
			events, _ := checked(t, b, j.SessionID)
			want := []string{"TransformContext 1/1 continue, with model.requested"}
			if got := attempts(events, ledger(b, j.SessionID)); !slices.Equal(got, want) || a.counts() != [3]int{} {
				t.Errorf("ledger %q, asked %v; want %q", got, a.counts(), want)
			}
			goesOn(t, b, j.SessionID)
		})
	}
}

// TestProviderThatRepeatsAHeaderTellsNoValue: neither in what is stored, nor to
// the hooks, nor in the log.
func TestProviderThatRepeatsAHeaderTellsNoValue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const secret = "gw-BBBB2222"
		var a questions
		var logged bytes.Buffer
		calls := 0
		p := &looptest.Provider{
			Begins: func(loop.ModelRequest) loop.ProviderResponse {
				return loop.ProviderResponse{Status: 200, Headers: []hooks.Header{{Name: "Www-Authenticate", Value: "token " + secret + " of Bearer " + secret}, {Name: "X-Try", Value: "1 of 2"}}}
			},
			Plays: func(_ context.Context, _ loop.ModelRequest, yield func(stream.Chunk, error) bool) {
				if calls++; calls == 3 {
					panic("sent X-Gateway: " + secret)
				}
				yield(stream.Chunk{}, &loop.ModelError{Status: 401, Code: "bad/" + secret, Message: "token " + secret + " is wrong", Retryable: true})
			},
		}
		b := looptest.NewBench(looptest.NewLog(), p)
		b.Engine.Logger = slog.New(slog.NewTextHandler(&logged, nil))
		retry(b, loop.Retry{Attempts: 5})
		h := a.hooks()
		h.BeforeProviderHeaders = func(context.Context, hooks.BeforeProviderHeaders) (hooks.BeforeProviderHeadersResult, error) {
			return hooks.BeforeProviderHeadersResult{Action: hooks.ActionTransform, Set: []hooks.Header{{Name: "X-Gateway", Value: "Bearer " + secret}, {Name: "X-Try", Value: "1"}}}, nil
		}
		b.Use(h)
		j := b.Start(t, b.Session(t), "hi")
		if run := b.Advance(t, j); run.Status != loop.RunFailed || calls != 3 {
			t.Errorf("run %+v after %d calls", run, calls)
		}
		events, _ := checked(t, b, j.SessionID)
		voids := payloads[event.AssistantDiscarded](t, events)
		if len(voids) != 2 || voids[0].Error != "token [header] is wrong" || voids[0].Code != "bad/[header]" {
			t.Errorf("discarded %+v", voids)
		}
		want := []hooks.Header{{Name: "Www-Authenticate", Value: "token [header] of [header]"}, {Name: "X-Try", Value: "1 of 2"}}
		if got := a.responses[0].Headers; !slices.Equal(got, want) {
			t.Errorf("the hook saw %q; want %q", got, want)
		}
		if all := stored(events, ledger(b, j.SessionID)) + logged.String(); strings.Contains(all, secret) {
			t.Errorf("the value is in %s", all)
		}
		if n := strings.Count(logged.String(), "model call failed"); n != 3 {
			t.Errorf("%d lines about failures in the log: %s", n, logged.String())
		}
		for _, s := range p.Sent() {
			if !slices.Contains(s.Headers, hooks.Header{Name: "X-Gateway", Value: "Bearer " + secret}) {
				t.Errorf("sent %q", s.Headers)
			}
		}
	})
}
