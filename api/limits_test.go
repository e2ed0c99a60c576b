package api_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/seed-2ca4966b/agentd/api"
	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
)

// impatient is a server that waits for the shortest time that a test can tell
// from none.
func impatient(_ *api.Config, s *http.Server) {
	s.ReadHeaderTimeout, s.ReadTimeout, s.MaxHeaderBytes = 200*time.Millisecond, 400*time.Millisecond, 4<<10
}

// dial opens a connection and sends what a slow client has sent so far.
func (b *bundle) dial(t *testing.T, sent string) *bufio.Reader {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, sent); err != nil {
		t.Fatal(err)
	}
	return bufio.NewReader(conn)
}

func TestAHeadThatDoesNotArriveEndsItsConnection(t *testing.T) {
	t.Parallel()
	b := setup(t, impatient)
	for _, sent := range []string{"", "P", "POST " + startRun + " HTTP/1.1\r\nHost: localhost\r\nContent-Le"} {
		if got, err := io.ReadAll(b.dial(t, sent)); err != nil || len(got) > 0 && !strings.HasPrefix(string(got), "HTTP/1.1 400 ") {
			t.Errorf("%q: answered %q, %v, want the connection closed", sent, got, err)
		}
	}
}

func TestAHeadThatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, impatient)
	large := strings.Repeat("x", 16<<10)
	for name, sent := range map[string]string{
		"header": "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Large: " + large + "\r\n\r\n",
		"path":   "GET /healthz?" + large + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
	} {
		res, err := http.ReadResponse(b.dial(t, sent), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%s: status %d, want 431", name, res.StatusCode)
		}
	}
}

// trickle is a body that begins and does not go on until the test ends.
type trickle struct {
	begun bool
	ctx   context.Context //nolint:containedctx // the end of the test, for a reader
}

func (r *trickle) Read(p []byte) (int, error) {
	if !r.begun {
		r.begun = true
		return copy(p, "{"), nil
	}
	<-r.ctx.Done()
	return 0, io.EOF
}

func TestABodyThatDoesNotArriveIsGivenUpAndSaysSo(t *testing.T) {
	t.Parallel()
	b := setup(t, impatient)
	for name, client := range map[string]*http.Client{"HTTP/1.1": b.client, "h2c": h2c(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := *b
			c.client = client
			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(cancel)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+startRun, &trickle{ctx: ctx})
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			wantConnectError(t, c.do(t, req), 408, "deadline_exceeded", "too_slow")
		})
	}
}

func TestAStreamWhoseRequestDoesNotArriveIsGivenUpAndSaysSo(t *testing.T) {
	t.Parallel()
	b := setup(t, impatient)
	res, err := http.ReadResponse(b.dial(t, "POST /agentd.v1.SessionService/WatchEvents HTTP/1.1\r\nHost: localhost\r\n"+
		"Content-Type: application/connect+json\r\nContent-Length: 100\r\n\r\n\x00"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	body, err := io.ReadAll(res.Body)
	if err != nil || !strings.Contains(string(body), `"deadline_exceeded"`) || !strings.Contains(string(body), "did not arrive in time") || strings.Contains(string(body), "127.0.0.1") {
		t.Errorf("%q, %v", body, err)
	}
}

// TestPagesAreCutBeforeTheyAreTooLarge: an element of half a MiB, five times.
func TestPagesAreCutBeforeTheyAreTooLarge(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.newSession(t)
	for range 5 {
		run := b.start(t, id, "hi").RunID
		b.begin(t, id, run)
		b.complete(t, id, run, strings.Repeat("x", 512<<10))
	}
	var sizes []int
	for after, more := uint64(0), true; more; {
		res, err := b.sessions.ListEvents(t.Context(), connect.NewRequest(&agentdv1.ListEventsRequest{SessionId: id, After: after}))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range res.Msg.GetEvents() {
			if e.GetSeq() != after+1 {
				t.Errorf("event %d behind %d", e.GetSeq(), after)
			}
			after = e.GetSeq()
		}
		sizes, more = append(sizes, len(res.Msg.GetEvents())), res.Msg.GetMore()
	}
	if len(sizes) != 2 {
		t.Errorf("pages of %v events, want two", sizes)
	}
	var got []string
	pages := 0
	for token := ""; pages == 0 || token != ""; pages++ {
		res, err := b.sessions.ListMessages(t.Context(), connect.NewRequest(&agentdv1.ListMessagesRequest{SessionId: id, PageToken: token}))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range res.Msg.GetMessages() {
			got = append(got, m.GetId())
		}
		token = res.Msg.GetNextPageToken()
	}
	if len(got) != 10 || pages != 2 || len(slices.Compact(slices.Clone(got))) != len(got) {
		t.Errorf("%d messages on %d pages: %v", len(got), pages, got)
	}
}
