package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// subscription is an event stream over a connection of its own, read by one
// goroutine. It costs little, since it shares the cores with what is measured.
type subscription struct {
	conn   net.Conn
	lines  *bufio.Reader
	cancel func() bool
}

// subscribe opens the event stream of a session, which ends with ctx. It
// returns once the head of the answer is there.
func subscribe(ctx context.Context, url, sessionID, query string, buffer int) (*subscription, error) {
	var dialer net.Dialer
	host := strings.TrimPrefix(url, "http://")
	conn, err := dialer.DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, fmt.Errorf("open an event stream: %w", err)
	}
	s := &subscription{conn: conn, cancel: context.AfterFunc(ctx, func() { _ = conn.Close() })}
	fail := func(err error) (*subscription, error) {
		s.close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("open an event stream: %w", err)
	}
	_, err = io.WriteString(conn, "GET /v1/sessions/"+sessionID+"/events"+query+" HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
	if err != nil {
		return fail(err)
	}
	res, err := http.ReadResponse(bufio.NewReaderSize(conn, buffer), nil) //nolint:bodyclose // the connection is closed, which the body is read from
	if err != nil {
		return fail(err)
	}
	if res.StatusCode != http.StatusOK {
		return fail(fmt.Errorf("the status is %s", res.Status))
	}
	s.lines = bufio.NewReaderSize(res.Body, buffer)
	return s, nil
}

func (s *subscription) close() {
	s.cancel()
	_ = s.conn.Close()
}

var dataField = []byte("data: ")

// next returns the data of the next event, until the next call, and io.EOF at
// the end.
func (s *subscription) next() ([]byte, error) {
	for {
		line, err := s.lines.ReadSlice('\n')
		if err == bufio.ErrBufferFull { //nolint:errorlint // documented to be returned as it is
			long := bytes.Clone(line)
			line, err = s.lines.ReadBytes('\n')
			line = append(long, line...)
		}
		if err != nil {
			return nil, err
		}
		if data, ok := bytes.CutPrefix(line, dataField); ok {
			return data, nil
		}
	}
}

// eventType cuts the type out of an event.
func eventType(data []byte) string {
	_, rest, _ := bytes.Cut(data, []byte(`"type":"`))
	typ, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(typ)
}

var textField = []byte(`"text":"`)

// stamps calls add with each stamp in a delta of the paced model. Between them may
// be prose, which has no digits.
func stamps(data []byte, add func(time.Time)) {
	if !bytes.Contains(data, []byte(`"type":"assistant.delta"`)) {
		return
	}
	_, text, _ := bytes.Cut(data, textField)
	for {
		text = bytes.TrimLeftFunc(text, func(r rune) bool { return r != '"' && (r < '0' || r > '9') })
		if len(text) <= stampDigits || text[stampDigits] != ' ' {
			return
		}
		n, err := strconv.ParseInt(string(text[:stampDigits]), 10, 64)
		if err != nil {
			return
		}
		add(time.Unix(0, n))
		text = text[stampDigits+1:]
	}
}
