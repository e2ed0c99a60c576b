// Package pgproxy stands between programs and their Postgres and does to the
// connections what networks and failing hosts do: it cuts them, keeps silent,
// refuses new ones, and loses a COMMIT or the answer to it. It is for programs
// and tests that want to see what follows.
package pgproxy

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
)

// Proxy listens on loopback and passes on what it is sent. It is safe for
// concurrent use. Close ends it.
type Proxy struct {
	listener net.Listener
	target   string
	end      context.CancelFunc
	commits  atomic.Int32 // a fate, for the next COMMIT
	hit      atomic.Int64
	running  sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	refusing bool
	silent   chan struct{} // closed when the silence is over; nil is none
	conns    map[net.Conn]struct{}
}

// What becomes of the next COMMIT.
const (
	passed int32 = iota
	lost
	unanswered
)

// New starts a proxy and returns it with the URL that leads through it.
func New(databaseURL string) (*Proxy, string, error) {
	u, err := url.Parse(databaseURL)
	if err != nil {
		return nil, "", fmt.Errorf("proxy: database URL: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", fmt.Errorf("proxy: %w", err)
	}
	ctx, end := context.WithCancel(context.Background())
	p := &Proxy{listener: listener, target: u.Host, end: end, conns: map[net.Conn]struct{}{}}
	u.Host = listener.Addr().String()
	p.running.Go(func() { p.accept(ctx) })
	return p, u.String(), nil
}

// Close ends all connections and returns when nothing of the proxy is left.
func (p *Proxy) Close() {
	p.end()
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Speak()
	p.Cut()
	p.running.Wait()
}

// Cut closes all connections that there are. New ones may be made.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// Refuse says whether new connections are closed at once.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = refuse
}

// Silence keeps back everything, in both directions and without closing a
// connection, until [Proxy.Speak]. What was kept back is sent then.
func (p *Proxy) Silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.silent == nil && !p.closed {
		p.silent = make(chan struct{})
	}
}

// Speak ends a silence.
func (p *Proxy) Speak() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.silent != nil {
		close(p.silent)
		p.silent = nil
	}
}

// LoseCommit closes the connection that sends the next COMMIT, which never
// reaches the server.
func (p *Proxy) LoseCommit() { p.commits.Store(lost) }

// LoseAnswer passes the next COMMIT on, and closes the connection in place of
// the answer.
func (p *Proxy) LoseAnswer() { p.commits.Store(unanswered) }

// Hits is how many COMMITs have met such a fate.
func (p *Proxy) Hits() int { return int(p.hit.Load()) }

func (p *Proxy) accept(ctx context.Context) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.join(ctx, client) })
	}
}

// join serves one connection.
func (p *Proxy) join(ctx context.Context, client net.Conn) {
	p.hush()
	var dialer net.Dialer
	server, err := dialer.DialContext(ctx, "tcp", p.target)
	if err != nil {
		_ = client.Close()
		return
	}
	if !p.keep(client, server) {
		return
	}
	defer p.drop(client, server)
	var swallow atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer p.drop(client, server)
		p.pass(client, server, func(b []byte) bool { return p.commit(b, &swallow) })
	}()
	p.pass(server, client, func([]byte) bool { return !swallow.Load() })
	p.drop(client, server)
	<-done
}

// pass copies until the end, or until may says no.
func (p *Proxy) pass(from, to net.Conn, may func([]byte) bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		p.hush()
		if !may(buf[:n]) {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// hush waits for the end of a silence.
func (p *Proxy) hush() {
	p.mu.Lock()
	silent := p.silent
	p.mu.Unlock()
	if silent != nil {
		<-silent
	}
}

// commit looks for a COMMIT in what a client sends, and deals with it.
func (p *Proxy) commit(b []byte, swallow *atomic.Bool) (pass bool) {
	if p.commits.Load() == passed || !bytes.Contains(b, []byte("commit\x00")) {
		return true
	}
	switch p.commits.Swap(passed) {
	case lost:
		p.hit.Add(1)
		return false
	case unanswered:
		p.hit.Add(1)
		swallow.Store(true)
	}
	return true
}

func (p *Proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.closed || p.refusing {
			_ = c.Close()
			continue
		}
		p.conns[c] = struct{}{}
	}
	return !p.closed && !p.refusing
}

func (p *Proxy) drop(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}
