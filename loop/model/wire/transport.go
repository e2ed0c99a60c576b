package wire

import (
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"time"
)

// maxHeader bounds the header of an answer, in bytes.
const maxHeader = 256 << 10

// deadConnection is how long an HTTP/2 connection may say nothing before it is
// asked whether it still lives, and how long it may take to say so. Without it
// the first call after a network has gone waits for the limit on the first byte.
const deadConnection = 15 * time.Second

// ownTransport returns a transport for many long streams to one host. Whoever
// has it closes its idle connections.
func ownTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: deadConnection, PingTimeout: deadConnection},
		MaxIdleConnsPerHost:    64, // many streams to one host end at once; 2 would throw most connections away
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxResponseHeaderBytes: maxHeader,
		// A compressed stream arrives in blocks, long after its words were said.
		DisableCompression: true,
	}
}

// client returns a client that sends through base and adds credentials below
// everything that sees a request.
func client(base http.Client, authorize func(http.Header)) *http.Client {
	if base.Transport == nil {
		base.Transport = http.DefaultTransport
	}
	base.Transport = guard{base: base.Transport, authorize: authorize}
	// A redirect would carry the conversation, and the key, to a host that
	// nobody chose.
	base.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &base
}

// PanicError is a panic in the transport.
type PanicError struct {
	value any
	stack []byte
}

// Error may hold a credential: it is cleaned before it is shown.
func (p *PanicError) Error() string { return fmt.Sprintf("the HTTP client panicked: %v", p.value) }

// guard adds credentials and turns panics into errors: what a transport says in
// a panic may be the request, with its key.
type guard struct {
	base      http.RoundTripper
	authorize func(http.Header)
}

func (g guard) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	defer recovered(&err)
	r = r.Clone(r.Context())
	g.authorize(r.Header)
	resp, err = g.base.RoundTrip(r)
	if resp != nil && resp.Body != nil {
		resp.Body = guardedBody{resp.Body}
	}
	return resp, err
}

type guardedBody struct{ io.ReadCloser }

func (b guardedBody) Read(p []byte) (n int, err error) {
	defer recovered(&err)
	return b.ReadCloser.Read(p)
}

func recovered(err *error) {
	if v := recover(); v != nil {
		*err = &PanicError{value: v, stack: debug.Stack()}
	}
}
