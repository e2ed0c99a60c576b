package openai_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/model/openai"
	"github.com/seed-2ca4966b/agentd/loop/model/openai/openaitest"
)

// cutReader reads as much at a time as cuts say, in turn.
type cutReader struct {
	rest []byte
	cuts []byte
	next int
}

func (r *cutReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	size := len(r.rest)
	if len(r.cuts) > 0 {
		size = min(size, int(r.cuts[r.next%len(r.cuts)])+1)
		r.next++
	}
	n := copy(p, r.rest[:size])
	r.rest = r.rest[n:]
	return n, nil
}

// answerOf makes a call whose answer has this body, checks what holds for every
// answer, and writes it down.
func answerOf(t *testing.T, status int, body io.Reader, size int) string {
	t.Helper()
	m, err := openai.New(openai.Config{
		BaseURL: "http://provider.invalid/v1", FirstByteTimeout: -1, IdleTimeout: -1,
		HTTPClient: through(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Header: make(http.Header), Body: io.NopCloser(body)}, nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	calls := make(map[string]bool)
	over, texts := false, 0
	for c, err := range m.Stream(t.Context(), hello()) {
		if over {
			t.Fatalf("%+v and error %v follow the end", c, err)
		}
		if err != nil {
			over = true
			var me *loop.ModelError
			if !errors.As(err, &me) {
				t.Fatalf("got error %v, want a ModelError", err)
			}
			fmt.Fprintf(&out, "error: %d %q %q %v\n", me.Status, me.Code, me.Message, me.Retryable)
			continue
		}
		switch c.Kind {
		case stream.KindFinish:
			over = true
		case stream.KindToolCall:
			if calls[c.BlockID] || c.Call.Name == "" {
				t.Fatalf("call %+v is opened twice or has no name", c)
			}
			calls[c.BlockID] = true
		case stream.KindDelta:
			if texts += len(c.Text); c.Text == "" || c.Lane == stream.LaneToolArguments && !calls[c.BlockID] {
				t.Fatalf("delta %+v is empty or of a call that is not open", c)
			}
		case stream.KindEnd:
			t.Fatalf("chunk %+v is no adapter's", c)
		}
		fmt.Fprintf(&out, "%+v\n", c)
	}
	if texts > size {
		t.Fatalf("%d bytes of text came out of a body of %d", texts, size)
	}
	return out.String()
}

// FuzzStream holds that an answer does not depend on how the network cuts it
// or ends it in the same place, and that no body makes the model panic, hang or
// say what makes no sense.
func FuzzStream(f *testing.F) {
	for _, name := range append(openaitest.Fixtures(), "parallel_calls") {
		body := []byte(fixture(f, name))
		f.Add(body, []byte{0}, false)
		f.Add(bytes.ReplaceAll(body, []byte("\n"), []byte("\r\n")), []byte{6, 0, 250}, false)
	}
	for _, quirk := range openaitest.Quirks() {
		f.Add(script.Answer(quirk).Body, []byte{9, 40}, false)
	}
	for _, w := range wild {
		f.Add([]byte(w.body), []byte{0, 1, 2}, false)
	}
	for _, body := range []string{`{"error":{"message":"slow down","code":429}}`, `[{"error":{"status":"NOT_FOUND"}}]`, "<html>\n"} {
		f.Add([]byte(body), []byte{3}, true)
	}
	f.Fuzz(func(t *testing.T, body, cuts []byte, refused bool) {
		status := http.StatusOK
		if refused {
			status = http.StatusBadGateway
		}
		want := answerOf(t, status, bytes.NewReader(body), len(body))
		for _, r := range []io.Reader{
			iotest.OneByteReader(bytes.NewReader(body)), &cutReader{rest: body, cuts: cuts}, iotest.DataErrReader(bytes.NewReader(body)),
		} {
			if got := answerOf(t, status, r, len(body)); got != want {
				t.Fatalf("cut by %T: got\n%s\nwant\n%s", r, got, want)
			}
		}
		// A connection that breaks where the body would end: the answer is the
		// same but for an error that nobody had the time to judge.
		broken := io.MultiReader(bytes.NewReader(body), iotest.ErrReader(io.ErrUnexpectedEOF))
		if got := answerOf(t, status, broken, len(body)); got != want {
			t.Fatalf("broken: got\n%s\nwant\n%s", got, want)
		}
	})
}
