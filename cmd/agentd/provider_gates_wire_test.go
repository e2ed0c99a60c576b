package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/model/openai"
	"github.com/seed-2ca4966b/agentd/loop/model/openai/openaitest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// providerKey is the credential of the provider in these tests.
const providerKey = "sk-test-AAAA1111"

// wiretap stands between a client and a server, and keeps what the client said,
// byte for byte.
type wiretap struct {
	url    string
	server string

	joined sync.WaitGroup
	mu     sync.Mutex
	said   []*bytes.Buffer // on each connection
}

// tapped listens to what is said to the server at base.
func tapped(t *testing.T, base string) *wiretap {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wiretap{server: u.Host}
	u.Host = l.Addr().String()
	w.url = u.String()
	w.joined.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			w.joined.Go(func() { w.listen(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		w.joined.Wait()
	})
	return w
}

func (w *wiretap) listen(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", w.server)
	if err != nil {
		return
	}
	said := &bytes.Buffer{}
	w.mu.Lock()
	w.said = append(w.said, said)
	w.mu.Unlock()
	var answers sync.WaitGroup
	answers.Go(func() {
		_, _ = io.Copy(client, server)
		client.Close()
	})
	_, _ = io.Copy(io.MultiWriter(lockedWriter{&w.mu, said}, server), client)
	server.Close()
	answers.Wait()
}

type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// all is what was said so far, a text per connection.
func (w *wiretap) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := []string{}
	for _, b := range w.said {
		out = append(out, b.String())
	}
	return out
}

// confidant keeps all that hooks at all gates of a model call were told.
type confidant struct {
	mu   sync.Mutex
	told []string
}

func (c *confidant) hear(in any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, fmt.Sprintf("%+v", in))
}

func (c *confidant) hooks() hooks.Hooks {
	const id = "confidant"
	return hooks.Hooks{
		TransformContext: hooks.Named(id, "1", func(_ context.Context, in hooks.TransformContext) (hooks.TransformContextResult, error) {
			c.hear(in)
			return hooks.TransformContextResult{Action: hooks.ActionContinue}, nil
		}),
		BeforeProviderHeaders: hooks.Named(id, "1", func(_ context.Context, in hooks.BeforeProviderHeaders) (hooks.BeforeProviderHeadersResult, error) {
			c.hear(in)
			return hooks.BeforeProviderHeadersResult{Action: hooks.ActionContinue}, nil
		}, hooks.InPhase(hooks.PhaseValidate)),
		BeforeProviderRequest: hooks.Named(id, "1", func(_ context.Context, in hooks.BeforeProviderRequest) (hooks.BeforeProviderRequestResult, error) {
			c.hear(in)
			return hooks.BeforeProviderRequestResult{Action: hooks.ActionContinue}, nil
		}, hooks.InPhase(hooks.PhaseValidate)),
		AfterProviderResponse: hooks.Named(id, "1", func(_ context.Context, in hooks.AfterProviderResponse) (hooks.AfterProviderResponseResult, error) {
			c.hear(in)
			return hooks.AfterProviderResponseResult{Action: hooks.ActionContinue}, nil
		}),
	}
}

// tapping gives a stack an agent whose provider is tapped.
func tapping(t *testing.T, p *openaitest.Provider) (*wiretap, stackOption) {
	t.Helper()
	w := tapped(t, p.URL)
	m, err := openai.New(openai.Config{BaseURL: w.url, APIKey: providerKey})
	if err != nil {
		t.Fatal(err)
	}
	// The connections are closed before the tap is joined.
	t.Cleanup(m.Close)
	return w, playing(m)
}

