package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
)

const (
	// maxHeader bounds the header of an answer, in bytes.
	maxHeader = 64 << 10
	idleTime  = 90 * time.Second
)

// dialError and tlsError say how far a connection came.
type (
	dialError struct{ err error }
	tlsError  struct{ err error }
)

// Error and Unwrap are those of the cause.
func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }
func (e *tlsError) Error() string  { return e.err.Error() }
func (e *tlsError) Unwrap() error  { return e.err }

// untilKey has the time at which nobody waits for a connection any more: the
// library goes on with it then, for whoever may ask next.
type untilKey struct{}

// lingering is how much longer than its question a connection is tried, so that a
// question which runs out of time says so.
const lingering = time.Second

func until(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Value(untilKey{}).(time.Time)
	if !ok {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, deadline.Add(lingering))
}

// newTransport returns one that speaks HTTP/1.1 to addresses that may be asked,
// and to no proxy.
func newTransport(s *settings) *http.Transport {
	dialer := &net.Dialer{
		Resolver:       s.Resolver,
		ControlContext: guard{allow: s.Allow, onlyAllowed: s.url.Scheme == "http"}.control,
	}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := until(ctx)
		defer cancel()
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, &dialError{err}
		}
		return conn, nil
	}
	config := &tls.Config{RootCAs: s.roots, ServerName: s.url.Hostname(), MinVersion: tls.VersionTLS12}
	return &http.Transport{
		DialContext: dial,
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			ctx, cancel := until(ctx)
			defer cancel()
			secured := tls.Client(conn, config)
			if err := secured.HandshakeContext(ctx); err != nil {
				_ = conn.Close() // nothing was said on it
				return nil, &tlsError{err}
			}
			return secured, nil
		},
		MaxIdleConnsPerHost:    s.Concurrency,
		IdleConnTimeout:        idleTime,
		MaxResponseHeaderBytes: maxHeader,
		DisableCompression:     true,
	}
}

// post sends a question and returns the body of the answer, which has at most
// limit bytes. It follows no redirect and knows no cookies.
func (w *Webhook) post(ctx context.Context, id string, body []byte, limit int) ([]byte, error) {
	var begun atomic.Bool
	asked := make(chan struct{})
	wrote := sync.OnceFunc(func() { close(asked) }) // a question may be sent twice
	traced := ctx
	if deadline, ok := ctx.Deadline(); ok {
		traced = context.WithValue(ctx, untilKey{}, deadline)
	}
	traced = httptrace.WithClientTrace(traced, &httptrace.ClientTrace{
		WroteRequest: func(i httptrace.WroteRequestInfo) {
			if i.Err == nil {
				wrote()
			}
		},
		GotFirstResponseByte: func() { begun.Store(true) },
	})
	r, err := w.request(traced, id, body)
	if err != nil {
		return nil, err
	}
	resp, err := w.transport.RoundTrip(r)
	if err != nil {
		return nil, w.broken(ctx, err, begun.Load())
	}
	defer resp.Body.Close()
	if err := w.checkHead(resp, limit); err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, int64(limit)+1))
	switch {
	case err != nil:
		return nil, w.broken(ctx, err, true)
	case len(raw) > limit:
		return nil, w.failure(hooks.OutcomeOversize, CodeOversize, "the answer has more than %d bytes", limit)
	}
	// Who answers before the whole question was sent has not read it.
	select {
	case <-asked:
		return raw, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// checkHead refuses what is no answer before anything of the body is read.
func (w *Webhook) checkHead(resp *http.Response, limit int) error {
	switch code := resp.StatusCode; {
	case code >= 300 && code < 400:
		return w.failure(hooks.OutcomeError, CodeRedirect, "the answer is a redirect (%d), which is not followed", code)
	case code != http.StatusOK:
		return w.failure(hooks.OutcomeError, fmt.Sprint(CodeStatus, code), "the answer has the status %d; a decision has 200", code)
	case len(resp.Header["Content-Encoding"]) > 0:
		return w.failure(hooks.OutcomeMalformed, CodeMalformed, "the answer is compressed, which was not asked for")
	case !isJSON(resp.Header["Content-Type"]):
		return w.failure(hooks.OutcomeMalformed, CodeMalformed, "the content type is not application/json")
	case resp.ContentLength > int64(limit):
		return w.failure(hooks.OutcomeOversize, CodeOversize, "the answer has %d bytes, of %d allowed", resp.ContentLength, limit)
	}
	return nil
}

// isJSON reports whether a header says so, once, and of no other text than
// UTF-8.
func isJSON(contentType []string) bool {
	if len(contentType) != 1 {
		return false
	}
	kind, params, err := mime.ParseMediaType(contentType[0])
	charset, has := params["charset"]
	return err == nil && kind == "application/json" && (!has || strings.EqualFold(charset, "utf-8"))
}

// broken says why there is no answer. begun is whether something of one came.
func (w *Webhook) broken(ctx context.Context, err error, begun bool) error {
	var (
		refused *refusedError
		dialing *dialError
		secured *tlsError
		network net.Error
	)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &refused):
		return w.failure(hooks.OutcomeUnavailable, CodeRefusedAddress, "%w", refused)
	case errors.As(err, &dialing):
		return w.failure(hooks.OutcomeUnavailable, CodeConnect, "%w", dialing)
	case errors.As(err, &secured):
		return w.failure(hooks.OutcomeUnavailable, CodeTLS, "%w", secured)
	case !begun, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &network):
		return w.failure(hooks.OutcomeError, CodeConnectionLost, "the connection was closed before the answer was whole")
	}
	// What the library says of it may repeat what was sent.
	return w.failure(hooks.OutcomeMalformed, CodeMalformed, "the answer is not HTTP")
}
