package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"sync"
	"testing"
)

// balancer stands in front of processes and sends each request to one that says
// that it is ready. One that cannot be reached has not been asked for anything,
// and the request goes to the next.
type balancer struct {
	url string

	mu       sync.Mutex
	backends []string // hosts
	turn     int
}

var errNobodyIsReady = errors.New("no process is ready")

func newBalancer(t *testing.T) *balancer {
	t.Helper()
	b := &balancer{}
	s := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.Out.URL.Scheme = "http" },
		Transport: b, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0), // that streams are cut is what this is about
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	b.url = s.URL
	return b
}

// set says which processes there are.
func (b *balancer) set(t *testing.T, servers ...*server) {
	t.Helper()
	var hosts []string
	for _, s := range servers {
		hosts = append(hosts, s.address(t))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends = hosts
}

// next are the processes in the order in which this request tries them.
func (b *balancer) next() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn++
	var out []string
	for i := range b.backends {
		out = append(out, b.backends[(b.turn+i)%len(b.backends)])
	}
	return out
}

// RoundTrip implements http.RoundTripper.
func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	transport := freshClient().Transport
	for _, host := range b.next() {
		if !isReady(r.Context(), host) {
			continue
		}
		again := r.Clone(r.Context())
		again.URL.Host, again.Body = host, io.NopCloser(bytes.NewReader(body))
		res, err := transport.RoundTrip(again)
		if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" {
			continue
		}
		return res, err
	}
	return nil, errNobodyIsReady
}

func isReady(ctx context.Context, host string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/readyz", http.NoBody)
	if err != nil {
		return false
	}
	res, err := freshClient().Do(req)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}
