package webhook_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/webhook"
)

// soon is the time limit of a hook that fails by it.
const soon = 100 * time.Millisecond

// canary is what receivers say that nobody may hear.
const canary = "canary-5f2c"

// request reads a request from a connection, as far as its header.
func request(conn net.Conn) *http.Request {
	r, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return &http.Request{Header: http.Header{}, Body: http.NoBody}
	}
	return r
}

// told answers on a connection after the request was read.
func told(answer string) func(net.Conn, <-chan struct{}) {
	return func(conn net.Conn, _ <-chan struct{}) {
		r := request(conn)
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(conn, strings.ReplaceAll(answer, "ID", r.Header.Get("Webhook-Id")))
	}
}

const (
	good  = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	body  = `{"id":"ID","action":"continue"}`
	whole = good + "Connection: close\r\n\r\n" + body
)

// manyMembers are short, and more than there is room for.
var manyMembers = func() string {
	var b strings.Builder
	for i := range 1 << 16 {
		_, _ = fmt.Fprintf(&b, `"%x":"",`, i)
	}
	return strings.TrimSuffix(b.String(), ",")
}()

// TestAReceiverThatDoesNotDecideClosesTheGate, whatever it does instead; what it
// said reaches nobody.
func TestAReceiverThatDoesNotDecideClosesTheGate(t *testing.T) {
	t.Parallel()
	type receiver = func(net.Conn, <-chan struct{})
	drip := func(text string) receiver {
		return func(conn net.Conn, done <-chan struct{}) {
			_, _ = io.Copy(io.Discard, request(conn).Body)
			tick := time.NewTicker(soon / 5)
			defer tick.Stop()
			for i := range len(text) {
				if _, err := conn.Write([]byte{text[i]}); err != nil {
					return
				}
				select {
				case <-tick.C:
				case <-done:
					return
				}
			}
		}
	}
	hang := func(first string) receiver {
		return func(conn net.Conn, done <-chan struct{}) {
			request(conn)
			_, _ = io.WriteString(conn, first)
			<-done
		}
	}
	early := func(conn net.Conn, done <-chan struct{}) {
		_, _ = conn.Read(make([]byte, 1))
		_, _ = fmt.Fprintf(conn, "%sContent-Length: %d\r\n\r\n%s", good, len(body), body)
		<-done
	}
	for name, test := range map[string]struct {
		receiver receiver
		outcome  hooks.Outcome
		code     string
	}{
		"hangs":                          {hang(""), hooks.OutcomeTimeout, "hook.timeout"},
		"hangs in the header":            {hang(good), hooks.OutcomeTimeout, "hook.timeout"},
		"hangs in the body":              {hang(good + "Content-Length: 99\r\n\r\n" + `{"id":`), hooks.OutcomeTimeout, "hook.timeout"},
		"writes byte by byte":            {drip(whole), hooks.OutcomeTimeout, "hook.timeout"},
		"closes before it reads":         {func(net.Conn, <-chan struct{}) {}, hooks.OutcomeError, webhook.CodeConnectionLost},
		"closes after it has read":       {told(""), hooks.OutcomeError, webhook.CodeConnectionLost},
		"closes in the header":           {told(good), hooks.OutcomeError, webhook.CodeConnectionLost},
		"closes in the body":             {told(good + "Content-Length: 99\r\n\r\n" + body), hooks.OutcomeError, webhook.CodeConnectionLost},
		"closes in a chunk":              {told(good + "Transfer-Encoding: chunked\r\n\r\nff\r\n" + body), hooks.OutcomeError, webhook.CodeConnectionLost},
		"sends a chunk of no length":     {told(good + "Transfer-Encoding: chunked\r\n\r\n" + canary + "\r\n" + body), hooks.OutcomeMalformed, webhook.CodeMalformed},
		"speaks something else":          {told("220 " + canary + " ESMTP\r\n"), hooks.OutcomeMalformed, webhook.CodeMalformed},
		"has a status that is none":      {told("HTTP/1.1 2x0 " + canary + "\r\n\r\n" + body), hooks.OutcomeMalformed, webhook.CodeMalformed},
		"has a header without an end":    {told(good + strings.Repeat("X-A: "+strings.Repeat("a", 1000)+"\r\n", 100)), hooks.OutcomeMalformed, webhook.CodeMalformed},
		"answers 201":                    {told("HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" + body), hooks.OutcomeError, "status_201"},
		"answers 204":                    {told("HTTP/1.1 204 No Content\r\n\r\n"), hooks.OutcomeError, "status_204"},
		"answers 401":                    {told("HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" + body + canary), hooks.OutcomeError, "status_401"},
		"answers 503":                    {told("HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" + body), hooks.OutcomeError, "status_503"},
		"answers 101":                    {told("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" + body), hooks.OutcomeError, "status_101"},
		"answers 304":                    {told("HTTP/1.1 304 Not Modified\r\n\r\n"), hooks.OutcomeError, webhook.CodeRedirect},
		"answers HTML":                   {told("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n" + body), hooks.OutcomeMalformed, webhook.CodeMalformed},
		"names no type":                  {told("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body), hooks.OutcomeMalformed, webhook.CodeMalformed},
		"names two types":                {told(good + "Content-Type: text/html\r\nConnection: close\r\n\r\n" + body), hooks.OutcomeMalformed, webhook.CodeMalformed},
		"writes in another alphabet":     {told("HTTP/1.1 200 OK\r\nContent-Type: application/json; charset=latin1\r\nConnection: close\r\n\r\n" + body), hooks.OutcomeMalformed, webhook.CodeMalformed},
		"answers nothing":                {told(good + "Content-Length: 0\r\n\r\n"), hooks.OutcomeMalformed, webhook.CodeMalformed},
		"answers two documents":          {told(good + "Connection: close\r\n\r\n" + body + "\n" + body), hooks.OutcomeMalformed, webhook.CodeMalformed},
		"answers another id":             {told(good + "Connection: close\r\n\r\n" + `{"id":"` + canary + `","action":"continue"}`), hooks.OutcomeMalformed, webhook.CodeWrongID},
		"answers no id":                  {told(good + "Connection: close\r\n\r\n" + `{"action":"continue"}`), hooks.OutcomeMalformed, webhook.CodeWrongID},
		"answers something like an id":   {told(good + "Connection: close\r\n\r\n" + `{"id":"ID ","action":"continue"}`), hooks.OutcomeMalformed, webhook.CodeWrongID},
		"has another key":                {told(good + "Connection: close\r\n\r\n" + `{"id":"ID","action":"continue","` + canary + `":1}`), hooks.OutcomeMalformed, webhook.CodeMalformed},
		"answers for another gate":       {told(good + "Connection: close\r\n\r\n" + `{"id":"ID","action":"withhold"}`), hooks.OutcomeIllegalAction, "hook.illegal_action"},
		"answers a word that is none":    {told(good + "Connection: close\r\n\r\n" + `{"id":"ID","action":"allow"}`), hooks.OutcomeMalformed, "hook.malformed"},
		"answers no action":              {told(good + "Connection: close\r\n\r\n" + `{"id":"ID"}`), hooks.OutcomeMalformed, "hook.malformed"},
		"answers before it has read":     {early, hooks.OutcomeMalformed, webhook.CodeWrongID},
		"announces more than it may say": {told(good + "Content-Length: 10485760\r\n\r\n" + body), hooks.OutcomeOversize, webhook.CodeOversize},
		"says more than it may":          {told(good + "Connection: close\r\n\r\n" + `{"id":"ID","action":"continue","reason":{"text":"` + strings.Repeat("b", 1<<20) + `"}}`), hooks.OutcomeOversize, webhook.CodeOversize},
		"has too many elements":          {told(good + "Connection: close\r\n\r\n" + `{"id":"ID","action":"continue","annotations":{` + manyMembers + `}}`), hooks.OutcomeOversize, webhook.CodeOversize},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t, talk(t, test.receiver))
			if test.outcome == hooks.OutcomeTimeout {
				cfg.Options = append(cfg.Options, hooks.TimeLimit(soon))
			}
			v, d := ask(t, open(t, cfg).Hooks().BeforeToolCall, calling("refund"))
			closed(t, v, d, test.outcome, test.code)
			if all := fmt.Sprintf("%+v %+v", v, d); strings.Contains(all, canary) || strings.Contains(all, secret[7:]) {
				t.Errorf("it repeats what was said: %s", all)
			}
		})
	}
}

