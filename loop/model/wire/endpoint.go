package wire

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
)

// Endpoint is where a provider takes calls. It comes from [NewEndpoint], holds
// its URL and its key where nothing prints them, and is safe for concurrent
// use.
type Endpoint struct {
	// Redact takes the endpoint's credentials out of a text.
	Redact Redact
	// Log is never nil.
	Log *slog.Logger
	// FirstByte, Idle and Data are the limits of the settings.
	FirstByte, Idle, Data time.Duration

	post    func(ctx context.Context, body string) *http.Request
	client  *http.Client
	release func()
}

// Settings say how to reach an endpoint.
type Settings struct {
	// URL is where requests are posted to, from [ParseURL].
	URL *url.URL
	// APIKey is what is kept out of every text, see [ValidKey]; Authorize adds
	// it to the header of a request, below everything that looks at requests.
	APIKey    string
	Authorize func(http.Header)
	// HTTPClient makes the calls; nil means one of the endpoint's own.
	HTTPClient *http.Client
	// Logger is where panics of the HTTP client go; nil logs nothing.
	Logger *slog.Logger
	// FirstByte, Idle and Data limit the wait for the first byte of an answer,
	// for each further one, and for data; 0 is no limit.
	FirstByte, Idle, Data time.Duration
}

// NewEndpoint makes no connection.
func NewEndpoint(s Settings) *Endpoint {
	e := &Endpoint{
		Redact: NewRedact(s.APIKey, s.URL), Log: s.Logger,
		FirstByte: s.FirstByte, Idle: s.Idle, Data: s.Data,
		post: poster(s.URL), release: func() {},
	}
	base := s.HTTPClient
	if base == nil {
		transport := ownTransport()
		base, e.release = &http.Client{Transport: transport}, transport.CloseIdleConnections
	}
	e.client = client(*base, s.Authorize)
	if e.Log == nil {
		e.Log = slog.New(slog.DiscardHandler)
	}
	return e
}

// Close releases the idle connections of the endpoint's own client. Calls under
// way are not touched. It does nothing for a client that was passed in.
func (e *Endpoint) Close() { e.release() }

// Send sends p with nothing added but what the transport needs, which is below
// it: credentials too. The limits are the caller's to hold.
func (e *Endpoint) Send(ctx context.Context, p loop.ProviderRequest) (*http.Response, error) {
	r := e.post(ctx, p.Body)
	r.Header.Set("User-Agent", "") // without it net/http would add one
	for _, h := range p.Headers {
		r.Header.Set(h.Name, h.Value)
	}
	return e.client.Do(r)
}

// Response is what a caller may see of the beginning of an answer.
func (e *Endpoint) Response(resp *http.Response) loop.ProviderResponse {
	p := loop.ProviderResponse{Status: resp.StatusCode}
	for name, values := range resp.Header {
		if name != "Set-Cookie" {
			p.Headers = append(p.Headers, hooks.Header{Name: name, Value: e.Redact(strings.Join(values, ", "))})
		}
	}
	slices.SortFunc(p.Headers, func(a, b hooks.Header) int { return strings.Compare(a.Name, b.Name) })
	return p
}

// Failure says why nothing came: because the caller cancelled, because of
// silence, or because of the network. status is the answer's, 0 if there is
// none.
func (e *Endpoint) Failure(ctx context.Context, status int, err error) error {
	silent := func(code, message string, limit time.Duration) error {
		return &loop.ModelError{Status: status, Code: code, Message: message + limit.String(), Retryable: true, Err: context.Cause(ctx)}
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, ErrFirstByte):
		return silent("first_byte_timeout", "the provider sent nothing for ", e.FirstByte)
	case errors.Is(cause, ErrIdle):
		return silent("idle_timeout", "the provider went silent for ", e.Idle)
	case errors.Is(cause, ErrNoData):
		return silent("data_timeout", "the provider sent nothing but keep-alives for ", e.Data)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	err = withoutURL(err)
	var p *PanicError
	if errors.As(err, &p) {
		e.Log.Error("the HTTP client panicked", "panic", e.Redact.Clean(p.Error()), "stack", e.Redact(string(p.stack)))
		return &loop.ModelError{Status: status, Code: "client_panic", Message: "the HTTP client broke off: internal error", Err: e.Redact.Cause(err)}
	}
	return &loop.ModelError{
		Code: "network_error", Message: "call the provider: " + e.Redact.Clean(err.Error()), Retryable: true, Err: e.Redact.Cause(err),
	}
}
