package store_test

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy stands between a store and its database and cuts connections.
type proxy struct {
	listener net.Listener
	target   string
	refuse   atomic.Bool
	// cut says what happens to the next COMMIT.
	cut atomic.Int32

	running sync.WaitGroup
	mu      sync.Mutex
	conns   map[net.Conn]struct{}
}

const (
	cutNothing int32 = iota
	// cutBefore loses the COMMIT on its way.
	cutBefore
	// cutAfter delivers it and loses the answer.
	cutAfter
)

// newProxy returns a proxy and the URL that goes through it.
func newProxy(t *testing.T, databaseURL string) (*proxy, string) {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, target: u.Host, conns: map[net.Conn]struct{}{}}
	u.Host = listener.Addr().String()
	p.running.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.closeAll()
		p.running.Wait()
	})
	return p, u.String()
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil || !p.keep(client, server) {
			_ = client.Close()
			continue
		}
		var swallow atomic.Bool
		p.running.Go(func() { p.toServer(client, server, &swallow) })
		p.running.Go(func() { p.toClient(client, server, &swallow) })
	}
}

func (p *proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.refuse.Load() {
			_ = c.Close()
			continue
		}
		p.conns[c] = struct{}{}
	}
	return !p.refuse.Load()
}

func (p *proxy) toServer(client, server net.Conn, swallow *atomic.Bool) {
	defer p.drop(client, server)
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		if bytes.Contains(buf[:n], []byte("commit\x00")) {
			switch p.cut.Swap(cutNothing) {
			case cutBefore:
				return
			case cutAfter:
				swallow.Store(true)
			}
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *proxy) toClient(client, server net.Conn, swallow *atomic.Bool) {
	defer p.drop(client, server)
	_, _ = io.Copy(writerFunc(func(b []byte) (int, error) {
		if swallow.Load() {
			return 0, io.ErrClosedPipe
		}
		return client.Write(b)
	}), server)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func (p *proxy) drop(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}

func (p *proxy) closeAll() {
	p.refuse.Store(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}
