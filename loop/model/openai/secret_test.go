package openai_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/model/openai"
)

const (
	// querySecret is a key as some gateways take it, in the base URL, and
	// encodedSecret one as it stands there.
	querySecret   = "hidden-in-the-query"
	encodedSecret = "a%2Fb%2Fc"
	proxySecret   = "hunter2"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type reader func([]byte) (int, error)

func (f reader) Read(p []byte) (int, error) { return f(p) }

// through is a client whose transport is f.
func through(f roundTripper) *http.Client { return &http.Client{Transport: f} }

// TestNoFailureTellsTheKey makes calls fail in every way there is, most of them
// with the key in what fails, and looks for it in all that can be printed.
func TestNoFailureTellsTheKey(t *testing.T) {
	t.Parallel()
	said := "you said " + key + " to " + querySecret
	body := func(r io.Reader) *http.Client {
		return through(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(r)}, nil
		})
	}
	answer := func(status int, text string) *http.Client {
		return through(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {said}}, Body: io.NopCloser(strings.NewReader(text))}, nil
		})
	}
	dial := func(f func(context.Context, string, string) (net.Conn, error)) *http.Client {
		return &http.Client{Transport: &http.Transport{DialContext: f}}
	}
	broken := errors.New(said)
	tests := []struct {
		name   string
		client *http.Client
		url    string // in the place of one that nobody dials
		code   string
	}{
		{"Unauthorized", answer(401, `{"error":{"message":"`+said+`","type":"`+key+`","code":"`+key+`"}}`), "", "[API key]"},
		{"BadGateway", answer(502, "<html>"+said+"</html>"), "", ""},
		{"Redirect", answer(302, said), "", ""},
		{"NoStream", answer(200, said), "", "not_a_stream"},
		{"ErrorInAStream", answer(200, `data: {"error":{"message":"`+said+`","code":"`+key+`"}}`), "", "[API key]"},
		{"NoChunk", answer(200, "data: "+said+"\n\n"), "", "malformed_stream"},
		{"OddChunk", answer(200, `data: {"choices":"`+said+`"}`+"\n\n"), "", "malformed_stream"},
		{"FinishReason", answer(200, `data: {"choices":[{"finish_reason":"error"}]}`), "", "error"},
		{"NoSuchHost", dial(func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.DNSError{Err: "no such host", Name: querySecret + key, IsNotFound: true}
		}), "", "network_error"},
		{"Refused", nil, refusing(t), "network_error"},
		{"ResetBeforeAnAnswer", nil, resetting(t), "network_error"},
		{"UnknownAuthority", nil, untrusted(t), "network_error"},
		{"DialFails", dial(func(context.Context, string, string) (net.Conn, error) { return nil, broken }), "", "network_error"},
		{"TransportFails", through(func(r *http.Request) (*http.Response, error) { return nil, fmt.Errorf("%s: %v", r.URL, r.Header) }), "", "network_error"},
		{"ProxyFails", through(func(*http.Request) (*http.Response, error) {
			return nil, errors.New(`invalid proxy address "http://user:` + proxySecret + `@proxy.invalid"`)
		}), "", "network_error"},
		{"TransportPanics", through(func(r *http.Request) (*http.Response, error) { panic(r) }), "", "client_panic"},
		{"TransportPanicsWithAHeader", through(func(r *http.Request) (*http.Response, error) { panic(fmt.Sprint(r.URL, r.Header)) }), "", "client_panic"},
		{"BodyPanics", body(reader(func([]byte) (int, error) { panic(broken) })), "", "client_panic"},
		{"BodyFails", body(io.MultiReader(strings.NewReader(text("a")), reader(func([]byte) (int, error) { return 0, broken }))), "", "cut"},
		{"NoHeaders", through(func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, broken }), "", "first_byte_timeout"},
		{"NoFurtherByte", body(io.MultiReader(strings.NewReader(":\n"), never(t))), "", "idle_timeout"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var logged bytes.Buffer
			url := tt.url
			if url == "" {
				url = "http://provider.invalid"
			}
			m, err := openai.New(openai.Config{
				BaseURL: url + "/v1?key=" + querySecret + "&sig=" + encodedSecret, APIKey: key, HTTPClient: tt.client,
				FirstByteTimeout: 5 * time.Second, IdleTimeout: 50 * time.Millisecond,
				Logger: slog.New(slog.NewJSONHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug, AddSource: true})),
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(m.Close)
			if tt.name == "NoHeaders" {
				m, err = openai.New(openai.Config{BaseURL: url, APIKey: key, HTTPClient: tt.client, FirstByteTimeout: time.Millisecond})
				if err != nil {
					t.Fatal(err)
				}
			}
			_, err = play(t.Context(), m, hello())
			printed := logged.String() + fmt.Sprintf("%v %+v %#v ", m, m, *m)
			if tt.code == "cut" {
				if err != nil {
					t.Errorf("got error %v, want none", err)
				}
			} else if me := wantModelError(t, err); me.Code != tt.code {
				t.Errorf("got %+v, want code %s", me, tt.code)
			}
			for e := err; e != nil; e = errors.Unwrap(e) {
				printed += fmt.Sprintf("%v %+v %#v ", e, e, e)
				var me *loop.ModelError
				if errors.As(e, &me) {
					printed += fmt.Sprintf("%v %+v %#v %s ", *me, *me, *me, me.Err)
				}
			}
			for _, secret := range []string{key, strings.TrimPrefix(key, "sk-"), querySecret, encodedSecret, proxySecret} {
				if strings.Contains(printed, secret) {
					t.Errorf("%q is in %s", secret, printed)
				}
			}
		})
	}
}

// refusing returns a URL where nobody listens.
func refusing(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	return "http://" + l.Addr().String()
}

// resetting returns the URL of a server that reads a bit and resets.
func resetting(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1))
			_ = conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-served })
	return "http://" + l.Addr().String()
}

// untrusted returns the URL of a server whose certificate nobody knows.
func untrusted(t *testing.T) string {
	t.Helper()
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv.URL
}

// never returns a reader that gives nothing until the test ends or a second
// has passed.
func never(t *testing.T) io.Reader {
	t.Helper()
	return reader(func([]byte) (int, error) {
		select {
		case <-t.Context().Done():
		case <-time.After(time.Second):
		}
		return 0, context.Canceled
	})
}

func TestAPanicIsLoggedWithWhereItHappened(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	m := newFake(t).model(t, openai.Config{
		APIKey: key, HTTPClient: through(func(r *http.Request) (*http.Response, error) { panic("with " + r.Header.Get("Authorization")) }),
		Logger: slog.New(slog.NewTextHandler(&logged, nil)),
	})
	_, err := play(t.Context(), m, hello())
	me := wantModelError(t, err)
	if me.Message != "the HTTP client broke off: internal error" || me.Retryable || me.Err.Error() != "the HTTP client panicked: with Bearer [API key]" {
		t.Errorf("got %+v", me)
	}
	if said := logged.String(); !strings.Contains(said, "secret_test.go") || !strings.Contains(said, "Bearer [API key]") {
		t.Errorf("logged %s", said)
	}
}

func TestACauseIsStillRecognised(t *testing.T) {
	t.Parallel()
	m := newFake(t).model(t, openai.Config{HTTPClient: through(func(*http.Request) (*http.Response, error) {
		return nil, fmt.Errorf("dial: %w", net.ErrClosed)
	})})
	_, err := play(t.Context(), m, hello())
	if me := wantModelError(t, err); !errors.Is(me.Err, net.ErrClosed) || errors.Is(me.Err, io.EOF) {
		t.Errorf("got cause %v", me.Err)
	}
}
