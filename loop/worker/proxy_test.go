package worker_test

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// proxy stands between a process and its database, and can be cut.
type proxy struct {
	target string
	listen net.Listener
	done   sync.WaitGroup

	mu    sync.Mutex
	isCut bool
	conns map[net.Conn]bool
}

// throughProxy returns a pool that connects through a proxy.
func throughProxy(t *testing.T, databaseURL string) (*pgxpool.Pool, *proxy) {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{target: u.Host, listen: l, conns: map[net.Conn]bool{}}
	p.done.Go(p.accept)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		p.cut()
		p.done.Wait()
	})
	u.Host = l.Addr().String()
	pool, err := pgxpool.New(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool, p
}

func (p *proxy) accept() {
	for {
		conn, err := p.listen.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil || !p.add(conn, server) {
			_ = conn.Close()
			if server != nil {
				_ = server.Close()
			}
			continue
		}
		p.done.Go(func() { p.copy(conn, server) })
		p.done.Go(func() { p.copy(server, conn) })
	}
}

func (p *proxy) add(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = true
	}
	if p.isCut {
		for _, c := range conns {
			delete(p.conns, c)
		}
	}
	return !p.isCut
}

func (p *proxy) copy(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = from.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, from)
}

// cut ends all connections and lets none through.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = true
	for c := range p.conns {
		_ = c.Close()
	}
}

// mend lets new connections through.
func (p *proxy) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = false
}
