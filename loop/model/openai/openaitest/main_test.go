package openaitest_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/loop/model/openai/openaitest"
	"github.com/seed-2ca4966b/agentd/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }

const hello = `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`

// client is a client that keeps its connections until the test ends.
func client(t *testing.T) *http.Client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func request(ctx context.Context, t *testing.T, p *openaitest.Provider, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL+"/chat/completions", bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	return r
}

// reply is an answer as a client reads it.
type reply struct {
	status int
	header http.Header
	text   string
	// err is how the body ended, nil for properly.
	err error
}

// ask sends a body and reads the answer.
func ask(t *testing.T, c *http.Client, p *openaitest.Provider, body string) reply {
	t.Helper()
	res, err := c.Do(request(t.Context(), t, p, body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, string(data), err}
}

// raw sends bytes over a connection of its own and returns it.
func raw(t *testing.T, p *openaitest.Provider, bytes string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", p.URL[len("http://"):len(p.URL)-len("/v1")])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, bytes); err != nil {
		t.Fatal(err)
	}
	return conn
}