// TestWhatProviderHooksDecideIsOnTheWireAsItIs: beside it there is what HTTP
// needs, and the credential, which no hook has seen.
func TestWhatProviderHooksDecideIsOnTheWireAsItIs(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	const echo = "Bearer " + providerKey
	p := openaitest.Config{Key: providerKey}.New(t, openaitest.Text("Hello.").With("X-Echo", echo).With("Set-Cookie", "c="+providerKey))
	w, model := tapping(t, p)
	s := newStack(t, db, model)
	const body = "{ \"stream\": true,\n\t\"model\":\"other\", \"messages\": [{\"role\":\"user\",\"content\":\"<\\u00e9é>\"}], \"temperature\":1.10 }"
	var c confidant
	s.checked(t, hooks.Hooks{
		BeforeProviderHeaders: hooks.Named("headers", "1", func(context.Context, hooks.BeforeProviderHeaders) (hooks.BeforeProviderHeadersResult, error) {
			return hooks.BeforeProviderHeadersResult{
				Action: hooks.ActionTransform, Remove: []string{"user-agent"},
				Set: []hooks.Header{{Name: "x-trace-id", Value: " 7;\t\"a\" "}, {Name: "ACCEPT", Value: "*/*"}, {Name: "X-Empty"}},
			}, nil
		}),
		BeforeProviderRequest: hooks.Named("body", "1", func(context.Context, hooks.BeforeProviderRequest) (hooks.BeforeProviderRequestResult, error) {
			text := body
			return hooks.BeforeProviderRequestResult{Action: hooks.ActionTransform, Body: &text}, nil
		}),
	}.Then(c.hooks()))
	j := s.Start(t, s.Session(t), "hi")
	if run := s.Advance(t, j); run.Status != loop.RunCompleted {
		t.Fatalf("run %+v", run)
	}

	said := w.all()
	if len(said) != 1 {
		t.Fatalf("%d connections", len(said))
	}
	head, sent, _ := strings.Cut(said[0], "\r\n\r\n")
	if sent != body {
		t.Errorf("behind the header came %q, want %q", sent, body)
	}
	request, header, _ := strings.Cut(head, "\r\n")
	got := strings.Split(header, "\r\n")
	slices.Sort(got)
	want := []string{
		"Accept: */*", "Authorization: Bearer " + providerKey, fmt.Sprintf("Content-Length: %d", len(body)), "Content-Type: application/json",
		"Host: " + strings.TrimSuffix(strings.TrimPrefix(w.url, "http://"), "/v1"), "X-Empty: ", "X-Trace-Id: 7;\t\"a\"",
	}
	if request != "POST /v1/chat/completions HTTP/1.1" || !slices.Equal(got, want) {
		t.Errorf("sent %s with\n%q, want\n%q", request, got, want)
	}
	if len(c.told) != 4 {
		t.Errorf("hooks were told %q", c.told)
	}
	for _, told := range c.told {
		if strings.Contains(told, "AAAA1111") {
			t.Errorf("a hook was told of the key: %s", told)
		}
	}
	if last := c.told[len(c.told)-1]; !strings.Contains(last, "X-Echo") || strings.Contains(last, "Cookie") {
		t.Errorf("of the answer the hook was told %s", last)
	}
}

// hostile are headers that hooks must not get onto the wire, with what the
// ledger says of them.
var hostile = map[string]struct {
	header hooks.Header
	reason string
}{
	"second header":      {hooks.Header{Name: "X-A", Value: "x\r\nX-Evil: 1"}, "header X-A: the value has a byte that is no printable ASCII"},
	"second request":     {hooks.Header{Name: "X-A", Value: "x\r\n\r\nGET /evil HTTP/1.1\r\nHost: evil\r\n\r\n"}, "header X-A: the value has a byte that is no printable ASCII"},
	"newline":            {hooks.Header{Name: "X-A", Value: "x\n"}, "header X-A: the value has a byte that is no printable ASCII"},
	"NUL":                {hooks.Header{Name: "X-A", Value: "x\x00"}, "header X-A: the value has a byte that is no printable ASCII"},
	"not ASCII":          {hooks.Header{Name: "X-A", Value: "naïve"}, "header X-A: the value has a byte that is no printable ASCII"},
	"a megabyte":         {hooks.Header{Name: "X-A", Value: strings.Repeat("v", 1<<20)}, "of 1048576 allowed"},
	"most of a megabyte": {hooks.Header{Name: "X-A", Value: strings.Repeat("v", 1<<19)}, "header X-A: the value has 524288 bytes, of 8192 allowed"},
	"Host":               {hooks.Header{Name: "Host", Value: "evil"}, "header Host belongs to the transport"},
	"Content-Length":     {hooks.Header{Name: "content-length", Value: "0"}, "header Content-Length belongs to the transport"},
	"Content_Length":     {hooks.Header{Name: "Content_Length", Value: "0"}, "header Content-Length belongs to the transport"},
	"Transfer-Encoding":  {hooks.Header{Name: "TRANSFER-ENCODING", Value: "chunked"}, "header Transfer-Encoding belongs to the transport"},
	"Authorization":      {hooks.Header{Name: "Authorization", Value: "Bearer stolen"}, "header Authorization belongs to the transport or carries credentials"},
	"a name and more":    {hooks.Header{Name: "X-A: b", Value: "c"}, "a header's name must be 1 to 128 letters"},
	"a name with a line": {hooks.Header{Name: "X-A\r\nX-Evil", Value: "c"}, "a header's name must be 1 to 128 letters"},
	"no name":            {hooks.Header{Value: "c"}, "a header's name must be 1 to 128 letters"},
	"a name not ASCII":   {hooks.Header{Name: "X-Ä", Value: "c"}, "a header's name must be 1 to 128 letters"},
}