// TestARedirectIsNotFollowed: neither the question nor its signature go to a
// host that nobody chose.
func TestARedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	var visits atomic.Int64
	elsewhere := serve(t, func(http.ResponseWriter, *http.Request) { visits.Add(1) })
	for _, code := range []int{301, 302, 303, 307, 308} {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, code) })
		v, d := ask(t, open(t, config(t, s.URL)).Hooks().BeforeToolCall, calling("refund"))
		closed(t, v, d, hooks.OutcomeError, webhook.CodeRedirect)
	}
	if visits.Load() != 0 {
		t.Errorf("%d questions went elsewhere", visits.Load())
	}
}

// TestAnEndlessAnswerIsReadUpToTheLimit: of what goes on for ever no more is
// taken than the answer may have, and what the network holds in between.
func TestAnEndlessAnswerIsReadUpToTheLimit(t *testing.T) {
	t.Parallel()
	var wrote atomic.Int64
	url := talk(t, func(conn net.Conn, _ <-chan struct{}) {
		_, _ = io.Copy(io.Discard, request(conn).Body)
		_, _ = io.WriteString(conn, good+"\r\n")
		some := bytes.Repeat([]byte(" "), 64<<10)
		for wrote.Load() < 1<<30 {
			n, err := conn.Write(some)
			wrote.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	v, d := ask(t, open(t, config(t, url)).Hooks().BeforeToolCall, calling("refund"))
	closed(t, v, d, hooks.OutcomeOversize, webhook.CodeOversize)
	if n := wrote.Load(); n > 64<<20 {
		t.Errorf("%d bytes were taken", n)
	}
}

// TestACompressedAnswerIsNotUnpacked: a bomb stays what it is.
func TestACompressedAnswerIsNotUnpacked(t *testing.T) {
	t.Parallel()
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, _ = z.Write(make([]byte, 8<<20))
	_ = z.Close()
	for _, encoding := range []string{"gzip", "identity", ""} {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header["Accept-Encoding"]; len(got) != 1 || got[0] != "identity" {
				t.Errorf("asked for %q", got)
			}
			w.Header()["Content-Encoding"] = []string{encoding}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(bomb.Bytes())
		})
		v, d := ask(t, open(t, config(t, s.URL)).Hooks().BeforeToolCall, calling("refund"))
		closed(t, v, d, hooks.OutcomeMalformed, webhook.CodeMalformed)
	}
}

// TestAnAnswerBeforeTheWholeQuestionIsNone: a receiver that knows the id from the
// header, and has not read what it is about.
func TestAnAnswerBeforeTheWholeQuestionIsNone(t *testing.T) {
	t.Parallel()
	url := talk(t, func(conn net.Conn, done <-chan struct{}) {
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		r := request(conn)
		answer := strings.ReplaceAll(body, "ID", r.Header.Get("Webhook-Id"))
		_, _ = fmt.Fprintf(conn, "%sContent-Length: %d\r\n\r\n%s", good, len(answer), answer)
		<-done
	})
	cfg := config(t, url)
	cfg.Options = append(cfg.Options, hooks.TimeLimit(10*soon))
	in := calling("refund")
	in.Call.Arguments = strings.Repeat("x", 8<<20)
	v, d := ask(t, open(t, cfg).Hooks().BeforeToolCall, in)
	closed(t, v, d, hooks.OutcomeTimeout, "hook.timeout")
}

func TestWhoIsNotTheHostIsNotAsked(t *testing.T) {
	t.Parallel()
	var visits atomic.Int64
	visited := func(http.ResponseWriter, *http.Request) { visits.Add(1) }
	stranger := httptest.NewTLSServer(http.HandlerFunc(visited))
	t.Cleanup(stranger.Close)
	old := httptest.NewUnstartedServer(http.HandlerFunc(visited))
	old.TLS = &tls.Config{MaxVersion: tls.VersionTLS11}
	old.StartTLS()
	t.Cleanup(old.Close)
	plain := serve(t, visited)

	known := config(t, old.URL)
	known.CA = certificate(t, old)
	elsewhere := config(t, strings.Replace(stranger.URL, "127.0.0.1", "localhost", 1))
	elsewhere.CA = certificate(t, stranger)
	for name, cfg := range map[string]webhook.Config{
		"a certificate of nobody":     config(t, stranger.URL),
		"an old version":              known,
		"the certificate of others":   elsewhere,
		"no TLS where there is to be": config(t, strings.Replace(plain.URL, "http:", "https:", 1)),
	} {
		v, d := ask(t, open(t, cfg).Hooks().BeforeToolCall, calling("refund"))
		closed(t, v, d, hooks.OutcomeUnavailable, webhook.CodeTLS)
		if t.Failed() {
			t.Fatalf("that was %s", name)
		}
	}
	if visits.Load() != 0 {
		t.Errorf("%d questions arrived", visits.Load())
	}
}

func TestWhereNobodyListensNobodyDecides(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	v, d := ask(t, open(t, config(t, "http://"+l.Addr().String())).Hooks().BeforeToolCall, calling("refund"))
	closed(t, v, d, hooks.OutcomeUnavailable, webhook.CodeConnect)
	if !strings.Contains(d.Payload.Reason, l.Addr().String()) {
		t.Errorf("the reason names no host: %s", d.Payload.Reason)
	}
}

// TestAHandshakeThatHangsIsGivenUp, soon after nobody waits for it any more.
func TestAHandshakeThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	url := talk(t, func(conn net.Conn, _ <-chan struct{}) {
		_, _ = io.Copy(io.Discard, conn)
		close(gone)
	})
	cfg := config(t, strings.Replace(url, "http:", "https:", 1))
	cfg.Options = append(cfg.Options, hooks.TimeLimit(soon))
	v, d := ask(t, open(t, cfg).Hooks().BeforeToolCall, calling("refund"))
	closed(t, v, d, hooks.OutcomeTimeout, "hook.timeout")
	<-gone
}
