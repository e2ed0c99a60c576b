package pgproxy_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/proctest"
	"github.com/seed-2ca4966b/agentd/store/pgproxy"
)

func TestMain(m *testing.M) { proctest.Main(m) }

// echo is a server that answers with what it is sent, and a proxy in front.
func echo(t *testing.T) (p *pgproxy.Proxy, dial func() net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	p, through, err := pgproxy.New("postgres://u:p@" + l.Addr().String() + "/db?x=1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	u, err := url.Parse(through)
	if err != nil || u.Path != "/db" || u.RawQuery != "x=1" || u.User.String() != "u:p" {
		t.Fatalf("the URL is %s, %v", through, err)
	}
	return p, func() net.Conn {
		var d net.Dialer
		c, err := d.DialContext(t.Context(), "tcp", u.Host)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
}

// say returns what comes back.
func say(t *testing.T, c net.Conn, text string) (string, error) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	b := make([]byte, len(text))
	_, err := io.ReadFull(c, b)
	return string(b), err
}

func isCut(err error) bool {
	return err != nil && !errors.Is(err, context.DeadlineExceeded)
}

const aCommit = "Q\x00\x00\x00\x0bcommit\x00"

func TestWhatIsSaidIsPassedOn(t *testing.T) {
	t.Parallel()
	_, dial := echo(t)
	for _, text := range []string{"hello", strings.Repeat("x", 200_000), aCommit} {
		c := dial()
		go func() { _, _ = io.WriteString(c, text) }()
		b := make([]byte, len(text))
		if _, err := io.ReadFull(c, b); err != nil || string(b) != text {
			t.Errorf("%d bytes: %v", len(text), err)
		}
	}
}

func TestCutClosesWhatIsThereAndNothingElse(t *testing.T) {
	t.Parallel()
	p, dial := echo(t)
	before := dial()
	if _, err := say(t, before, "a"); err != nil {
		t.Fatal(err)
	}
	p.Cut()
	if _, err := say(t, before, "b"); !isCut(err) {
		t.Errorf("it still answers: %v", err)
	}
	if _, err := say(t, dial(), "c"); err != nil {
		t.Errorf("nobody can come back: %v", err)
	}
}

func TestRefuseLetsNobodyInUntilItIsOver(t *testing.T) {
	t.Parallel()
	p, dial := echo(t)
	before := dial()
	if _, err := say(t, before, "a"); err != nil {
		t.Fatal(err)
	}
	p.Refuse(true)
	if _, err := say(t, dial(), "b"); !isCut(err) {
		t.Errorf("somebody came in: %v", err)
	}
	if _, err := say(t, before, "c"); err != nil {
		t.Errorf("who was there is out: %v", err)
	}
	p.Refuse(false)
	if _, err := say(t, dial(), "d"); err != nil {
		t.Errorf("nobody can come back: %v", err)
	}
}

func TestASilenceKeepsBackAndLosesNothing(t *testing.T) {
	t.Parallel()
	p, dial := echo(t)
	c := dial()
	if _, err := say(t, c, "a"); err != nil {
		t.Fatal(err)
	}
	p.Silence()
	if _, err := io.WriteString(c, "b"); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if n, err := c.Read(b); n != 0 || err == nil {
		t.Errorf("it says %q in a silence", b[:n])
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	p.Speak()
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "b" {
		t.Errorf("after it: %q, %v", b, err)
	}
	p.Silence() // Close ends it
}

func TestACommitIsLost(t *testing.T) {
	t.Parallel()
	p, dial := echo(t)
	p.LoseCommit()
	c := dial()
	if _, err := say(t, c, "a"); err != nil || p.Hits() != 0 {
		t.Fatalf("what is no COMMIT: %v, %d", err, p.Hits())
	}
	if back, err := say(t, c, aCommit); !isCut(err) || p.Hits() != 1 {
		t.Errorf("%q, %v, %d", back, err, p.Hits())
	}
	if _, err := say(t, dial(), aCommit); err != nil {
		t.Errorf("the one after it: %v", err)
	}
}

func TestTheAnswerToACommitIsLost(t *testing.T) {
	t.Parallel()
	p, dial := echo(t)
	p.LoseAnswer()
	if back, err := say(t, dial(), aCommit); !isCut(err) || p.Hits() != 1 {
		t.Errorf("%q, %v, %d", back, err, p.Hits())
	}
	if _, err := say(t, dial(), aCommit); err != nil {
		t.Errorf("the one after it: %v", err)
	}
}

func TestNobodyBehindIt(t *testing.T) {
	t.Parallel()
	if _, _, err := pgproxy.New("postgres://%zz"); err == nil || !strings.Contains(err.Error(), "database URL") {
		t.Errorf("an address that is none: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	p, through, err := pgproxy.New("postgres://" + l.Addr().String() + "/db")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	u, err := url.Parse(through)
	if err != nil {
		t.Fatal(err)
	}
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := say(t, c, "a"); !isCut(err) {
		t.Errorf("somebody answers: %v", err)
	}
}