// TestHostileHeadersNeverReachTheWire: each of them fails its hook, with a row
// that says why and not with what, and its run. The worker goes on.
func TestHostileHeadersNeverReachTheWire(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	p := openaitest.New(t)
	p.Respond(func(openaitest.Request) openaitest.Answer { return openaitest.Text("Hello.") })
	w, model := tapping(t, p)
	s := newStack(t, db, model)
	var set []hooks.Header // by the one run at a time
	s.checked(t, hooks.Hooks{BeforeProviderHeaders: hooks.Named("hostile", "1", func(context.Context, hooks.BeforeProviderHeaders) (hooks.BeforeProviderHeadersResult, error) {
		return hooks.BeforeProviderHeadersResult{Action: hooks.ActionTransform, Set: append([]hooks.Header{{Name: "X-Fine", Value: "1"}}, set...)}, nil
	})})
	for name, c := range hostile {
		set = []hooks.Header{c.header}
		j := s.Start(t, s.Session(t), "hi")
		run := s.Advance(t, j)
		if run.Status != loop.RunFailed || run.Reason != "blocked" || run.Error != "The check hostile gave no usable answer ("+map[bool]string{true: "oversize", false: "unappliable"}[name == "a megabyte"]+"), so this was not let through." {
			t.Errorf("%s: run %s %s %q", name, run.Status, run.Reason, run.Error)
		}
		row := lines(t, db, `SELECT concat_ws(' ', hook_id, action, failed_open, reason) FROM agentd.decisions WHERE run_id = $1`, j.RunID)
		if len(row) != 1 || !strings.HasPrefix(row[0], "hostile block f ") || !strings.Contains(row[0], c.reason) {
			t.Errorf("%s: ledger %q; want %s", name, row, c.reason)
		}
	}
	if said := w.all(); len(said) != 0 {
		t.Errorf("%d connections were made: %q", len(said), said)
	}
	set = nil
	j := s.Start(t, s.Session(t), "hi")
	if run := s.Advance(t, j); run.Status != loop.RunCompleted {
		t.Errorf("the next run is %+v", run)
	}
	if said := w.all(); len(said) != 1 || strings.Count(said[0], "HTTP/1.1") != 1 || !strings.Contains(said[0], "\r\nX-Fine: 1\r\n") || strings.Contains(said[0], "vil") {
		t.Errorf("said %q", said)
	}
}

// TestHooksSeeTheHeadersOfAnAnswerAsBoundedText: what a provider, or who makes
// it say something, puts there. Control characters end the call before.
func TestHooksSeeTheHeadersOfAnAnswerAsBoundedText(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	long := strings.Repeat("v", 64<<10)
	answer := openaitest.Text("Hello.").With("X-Long", long).With("X-Latin", "caf\xe9").With("X-Twice", "1").With("X-Twice", "2").With("Set-Cookie", "c=1")
	for i := range 200 {
		answer = answer.With(fmt.Sprintf("Z-%03d", i), "z")
	}
	s := newStack(t, db, providedBy(t, openaitest.New(t, answer), openai.Config{}))
	var seen []hooks.Header
	s.checked(t, hooks.Hooks{AfterProviderResponse: hooks.Named("see", "1", func(_ context.Context, in hooks.AfterProviderResponse) (hooks.AfterProviderResponseResult, error) {
		seen = in.Headers
		return hooks.AfterProviderResponseResult{Action: hooks.ActionContinue}, nil
	})})
	if run := s.Advance(t, s.Start(t, s.Session(t), "hi")); run.Status != loop.RunCompleted {
		t.Fatalf("run %+v", run)
	}
	got := map[string]string{}
	for _, h := range seen {
		got[h.Name] = h.Value
	}
	want := map[string]string{"X-Latin": "caf\uFFFD", "X-Twice": "1, 2", "X-Long": long[:8<<10-len("…")] + "…"}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s: %.100q, want %.100q", name, got[name], value)
		}
	}
	if _, ok := got["Set-Cookie"]; ok || len(seen) != hooks.MaxHeaders || !slices.IsSortedFunc(seen, func(a, b hooks.Header) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("the hook saw %d headers, %q", len(seen), reflect.ValueOf(got).MapKeys())
	}
}
