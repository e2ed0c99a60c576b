package webhook_test

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/webhook"
)

func TestEverySecretSigns(t *testing.T) {
	t.Parallel()
	second := "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))
	now := time.Unix(1900000000, 5)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		var want []string
		for _, text := range []string{secret, second} {
			key, _ := base64.StdEncoding.DecodeString(text[6:])
			mac := hmac.New(sha256.New, key)
			_, _ = fmt.Fprintf(mac, "%s.%d.%s", r.Header.Get("webhook-id"), now.Unix(), raw)
			want = append(want, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
		}
		expect(t, "signatures", r.Header.Get("webhook-signature"), strings.Join(want, " "))
		expect(t, "timestamp", r.Header.Get("webhook-timestamp"), strconv.FormatInt(now.Unix(), 10))
		expect(t, "method", r.Method+" "+r.URL.String()+" "+r.Header.Get("Content-Type"), "POST /gate application/json")
		for _, name := range []string{"Cookie", "Authorization", "Idempotency-Key", "Referer", "X-Forwarded-For"} {
			if r.Header.Values(name) != nil {
				t.Errorf("it sends %s", name)
			}
		}
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "b"})
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"id":%q,"action":"continue"}`, r.Header.Get("webhook-id"))
	})
	cfg := config(t, s.URL+"/gate")
	other, err := webhook.ParseSecret(second)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Secrets, cfg.Now = append(cfg.Secrets, other), func() time.Time { return now }
	gate := open(t, cfg).Hooks().BeforeToolCall
	for range 2 { // the second has no cookie either
		v, d := ask(t, gate, calling("refund"))
		expect(t, d.Payload.Reason, v.Action, hooks.ActionContinue)
	}
}

func TestATrustedCertificateIsAskedOverTLS(t *testing.T) {
	t.Parallel()
	s := httptest.NewTLSServer(says(t, allows))
	t.Cleanup(s.Close)
	cfg := config(t, s.URL)
	cfg.CA = certificate(t, s)
	v, d := ask(t, open(t, cfg).Hooks().BeforeToolCall, calling("refund"))
	expect(t, d.Payload.Reason, v.Action, hooks.ActionContinue)
}

// TestAConnectionIsUsedAgain, and one that died between two questions is
// replaced: the receiver is asked under the same id then.
func TestAConnectionIsUsedAgain(t *testing.T) {
	t.Parallel()
	var (
		mu          sync.Mutex
		connections int
		ids         []string
	)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		ids = append(ids, r.Header.Get("webhook-id"))
		if len(ids) == 3 { // it dies with the question on it, and says nothing
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Errorf("hijack: %v", err)
				return
			}
			_ = conn.Close()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"id":%q,"action":"continue"}`, r.Header.Get("webhook-id"))
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			mu.Lock()
			defer mu.Unlock()
			connections++
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	gate := open(t, config(t, s.URL)).Hooks().BeforeToolCall
	for _, subject := range []string{"a", "b", "c"} {
		v, d, err := askIn(t.Context(), gate, calling("refund"), subject)
		if err != nil || v.Action != hooks.ActionContinue {
			t.Errorf("%s: %s, %s, %v", subject, v.Action, d.Payload.Reason, err)
		}
	}
	mu.Lock()
	t.Cleanup(mu.Unlock)
	if len(ids) != 4 || ids[0] == ids[1] || ids[2] != ids[3] || connections != 2 {
		t.Errorf("%d connections, asked as %q", connections, ids)
	}
}

// TestANewConnectionIsNotTriedAgain: a receiver that is there and says nothing
// is asked once.
func TestANewConnectionIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	var visits atomic.Int64
	url := talk(t, func(conn net.Conn, _ <-chan struct{}) {
		visits.Add(1)
		_, _ = http.ReadRequest(bufio.NewReader(conn))
	})
	v, d := ask(t, open(t, config(t, url)).Hooks().BeforeToolCall, calling("refund"))
	closed(t, v, d, hooks.OutcomeError, webhook.CodeConnectionLost)
	expect(t, "visits", visits.Load(), 1)
}

// held is a receiver that holds questions until release, and tells how many it
// has.
type held struct {
	url     string
	arrived chan struct{}
	release func()
	visits  atomic.Int64
}

func hold(t testing.TB) *held {
	t.Helper()
	h := &held{arrived: make(chan struct{}, 100)}
	gate := make(chan struct{})
	h.release = sync.OnceFunc(func() { close(gate) })
	h.url = serve(t, func(w http.ResponseWriter, r *http.Request) {
		h.visits.Add(1)
		h.arrived <- struct{}{}
		<-gate
		says(t, allows)(w, r)
	}).URL
	t.Cleanup(h.release) // before the server's end, which waits for its answers
	return h
}

