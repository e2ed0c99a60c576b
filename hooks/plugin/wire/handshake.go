package wire

import (
	"bytes"
	"io"
	"regexp"
	"slices"
)

// The handshake of hashicorp/go-plugin. Host and plugin have the same.
const (
	// ProtocolVersion is that of agentd.plugin.v1.
	ProtocolVersion = 1
	// CookieKey is the variable that tells a plugin that agentd has started it,
	// CookieValue what is in it. They are no secret.
	CookieKey   = "AGENTD_PLUGIN"
	CookieValue = "agentd.plugin.v1"
	// PluginName is what go-plugin calls the one plugin in a process.
	PluginName = "agentd"
	// TokenKey is the metadata that holds a token.
	TokenKey = "agentd-token"
)

// handshake is the line with which a plugin says where it listens. What was
// printed before it, without an end of line, may stand before it.
var handshake = regexp.MustCompile(`1\|\d+\|(?:unix|tcp)\|[^|]+\|[a-z]+(?:\|[^|]*)*$`)

// maxHandshake bounds the line of the handshake, in bytes: it has a path and a
// certificate.
const maxHandshake = 16 << 10

// Handshake returns what go-plugin may read of a plugin's standard output: the
// line of the handshake, and no other. Whatever else the plugin prints, before it
// and behind it, with ends of lines or without, is written to rest as it comes;
// what that does with it is its own affair, and its errors are ignored. So a
// plugin may print what it likes at any time, and memory is bounded.
//
// The reader ends when r does. It is for one goroutine, like r.
func Handshake(r io.Reader, rest io.Writer) io.Reader {
	return &handshakeReader{r: r, rest: rest, buffer: make([]byte, 32<<10)}
}

type handshakeReader struct {
	r      io.Reader
	rest   io.Writer
	buffer []byte
	// line is what has come of a line, at most maxHandshake of its end.
	line []byte
	// found is what is still to be read of the handshake.
	found []byte
	over  bool
}

// Read implements io.Reader.
func (h *handshakeReader) Read(p []byte) (int, error) {
	for len(h.found) == 0 {
		n, err := h.r.Read(h.buffer)
		h.take(h.buffer[:n])
		if err != nil && len(h.found) == 0 {
			h.pass(h.line)
			h.line = nil
			return 0, err
		}
	}
	n := copy(p, h.found)
	h.found = h.found[n:]
	return n, nil
}

// take looks for the handshake in what was read next.
func (h *handshakeReader) take(b []byte) {
	for len(b) > 0 && !h.over {
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			h.keep(b)
			return
		}
		h.keep(b[:end])
		b = b[end+1:]
		at := handshake.FindIndex(bytes.TrimRight(h.line, "\r"))
		if at == nil {
			h.pass(append(h.line, '\n'))
		} else {
			h.pass(h.line[:at[0]])
			h.found, h.over = slices.Concat(h.line[at[0]:at[1]], []byte{'\n'}), true
		}
		h.line = nil
	}
	h.pass(b)
}

// keep adds to the line. Of one that is too long the beginning is passed on.
func (h *handshakeReader) keep(b []byte) {
	h.line = append(h.line, b...)
	if more := len(h.line) - maxHandshake; more > 0 {
		h.pass(h.line[:more])
		h.line = append([]byte{}, h.line[more:]...)
	}
}

func (h *handshakeReader) pass(b []byte) {
	if len(b) > 0 {
		_, _ = h.rest.Write(b)
	}
}
