package openaitest

import (
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// patience is how long a test waits for a request before it fails.
const patience = 30 * time.Second

// Config says how strict a provider is.
type Config struct {
	Rules Rules
	// Key is the bearer token that a request has to carry; "" takes any.
	Key string
	// MayRefuse lets the test look at refusals itself, with
	// [Provider.Refusals]. Without it each one fails the test.
	MayRefuse bool
}

// T is what a provider needs of its test, which is a [testing.TB] or a program
// that stands in for one.
type T interface {
	// Helper marks the caller as one that lines of a log are not about.
	Helper()
	// Errorf says that the test has failed, which goes on.
	Errorf(format string, args ...any)
	// Fatalf ends the test, which has failed.
	Fatalf(format string, args ...any)
	// Cleanup has a function called when the test ends.
	Cleanup(func())
}

// Provider is a fake provider, which lives as long as its test. It is safe for
// concurrent use.
type Provider struct {
	// URL is the base URL, to which /chat/completions is appended.
	URL string

	t        T
	cfg      Config
	listener net.Listener
	closing  chan struct{}
	serving  sync.WaitGroup
	// patience is how long Await waits.
	patience time.Duration

	mu       sync.Mutex
	queue    []Answer
	respond  func(Request) Answer
	requests []Request
	refusals []Refusal
	conns    map[net.Conn]bool
	changed  chan struct{} // closed when a request arrives
}

// New starts a provider that refuses what every strict provider refuses and
// gives these answers, one per request.
func New(t T, answers ...Answer) *Provider {
	t.Helper()
	return Config{}.New(t, answers...)
}

// New starts a provider. It is stopped when the test ends: whoever still waits
// for an answer then loses the connection.
func (c Config) New(t T, answers ...Answer) *Provider {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("fake provider: %v", err)
	}
	p := &Provider{
		URL: "http://" + l.Addr().String() + "/v1", t: t, cfg: c, listener: l, queue: answers,
		patience: patience, closing: make(chan struct{}), conns: make(map[net.Conn]bool), changed: make(chan struct{}),
	}
	p.serving.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Answer puts answers at the end of the queue. A request that the provider
// does not refuse takes one.
func (p *Provider) Answer(answers ...Answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, answers...)
}

// Respond sets what answers while the queue is empty. f is called by several
// goroutines if several requests come at once. Without it a request too many
// fails the test and gets a 500.
func (p *Provider) Respond(f func(Request) Answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.respond = f
}

// Requests returns what has come so far, refused requests included, in the
// order of arrival.
func (p *Provider) Requests() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

// Await returns the n-th request, counted from 1, once it has come.
func (p *Provider) Await(t testing.TB, n int) Request {
	t.Helper()
	deadline := time.NewTimer(p.patience)
	defer deadline.Stop()
	for {
		p.mu.Lock()
		requests, changed := p.requests, p.changed
		p.mu.Unlock()
		if len(requests) >= n {
			return requests[n-1]
		}
		select {
		case <-changed:
		case <-deadline.C:
			t.Fatalf("fake provider: request %d did not come, only %d", n, len(requests))
		}
	}
}

// Refusals returns the requests that were refused.
func (p *Provider) Refusals() []Refusal {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.refusals)
}

// Left returns how many answers nobody has asked for.
func (p *Provider) Left() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.queue)
}

// take records a request and returns the answer to it.
func (p *Provider) take(r *Request) Answer {
	refusal := p.cfg.check(r)
	p.mu.Lock()
	r.N = len(p.requests) + 1
	p.requests = append(p.requests, *r)
	close(p.changed)
	p.changed = make(chan struct{})
	if refusal != nil {
		refusal.Request = *r
		p.refusals = append(p.refusals, *refusal)
		p.mu.Unlock()
		if !p.cfg.MayRefuse {
			p.t.Errorf("fake provider: request %d: %v\n%s", r.N, refusal, r.Body)
		}
		return refusal.answer()
	}
	if len(p.queue) > 0 {
		defer p.mu.Unlock()
		a := p.queue[0]
		p.queue = p.queue[1:]
		return a
	}
	respond := p.respond
	p.mu.Unlock()
	if respond == nil {
		p.t.Errorf("fake provider: request %d was not expected\n%s", r.N, r.Body)
		return Error(500, "server_error", "", "no answer is left")
	}
	return respond(*r)
}

func (p *Provider) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		if p.keep(conn) {
			p.serving.Go(func() {
				defer p.drop(conn)
				p.serve(conn)
			})
		}
	}
}

// keep remembers a connection, so that close can close it.
func (p *Provider) keep(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		conn.Close()
		return false
	}
	p.conns[conn] = true
	return true
}

func (p *Provider) drop(conn net.Conn) {
	conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
}

func (p *Provider) close() {
	close(p.closing)
	p.listener.Close()
	p.mu.Lock()
	for conn := range p.conns {
		conn.Close()
	}
	p.conns = nil
	p.mu.Unlock()
	p.serving.Wait()
}