// inBackground asks, and has the decision when it is there.
func inBackground(ctx context.Context, gate hooks.BeforeToolCallFunc, subject string) <-chan hooks.Decision {
	out := make(chan hooks.Decision, 1)
	go func() {
		_, d, _ := askIn(ctx, gate, calling("refund"), subject)
		out <- d
	}()
	return out
}

// TestOnlySoManyAreAskedAtOnce: the next waits, and what is too many fails at
// once.
func TestOnlySoManyAreAskedAtOnce(t *testing.T) {
	t.Parallel()
	h := hold(t)
	cfg := config(t, h.url)
	cfg.Concurrency, cfg.Queue = 1, 1
	w := open(t, cfg)
	first := inBackground(t.Context(), w.Hooks().BeforeToolCall, "first")
	<-h.arrived
	// One of the two waits, and the other is one too many.
	second, third := inBackground(t.Context(), w.Hooks().BeforeToolCall, "second"), inBackground(t.Context(), w.Hooks().BeforeToolCall, "third")
	var full hooks.Decision
	waiting := second
	select {
	case full = <-third:
	case full = <-second:
		waiting = third
	}
	if full.Outcome != hooks.OutcomeUnavailable || full.ReasonCode != webhook.CodeQueueFull || full.Action != hooks.ActionBlock {
		t.Errorf("%+v", full)
	}
	h.release()
	for who, one := range map[string]<-chan hooks.Decision{"first": first, "waiting": waiting} {
		d := <-one
		expect(t, who+": "+d.Payload.Reason, d.Action, hooks.ActionContinue)
	}
	expect(t, "visits", h.visits.Load(), 2)
}

// TestWhoWaitsForATurnInVainHasWaited: all of its time, by the ledger.
func TestWhoWaitsForATurnInVainHasWaited(t *testing.T) {
	t.Parallel()
	h := hold(t)
	cfg := config(t, h.url)
	cfg.Concurrency = 1
	cfg.Breaker.Failures = 1 // that one waited says nothing of the endpoint
	gate := open(t, cfg).Hooks()
	first := inBackground(t.Context(), gate.BeforeToolCall, "first")
	<-h.arrived
	hurried := hooks.Named("hurried", "1", gate.BeforeToolCall, hooks.TimeLimit(soon), hooks.OfKind(hooks.KindWebhook))
	v, d := ask(t, hurried, calling("refund"))
	closed(t, v, d, hooks.OutcomeTimeout, "hook.timeout")
	if d.Queue < soon/2 || d.Queue > d.Latency {
		t.Errorf("%s of %s in the queue", d.Queue, d.Latency)
	}
	h.release()
	d = <-first
	expect(t, d.Payload.Reason, d.Action, hooks.ActionContinue)
	expect(t, "visits", h.visits.Load(), 1)
	v, d = ask(t, gate.BeforeToolCall, calling("refund"))
	expect(t, d.Payload.Reason, v.Action, hooks.ActionContinue)
}

// TestARunThatEndsLeavesNothingBehind: neither a question nor a slot, and it
// says nothing of the endpoint.
func TestARunThatEndsLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	h := hold(t)
	cfg := config(t, h.url)
	cfg.Concurrency, cfg.Breaker.Failures = 1, 1
	gate := open(t, cfg).Hooks().BeforeToolCall
	ctx, cancel := context.WithCancel(t.Context())
	asking := make(chan error, 1)
	go func() {
		_, _, err := askIn(ctx, gate, calling("refund"), "first")
		asking <- err
	}()
	<-h.arrived
	cancel()
	if err := <-asking; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	h.release()
	v, d := ask(t, gate, calling("refund"))
	expect(t, d.Payload.Reason, v.Action, hooks.ActionContinue)
}

