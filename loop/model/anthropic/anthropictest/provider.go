package anthropictest

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
)

// Answer is what a provider sends for one request. The zero value is an empty
// event stream that ends properly.
type Answer struct {
	// Status is the HTTP status; 0 stands for 200.
	Status int
	Header http.Header
	Body   string
	// Every cuts the body into writes of so many bytes; 0 sends it in one.
	Every int
	End   End
}

// End is how an answer ends.
type End int

// The ends.
const (
	// EndProper says that the body is whole.
	EndProper End = iota
	// EndCut closes the connection where more was promised.
	EndCut
	// EndReset resets the connection. What was sent before may be lost.
	EndReset
	// EndStall sends nothing more until the client leaves.
	EndStall
)

// Request is a request as it came.
type Request struct {
	Header http.Header
	Body   string
	// Asked is what Body says, as far as it could be read.
	Asked Asked
	// Refused is why it was refused, "" if it was not.
	Refused string
}

// Provider is a fake provider, which lives as long as its test. It is safe for
// concurrent use.
type Provider struct {
	// URL is the base URL, to which /v1/messages is appended.
	URL string

	t         testing.TB
	mayRefuse bool
	stop      context.Context //nolint:containedctx // it ends with the test
	mu        sync.Mutex
	queue     []Answer
	requests  []Request
}

// New starts a provider that gives these answers, one per request. A request
// that it refuses, and one too many, fail the test.
func New(t testing.TB, answers ...Answer) *Provider {
	t.Helper()
	return start(t, false, answers)
}

// NewRefusing starts a provider whose refusals are what the test wants to see.
func NewRefusing(t testing.TB, answers ...Answer) *Provider {
	t.Helper()
	return start(t, true, answers)
}

func start(t testing.TB, mayRefuse bool, answers []Answer) *Provider {
	stop, cancel := context.WithCancel(context.Background())
	p := &Provider{t: t, mayRefuse: mayRefuse, stop: stop, queue: answers}
	server := httptest.NewServer(http.HandlerFunc(p.serve))
	p.URL = server.URL
	t.Cleanup(func() {
		cancel()
		server.CloseClientConnections()
		server.Close()
	})
	return p
}

// Requests returns what has come so far, refused requests included, in the
// order of arrival.
func (p *Provider) Requests() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

func (p *Provider) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has left
	}
	p.play(w, r, p.take(r, body))
}

// take records a request and returns the answer to it.
func (p *Provider) take(r *http.Request, body []byte) Answer {
	got := Request{Header: r.Header, Body: string(body)}
	got.Asked, got.Refused = check(r, body)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = append(p.requests, got)
	switch {
	case got.Refused != "":
		if !p.mayRefuse {
			p.t.Errorf("fake provider: refused: %s\n%s", got.Refused, body)
		}
		return Error(http.StatusBadRequest, "invalid_request_error", got.Refused)
	case len(p.queue) == 0:
		p.t.Errorf("fake provider: a request too many\n%s", body)
		return Error(http.StatusInternalServerError, "api_error", "a request too many")
	}
	a := p.queue[0]
	p.queue = p.queue[1:]
	return a
}

// Error is an answer with a status and an error object.
func Error(status int, typ, message string) Answer {
	body, _ := json.Marshal(map[string]any{ // strings always have a JSON form
		"type": "error", "error": map[string]string{"type": typ, "message": message}, "request_id": "req_1",
	})
	return Answer{Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: string(body)}
}

func (p *Provider) play(w http.ResponseWriter, r *http.Request, a Answer) {
	w.Header().Set("Content-Type", "text/event-stream")
	for name, values := range a.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(max(a.Status, http.StatusOK))
	out := http.NewResponseController(w)
	if out.Flush() != nil {
		return // the client has left
	}
	size := a.Every
	if size == 0 {
		size = max(len(a.Body), 1)
	}
	for part := range slices.Chunk([]byte(a.Body), size) {
		if _, err := w.Write(part); err != nil {
			return // the client has left
		}
		if out.Flush() != nil {
			return
		}
	}
	switch a.End {
	case EndProper:
	case EndCut:
		panic(http.ErrAbortHandler)
	case EndReset:
		if conn, _, err := out.Hijack(); err == nil {
			_ = conn.(*net.TCPConn).SetLinger(0) // the close that follows says how it went
			conn.Close()
		}
	case EndStall:
		select {
		case <-r.Context().Done():
		case <-p.stop.Done():
		}
	}
}
