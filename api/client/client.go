package client

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
)

// Client talks to one server. [New] makes one; it is safe for concurrent use.
type Client struct {
	config
	sessions  agentdv1connect.SessionServiceClient
	runs      agentdv1connect.RunServiceClient
	approvals agentdv1connect.ApprovalServiceClient
	ledger    agentdv1connect.LedgerServiceClient
	admin     agentdv1connect.AdminServiceClient
}

// config is what options change.
type config struct {
	url      string
	key      string
	http     *http.Client
	patience time.Duration
	silence  time.Duration
	// away and back are never nil.
	away, back func()
}

// Option changes a client that is made.
type Option func(*config)

// WithAPIKey sends the key with each request; "" sends none.
func WithAPIKey(key string) Option { return func(c *config) { c.key = key } }

// WithHTTPClient takes the connections of another client than
// [http.DefaultClient]. It is copied and not changed. Its Timeout, if it has one,
// also cuts streams, which then come back. Redirects are never followed: whoever
// is redirected to would get the key.
func WithHTTPClient(h *http.Client) Option { return func(c *config) { c.http = h } }

// WithPatience is how long calls and streams are tried again while the server
// does not answer. 0, which is the default, makes calls once and lets streams try
// until their context ends.
func WithPatience(d time.Duration) Option { return func(c *config) { c.patience = d } }

// defaultSilence is three of the server's heartbeats.
const defaultSilence = 45 * time.Second

// WithSilence is how long a stream may send nothing, heartbeats included, until
// its connection counts as broken. The default, 45 s, is three of the server's
// heartbeats; less than one makes a quiet stream come back for ever.
func WithSilence(d time.Duration) Option { return func(c *config) { c.silence = d } }

// WithOutage calls away when the server has stopped to answer and the client
// tries again, and back when it answers. A connection that only had to be made
// anew is no outage. Each is called by the goroutine that makes the call, so
// calls at once have outages of their own. nil is not called.
func WithOutage(away, back func()) Option {
	return func(c *config) { c.away, c.back = orNothing(away), orNothing(back) }
}

func orNothing(f func()) func() {
	if f == nil {
		return func() {}
	}
	return f
}

// New returns a client of the server at an address like
// http://127.0.0.1:8080. It does not connect: the error is that of an address
// that cannot be one.
func New(baseURL string, options ...Option) (*Client, error) {
	u, err := url.Parse(baseURL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("address of the server: %w", err)
	case u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("address of the server: it is neither http://HOST nor https://HOST")
	}
	return config{url: baseURL, http: http.DefaultClient, silence: defaultSilence, away: orNothing(nil), back: orNothing(nil)}.client(options), nil
}

// With returns a client of the same server on which more options are set.
func (c *Client) With(options ...Option) *Client { return c.client(options) }

func (c config) client(options []Option) *Client {
	for _, o := range options {
		o(&c)
	}
	h := *c.http
	h.Transport = bearer{key: c.key, next: h.Transport}
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{
		config:    c,
		sessions:  agentdv1connect.NewSessionServiceClient(&h, c.url),
		runs:      agentdv1connect.NewRunServiceClient(&h, c.url),
		approvals: agentdv1connect.NewApprovalServiceClient(&h, c.url),
		admin:     agentdv1connect.NewAdminServiceClient(&h, c.url),
		ledger:    agentdv1connect.NewLedgerServiceClient(&h, c.url),
	}
}

// bearer adds the API key to each request.
type bearer struct {
	key  string
	next http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.key != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.key)
	}
	if b.next == nil {
		return http.DefaultTransport.RoundTrip(r)
	}
	return b.next.RoundTrip(r)
}
