package main

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// front stands before an API as a proxy does, and can cut what goes through it.
type front struct {
	url      string
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	target string
	// cut says after how many bytes of answers the next connection ends; nil
	// never.
	cut func() int64
	// deaf says that the next connection is answered nothing.
	deaf  bool
	conns map[net.Conn]struct{}
	// count is how many connections there were.
	count int
}

func newFront(t *testing.T, url string) *front {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &front{url: "http://" + listener.Addr().String(), listener: listener, conns: map[net.Conn]struct{}{}}
	f.lead(url)
	f.running.Go(f.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		f.cutAll()
		f.running.Wait()
	})
	return f
}

// lead sends the connections that come to the server at url.
func (f *front) lead(url string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.target = strings.TrimPrefix(url, "http://")
}

// set changes how the next connections fare.
func (f *front) set(change func(*front)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// cutAll ends the connections that there are.
func (f *front) cutAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		_ = c.Close()
	}
}

func (f *front) accept() {
	for {
		client, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		target, limit, deaf := f.target, int64(-1), f.deaf
		if f.cut != nil {
			limit = f.cut()
		}
		f.deaf = false
		f.count++
		f.mu.Unlock()
		server, err := net.Dial("tcp", target)
		if err != nil {
			_ = client.Close()
			continue
		}
		f.mu.Lock()
		f.conns[client], f.conns[server] = struct{}{}, struct{}{}
		f.mu.Unlock()
		f.running.Go(func() { f.copy(server, client, -1) })
		f.running.Go(func() {
			if deaf {
				f.copy(io.Discard, server, -1)
			} else {
				f.copy(client, server, limit)
			}
		})
	}
}

// copy hands on up to limit bytes, all if it is negative, and ends both sides.
func (f *front) copy(to io.Writer, from net.Conn, limit int64) {
	if limit < 0 {
		_, _ = io.Copy(to, from)
	} else {
		_, _ = io.CopyN(to, from, limit)
	}
	_ = from.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, from)
	if c, ok := to.(net.Conn); ok {
		_ = c.Close()
	}
}
