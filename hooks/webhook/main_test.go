package webhook_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/webhook"
	"github.com/seed-2ca4966b/agentd/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }

// secret is one for tests.
const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// config asks url before tool calls.
func config(t testing.TB, url string) webhook.Config {
	t.Helper()
	s, err := webhook.ParseSecret(secret)
	if err != nil {
		t.Fatal(err)
	}
	return webhook.Config{
		ID: "policy", URL: url, Gates: []hooks.Gate{hooks.GateBeforeToolCall}, Secrets: []webhook.Secret{s}, Allow: loopback,
		Options: []hooks.Option{hooks.TimeLimit(time.Minute)},
	}
}

func open(t testing.TB, cfg webhook.Config) *webhook.Webhook {
	t.Helper()
	w, err := webhook.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// serve is a receiver that does what h says.
func serve(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// talk is a receiver that is no HTTP server: it does with each connection what f
// says, and the connection ends with it. done is closed when the test ends.
func talk(t testing.TB, f func(conn net.Conn, done <-chan struct{})) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			f(conn, done)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		close(done)
		_ = l.Close()
		<-stopped
	})
	return "http://" + l.Addr().String()
}

// reads reads the question that a request has.
func reads(t testing.TB, r *http.Request) map[string]any {
	t.Helper()
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		t.Errorf("read the question: %v", err)
	}
	var q map[string]any
	if err := json.Unmarshal(raw, &q); err != nil {
		t.Errorf("%v: %s", err, raw)
	}
	return q
}

// says is a receiver that answers with text, in which ID is the question's.
func says(t testing.TB, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id, _ := reads(t, r)["id"].(string)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, strings.ReplaceAll(text, "ID", id))
	}
}

const allows = `{"id":"ID","action":"continue"}`

func calling(tool string) hooks.BeforeToolCall {
	return hooks.BeforeToolCall{
		RunRef: hooks.RunRef{TenantID: "acme", SessionID: "s", RunID: "r", Agent: "support"}, Turn: 2, Revision: 1,
		Call: hooks.ToolCall{ID: "c", Name: tool, Arguments: `{"a": "<&>"}`},
	}
}

// ask asks a gate of one hook as the loop does.
func ask[In hooks.Input[In, Out], Out hooks.Result](t testing.TB, f hooks.Func[In, Out], in In) (hooks.Verdict[In], hooks.Decision) {
	t.Helper()
	v, d, err := askIn(context.WithoutCancel(t.Context()), f, in, "x")
	if err != nil {
		t.Fatal(err)
	}
	return v, d
}

func askIn[In hooks.Input[In, Out], Out hooks.Result](ctx context.Context, f hooks.Func[In, Out], in In, subject string) (hooks.Verdict[In], hooks.Decision, error) {
	v, ds, err := hooks.Ask(ctx, &hooks.Asker{}, f, hooks.Position{SessionID: "s", RunID: "r", Subject: subject, Attempt: 1}, in, nil)
	if err != nil {
		return v, hooks.Decision{}, err
	}
	return v, ds[0], nil
}

// closed expects that the gate was closed since the hook failed in this way.
func closed(t testing.TB, v hooks.Verdict[hooks.BeforeToolCall], d hooks.Decision, o hooks.Outcome, code string) {
	t.Helper()
	if v.Action != hooks.ActionBlock || d.Action != hooks.ActionBlock || d.FailedOpen {
		t.Errorf("the gate is not closed: %s, %+v", v.Action, d)
	}
	if d.Outcome != o || d.ReasonCode != code || d.HookKind != hooks.KindWebhook {
		t.Errorf("%s %s of a %s (%s); want %s %s", d.Outcome, d.ReasonCode, d.HookKind, d.Payload.Reason, o, code)
	}
}

func expect[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