// TestAnEndpointThatFailsIsLeftAlone for a while, and then asked once.
func TestAnEndpointThatFailsIsLeftAlone(t *testing.T) {
	t.Parallel()
	var (
		visits atomic.Int64
		broken atomic.Bool
		now    atomic.Int64 // seconds
	)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		visits.Add(1)
		if broken.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		says(t, allows)(w, r)
	})
	cfg := config(t, s.URL)
	cfg.Breaker = webhook.Breaker{Failures: 3, Open: 10 * time.Second}
	cfg.Now = func() time.Time { return time.Unix(now.Load(), 0) }
	gate := open(t, cfg).Hooks().BeforeToolCall
	asked := func(code string, arrived int64) {
		t.Helper()
		before := visits.Load()
		v, d := ask(t, gate, calling("refund"))
		if (v.Action == hooks.ActionContinue) != (code == "") || d.ReasonCode != code || visits.Load()-before != arrived {
			t.Errorf("after %ds: %s %s (%s), %d questions; want %s, %d", now.Load(), v.Action, d.ReasonCode, d.Payload.Reason, visits.Load()-before, code, arrived)
		}
		if code == webhook.CodeCircuitOpen {
			closed(t, v, d, hooks.OutcomeUnavailable, code)
		}
	}
	now.Store(1)
	asked("", 1)
	broken.Store(true)
	asked("status_503", 1)
	asked("status_503", 1)
	broken.Store(false)
	asked("", 1) // the count begins again
	broken.Store(true)
	for range 3 {
		asked("status_503", 1)
	}
	asked(webhook.CodeCircuitOpen, 0)
	now.Store(10)
	asked(webhook.CodeCircuitOpen, 0)
	now.Store(11)
	asked("status_503", 1) // the probe
	asked(webhook.CodeCircuitOpen, 0)
	now.Store(21)
	broken.Store(false)
	asked("", 1) // the probe
	asked("", 1)
	broken.Store(true)
	asked("status_503", 1) // one failure opens nothing
	asked("status_503", 1)
}

// TestOneQuestionProbes while the others are not let through, and one that is
// given up leaves the probe to the next.
func TestOneQuestionProbes(t *testing.T) {
	t.Parallel()
	var (
		now    atomic.Int64
		broken atomic.Bool
	)
	h := hold(t)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		reads(t, r) // from here on the server looks whether who asked is there
		h.arrived <- struct{}{}
		<-r.Context().Done()
	})
	cfg := config(t, s.URL)
	cfg.Breaker = webhook.Breaker{Failures: 1, Open: time.Second}
	cfg.Now = func() time.Time { return time.Unix(now.Load(), 0) }
	gate := open(t, cfg).Hooks().BeforeToolCall
	broken.Store(true)
	ask(t, gate, calling("refund"))
	broken.Store(false)
	now.Store(1)
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		probe := inBackground(ctx, gate, "probe")
		for arrived := false; !arrived; {
			select {
			case <-h.arrived:
				arrived = true
			case d := <-probe: // the one before is about to leave its place
				expect(t, "code", d.ReasonCode, webhook.CodeCircuitOpen)
				probe = inBackground(ctx, gate, "probe")
			}
		}
		v, d := ask(t, gate, calling("refund"))
		closed(t, v, d, hooks.OutcomeUnavailable, webhook.CodeCircuitOpen)
		cancel()
		<-probe
	}
}

// TestAnEndpointThatHangsIsNobodyElsesTrouble.
func TestAnEndpointThatHangsIsNobodyElsesTrouble(t *testing.T) {
	t.Parallel()
	h := hold(t)
	hanging := inBackground(t.Context(), open(t, config(t, h.url)).Hooks().BeforeToolCall, "x")
	<-h.arrived
	s := serve(t, says(t, allows))
	v, d := ask(t, open(t, config(t, s.URL)).Hooks().BeforeToolCall, calling("refund"))
	expect(t, d.Payload.Reason, v.Action, hooks.ActionContinue)
	h.release()
	<-hanging
}

// TestAnOpenFailureIsTheOperatorsWord: then, and only then, a failure lets
// through.
func TestAnOpenFailureIsTheOperatorsWord(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	cfg := config(t, s.URL)
	cfg.Options = append(cfg.Options, hooks.OnFailureOpen())
	v, d := ask(t, open(t, cfg).Hooks().BeforeToolCall, calling("refund"))
	if v.Action != hooks.ActionContinue || !d.FailedOpen || d.Outcome != hooks.OutcomeError || d.ReasonCode != "status_418" {
		t.Errorf("%s, %+v", v.Action, d)
	}
}

// TestAHookAroundAWebhookAsksUnderItsOwnId: two calls are two ids, or a receiver
// that knows repeats by them would answer the second with the first.
func TestAHookAroundAWebhookAsksUnderItsOwnId(t *testing.T) {
	t.Parallel()
	ids := make(chan string, 3)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		ids <- r.Header.Get("webhook-id")
		says(t, allows)(w, r)
	})
	outer := hooks.Named("outer", "1", open(t, config(t, s.URL)).Hooks().BeforeToolCall)
	for _, subject := range []string{"a", "b", "a"} {
		if v, _, err := askIn(t.Context(), outer, calling("refund"), subject); err != nil || v.Action != hooks.ActionContinue {
			t.Errorf("%s, %v", v.Action, err)
		}
	}
	if a, b, again := <-ids, <-ids, <-ids; a == b || a != again {
		t.Errorf("asked as %s, %s, %s", a, b, again)
	}
}
