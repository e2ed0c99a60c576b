package storetest

import (
	"bytes"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// Line is the way from a test to its database: a proxy on loopback that can be
// cut, fall silent, be slow, and lose what it is given. It is safe for
// concurrent use, and ends with the test.
type Line struct {
	// URL is that of the database, through the line.
	URL string

	target string
	listen net.Listener
	done   sync.WaitGroup
	fault  atomic.Pointer[func(request []byte) Fault]
	delay  atomic.Int64

	mu    sync.Mutex
	isCut bool
	hang  chan struct{} // closed when it speaks again; nil while it does
	conns map[net.Conn]struct{}
	// silenced is how many connections are silent for good: the first ones.
	silenced, count int64
}

// Fault is what becomes of a request that a line is given. The zero value
// passes it on.
type Fault struct {
	// LoseRequest cuts the connection instead, LoseReply once the database has
	// answered.
	LoseRequest, LoseReply bool
	// Code answers a COMMIT, which is rolled back, with an error of that
	// SQLSTATE; Fatal is one after which the server hangs up.
	Code  string
	Fatal bool
}

// T is what a line needs of its test, which is a [testing.TB] or a program that
// stands in for one.
type T interface {
	// Helper marks the caller as one that lines of a log are not about.
	Helper()
	// Fatal ends the test, which has failed.
	Fatal(args ...any)
	// Cleanup has a function called when the test ends.
	Cleanup(func())
}

// NewLine returns a line to the database of a URL.
func NewLine(t T, databaseURL string) *Line {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &Line{target: u.Host, listen: listen, conns: map[net.Conn]struct{}{}}
	u.Host = listen.Addr().String()
	l.URL = u.String()
	l.done.Go(l.accept)
	t.Cleanup(func() {
		_ = listen.Close()
		l.Cut()
		l.Speak()
		l.done.Wait()
	})
	return l
}

// Cut ends all connections, and every new one, until Mend.
func (l *Line) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = true
	for c := range l.conns {
		_ = c.Close()
	}
}

// Mend ends a Cut.
func (l *Line) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = false
}

// Hang passes nothing on any more, and closes nothing: the packets are dropped
// until Speak. What comes in between arrives then.
func (l *Line) Hang() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hang == nil {
		l.hang = make(chan struct{})
	}
}

// Speak ends a Hang.
func (l *Line) Speak() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hang != nil {
		close(l.hang)
		l.hang = nil
	}
}

// Silence drops what comes over the connections that there are, and closes
// none; new ones are as before.
func (l *Line) Silence() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silenced = l.count
}

func (l *Line) isSilent(number int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return number <= l.silenced
}

// Delay makes each request later by so much.
func (l *Line) Delay(d time.Duration) { l.delay.Store(int64(d)) }

// Faults has f asked what becomes of each request, which is a COMMIT or ends
// with a Sync. f is called by many goroutines; nil has all passed on.
func (l *Line) Faults(f func(request []byte) Fault) {
	if f == nil {
		l.fault.Store(nil)
		return
	}
	l.fault.Store(&f)
}

// IsCommit reports whether a request is a COMMIT by itself.
func IsCommit(request []byte) bool { return bytes.Contains(request, commit) }

var (
	commit      = []byte("commit\x00")
	abort       = []byte("abort \x00") // as long
	syncMessage = []byte("S\x00\x00\x00\x04")
)

func (l *Line) accept() {
	for {
		client, err := l.listen.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", l.target) //nolint:noctx // it is loopback
		if err != nil || !l.add(client, server) {
			_ = client.Close()
			if server != nil {
				_ = server.Close()
			}
			continue
		}
		l.mu.Lock()
		l.count++
		c := &lineConn{Line: l, number: l.count, client: client, server: server}
		l.mu.Unlock()
		l.done.Go(c.toServer)
		l.done.Go(c.toClient)
	}
}

func (l *Line) add(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCut {
		return false
	}
	for _, c := range conns {
		l.conns[c] = struct{}{}
	}
	return true
}

// wait returns when the line speaks.
func (l *Line) wait() {
	l.mu.Lock()
	hang := l.hang
	l.mu.Unlock()
	if hang != nil {
		<-hang
	}
}

// lineConn is one connection over a line.
type lineConn struct {
	*Line
	number         int64
	client, server net.Conn
	pending        atomic.Pointer[Fault] // for the next reply
}

func (c *lineConn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range []net.Conn{c.client, c.server} {
		_ = conn.Close()
		delete(c.conns, conn)
	}
}

func (c *lineConn) toServer() {
	defer c.close()
	buf := make([]byte, 64<<10)
	for {
		n, err := c.client.Read(buf)
		if err != nil {
			return
		}
		request := buf[:n]
		if c.wait(); c.isSilent(c.number) {
			continue
		}
		if d := time.Duration(c.delay.Load()); d > 0 {
			time.Sleep(d) //nolint:forbidigo // latency is what was asked for
		}
		if f := c.fault.Load(); f != nil && (IsCommit(request) || bytes.HasSuffix(request, syncMessage)) {
			fault := (*f)(request)
			if fault.LoseRequest {
				return
			}
			if fault.Code != "" {
				request = bytes.Replace(request, commit, abort, 1)
			}
			if fault != (Fault{}) {
				c.pending.Store(&fault)
			}
		}
		if _, err := c.server.Write(request); err != nil {
			return
		}
	}
}

func (c *lineConn) toClient() {
	defer c.close()
	buf := make([]byte, 64<<10)
	for {
		n, err := c.server.Read(buf)
		if err != nil {
			return
		}
		if c.wait(); c.isSilent(c.number) {
			continue
		}
		reply := buf[:n]
		if fault := c.pending.Swap(nil); fault != nil {
			if fault.LoseReply {
				return
			}
			reply = fault.reply()
			if fault.Fatal {
				_, _ = c.client.Write(reply)
				return
			}
		}
		if _, err := c.client.Write(reply); err != nil {
			return
		}
	}
}

// reply is the error as the server would send it.
func (f *Fault) reply() []byte {
	severity := "ERROR"
	if f.Fatal {
		severity = "FATAL"
	}
	var fields []byte
	for _, field := range []string{"S" + severity, "V" + severity, "C" + f.Code, "Mthe line says so"} {
		fields = append(append(fields, field...), 0)
	}
	fields = append(fields, 0)
	out := append([]byte{'E', 0, 0, 0, byte(4 + len(fields))}, fields...)
	if !f.Fatal {
		out = append(out, 'Z', 0, 0, 0, 5, 'I')
	}
	return out
}
