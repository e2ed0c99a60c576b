package openaitest

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"time"
)

// serve answers the requests of one connection, one after the other.
func (p *Provider) serve(conn net.Conn) {
	in := bufio.NewReader(conn)
	for {
		r, err := readRequest(in)
		if err != nil {
			return // the client has left
		}
		x := &exchange{provider: p, conn: conn, gone: make(chan struct{})}
		// What comes meanwhile is the next request, or the client's farewell,
		// which ends a hold.
		idle := make(chan struct{})
		p.serving.Go(func() {
			defer close(idle)
			if _, err := in.Peek(1); err != nil {
				close(x.gone)
			}
		})
		keep := x.play(p.take(r).to(r))
		if !keep {
			x.leave()
		}
		close(r.ended)
		<-idle
		if !keep {
			return
		}
	}
}

// exchange is one request and its answer.
type exchange struct {
	provider *Provider
	conn     net.Conn
	// gone is closed when the client has left.
	gone chan struct{}
	// reset makes leave reset the connection.
	reset bool
}

// play sends a and reports whether the connection can be used again.
func (x *exchange) play(a Answer) (keep bool) {
	if !x.held(a.Holds[BeforeHeaders]) || !x.write(a.head()) || !x.held(a.Holds[0]) {
		return false
	}
	sent := 0
	for _, stop := range a.stops() {
		if !x.part(a, a.Body[sent:stop]) || !x.pause(a.Pause) {
			return false
		}
		sent = stop
		if sent > 0 && !x.held(a.holdAt(sent)) {
			return false
		}
	}
	if sent == 0 && !x.held(a.Holds[AtEnd]) {
		return false
	}
	x.reset = a.End == EndReset
	return a.End == EndProper && x.write("0\r\n\r\n")
}

// part writes a part of the body in one write.
func (x *exchange) part(a Answer, part []byte) bool {
	if len(part) == 0 {
		return true // an empty chunk would be the last one
	}
	if a.End == EndClose {
		return x.write(string(part))
	}
	return x.write(fmt.Sprintf("%x\r\n%s\r\n", len(part), part))
}

func (x *exchange) write(s string) bool {
	_, err := x.conn.Write([]byte(s))
	return err == nil
}

// held waits for h to be released and reports whether somebody is still there.
func (x *exchange) held(h *Hold) bool {
	if h == nil {
		return true
	}
	h.reach.Do(func() { close(h.reached) })
	select {
	case <-h.released:
		return true
	case <-x.gone:
	case <-x.provider.closing:
	}
	return false
}

// pause waits and reports whether somebody is still there.
func (x *exchange) pause(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-x.gone:
	case <-x.provider.closing:
	}
	return false
}

// leave closes the connection.
func (x *exchange) leave() {
	if tcp, ok := x.conn.(*net.TCPConn); ok && x.reset {
		delivered(tcp)       // a reset throws away what is still on its way
		_ = tcp.SetLinger(0) // closing then resets
	}
	x.conn.Close()
}

func statusLine(status int) string {
	if status == 0 {
		status = http.StatusOK
	}
	return fmt.Sprintf("HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
}
