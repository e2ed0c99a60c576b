package openaitest_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/loop/model/openai/openaitest"
)

func TestARequestIsRecordedAsItCame(t *testing.T) {
	t.Parallel()
	p := openaitest.New(t, openaitest.Text("a"), openaitest.Text("b"))
	head := "POST /v1/chat/completions?x=%20y HTTP/1.1\r\nhost: h\r\nContent-type: application/json\r\nX-Two: 1\r\nx-two:  2 \r\n"
	conn := raw(t, p, head+"Content-Length: 71\r\n\r\n"+hello)
	in := bufio.NewReader(conn)
	readAnswer(t, in)
	// The second request of the connection, in chunks.
	if _, err := io.WriteString(conn, head+"Transfer-Encoding: chunked\r\n\r\n8\r\n"+hello[:8]+"\r\n3f\r\n"+hello[8:]+"\r\n0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	readAnswer(t, in)
	for i, r := range p.Requests() {
		if r.N != i+1 || r.Method != http.MethodPost || r.Path != "/v1/chat/completions?x=%20y" || string(r.Body) != hello {
			t.Errorf("request %d: %+v", i+1, r)
		}
		want := []openaitest.HeaderLine{{Name: "host", Value: "h"}, {Name: "Content-type", Value: "application/json"}, {Name: "X-Two", Value: "1"}, {Name: "x-two", Value: "2"}}
		if !slices.Equal(r.Header[:4], want) || r.Get("X-TWO") != "1" || r.Get("x-three") != "" {
			t.Errorf("header %+v", r.Header)
		}
		if r.Chat.Model != "m" || r.Chat.Messages[0].Text() != "hi" {
			t.Errorf("chat %+v", r.Chat)
		}
		<-r.Ended()
	}
	if p.Await(t, 2).N != 2 {
		t.Error("the second request is not the second")
	}
}

func readAnswer(t *testing.T, in *bufio.Reader) {
	t.Helper()
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v", res.StatusCode, err)
	}
}

// TestAnAnswerIsCutWhereItIsTold reads the chunks of the body, each of which is
// a write.
func TestAnAnswerIsCutWhereItIsTold(t *testing.T) {
	t.Parallel()
	body := openaitest.Answer{Body: []byte("abcdef")}
	for name, tt := range map[string]struct {
		answer openaitest.Answer
		want   string
	}{
		"Whole":    {body, "6\r\nabcdef\r\n0\r\n\r\n"},
		"Cut":      {body.Cut(4, 1, 4, 0, 6, 9), "1\r\na\r\n3\r\nbcd\r\n2\r\nef\r\n0\r\n\r\n"},
		"Bytewise": {body.Bytewise(), "1\r\na\r\n1\r\nb\r\n1\r\nc\r\n1\r\nd\r\n1\r\ne\r\n1\r\nf\r\n0\r\n\r\n"},
		"Both":     {openaitest.Answer{Body: []byte("abcdef"), Every: 4, Cuts: []int{3}}, "3\r\nabc\r\n1\r\nd\r\n2\r\nef\r\n0\r\n\r\n"},
		"Empty":    {openaitest.Answer{}, "0\r\n\r\n"},
		"NoEnd":    {body.Ending(openaitest.EndCut), "6\r\nabcdef\r\n"},
		"Closed":   {body.Cut(2).Ending(openaitest.EndClose), "abcdef"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := tt.answer
			a.Status = 201
			p := openaitest.New(t, a.With("X-Second", "1").With("X-First", "2"))
			conn := raw(t, p, "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 71\r\n\r\n"+hello)
			framing := "Transfer-Encoding: chunked"
			if a.End == openaitest.EndClose {
				framing = "Connection: close"
			}
			want := "HTTP/1.1 201 Created\r\nX-Second: 1\r\nX-First: 2\r\nContent-Type: text/event-stream\r\n" + framing + "\r\n\r\n" + tt.want
			got := make([]byte, len(want))
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
				t.Errorf("got %q, %v\nwant %q", got, err, want)
			}
			if a.End == openaitest.EndProper {
				return // the connection stays
			}
			if n, err := conn.Read(got); n != 0 || !errors.Is(err, io.EOF) {
				t.Errorf("behind the end: %q, %v", got[:n], err)
			}
		})
	}
}

func TestHowAnAnswerEnds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		end  openaitest.End
		want error
	}{
		"Proper": {openaitest.EndProper, nil},
		"Close":  {openaitest.EndClose, nil},
		"Cut":    {openaitest.EndCut, io.ErrUnexpectedEOF},
		"Reset":  {openaitest.EndReset, syscall.ECONNRESET},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := openaitest.New(t, openaitest.Text("Hi.").Ending(tt.end))
			got := ask(t, client(t), p, hello)
			if got.status != http.StatusOK || !errors.Is(got.err, tt.want) || !strings.HasSuffix(got.text, "data: [DONE]\n\n") {
				t.Errorf("status %d, error %v, text %q", got.status, got.err, got.text)
			}
			<-p.Await(t, 1).Ended()
		})
	}
}

func TestAnAnswerIsHeldUntilItIsReleased(t *testing.T) {
	t.Parallel()
	for name, offset := range map[string]int{"BeforeHeaders": openaitest.BeforeHeaders, "NoByte": 0, "InTheBody": 3, "BehindTheBody": 6, "AtEnd": openaitest.AtEnd} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := openaitest.NewHold()
			p := openaitest.New(t, openaitest.Answer{Body: []byte("abcdef")}.Hold(offset, openaitest.NewHold()).Hold(offset, h))
			c := client(t)
			done := make(chan reply, 1)
			go func() { done <- ask(t, c, p, hello) }()
			<-h.Reached()
			select {
			case got := <-done:
				t.Errorf("got %+v before the release", got)
			default:
			}
			h.Release()
			h.Release()
			if got := <-done; got.text != "abcdef" || got.err != nil {
				t.Errorf("got %+v", got)
			}
		})
	}
	t.Run("Twice", func(t *testing.T) {
		t.Parallel()
		one, two := openaitest.NewHold(), openaitest.NewHold()
		p := openaitest.New(t, openaitest.Answer{Body: []byte("abcdef")}.Hold(2, one).Hold(4, two))
		go func() {
			<-one.Reached()
			one.Release()
			<-two.Reached()
			two.Release()
		}()
		if got := ask(t, client(t), p, hello); got.text != "abcdef" || got.err != nil {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("AnEmptyBody", func(t *testing.T) {
		t.Parallel()
		h := openaitest.NewHold()
		h.Release()
		p := openaitest.New(t, openaitest.Answer{}.Hold(openaitest.AtEnd, h))
		if got := ask(t, client(t), p, hello); got.text != "" || got.err != nil {
			t.Errorf("got %+v", got)
		}
		<-h.Reached()
	})
}

func TestASlowAnswerIsWholeAndEndsWhenItsClientLeaves(t *testing.T) {
	t.Parallel()
	slow := openaitest.Answer{Body: []byte("abcdef"), Every: 2, Pause: time.Millisecond}
	p := openaitest.New(t, slow)
	c := client(t)
	if got := ask(t, c, p, hello); got.text != "abcdef" || got.err != nil {
		t.Errorf("got %+v", got)
	}
	slow.Pause = time.Hour
	p.Answer(slow)
	res, err := c.Do(request(t.Context(), t, p, hello))
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 2)
	if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != "ab" {
		t.Errorf("got %q, %v", got, err)
	}
	res.Body.Close()
	<-p.Await(t, 2).Ended()
}

func TestAClientThatLeavesEndsAHold(t *testing.T) {
	t.Parallel()
	for name, offset := range map[string]int{"BeforeHeaders": openaitest.BeforeHeaders, "NoByte": 0, "AtEnd": openaitest.AtEnd} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := openaitest.NewHold()
			p := openaitest.New(t, openaitest.Text("Hi.").Hold(offset, h))
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			go func() {
				<-h.Reached()
				leave()
			}()
			res, err := client(t).Do(request(ctx, t, p, hello))
			if err == nil {
				_, err = io.ReadAll(res.Body)
				res.Body.Close()
			}
			if !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
			<-p.Await(t, 1).Ended()
		})
	}
}

// TestAClientThatLeavesEndsAnAnswer: a body larger than what the network holds
// is written to nobody.
func TestAClientThatLeavesEndsAnAnswer(t *testing.T) {
	t.Parallel()
	p := openaitest.New(t, openaitest.Answer{Body: make([]byte, 64<<20), Every: 1 << 16})
	res, err := client(t).Do(request(t.Context(), t, p, hello))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	<-p.Await(t, 1).Ended()
}

// shortLived is a test that ends before the one that it is a part of.
type shortLived struct {
	testing.TB
	cleanup func()
}

func (s *shortLived) Cleanup(f func()) { s.cleanup = f }

func TestTheEndOfTheTestEndsAHold(t *testing.T) {
	t.Parallel()
	h := openaitest.NewHold()
	inner := &shortLived{TB: t}
	p := openaitest.New(inner, openaitest.Text("Hi.").Hold(openaitest.BeforeHeaders, h))
	conn := raw(t, p, "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 71\r\n\r\n"+hello)
	<-h.Reached()
	inner.cleanup()
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Error("the connection outlived its test")
	}
}

func TestAConnectionThatSpeaksNoHTTPIsClosed(t *testing.T) {
	t.Parallel()
	for name, bytes := range map[string]string{
		"Nonsense":     "hello\r\n\r\n",
		"EndlessHead":  "GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n",
		"BrokenChunks": "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := openaitest.New(t)
			conn := raw(t, p, bytes)
			if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Error("it was answered")
			}
			if len(p.Requests()) != 0 {
				t.Error("it was recorded")
			}
		})
	}
}

func TestAnswersComeInOrderAndThenByTheFunction(t *testing.T) {
	t.Parallel()
	p := openaitest.New(t, openaitest.Chunks("1"))
	p.Answer(openaitest.Chunks("2"))
	p.Respond(func(r openaitest.Request) openaitest.Answer {
		return openaitest.Chunks(strings.Repeat("n", r.N))
	})
	c := client(t)
	for _, want := range []string{"1", "2", "nnn", "nnnn"} {
		if got := ask(t, c, p, hello); got.err != nil || got.text != "data: "+want+"\n\ndata: [DONE]\n\n" {
			t.Errorf("got %+v", got)
		}
	}
}

func TestARequestIsReadAsAChat(t *testing.T) {
	t.Parallel()
	p := openaitest.New(t, openaitest.Calls(openaitest.Call{ID: "c", Name: "f", Arguments: "{}"}))
	body := messages(`{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url"},{"type":"text","text":"b"}]}`, calls(call("a", "f", `"{\"x\":1}"`)), result("a"))
	if got := ask(t, client(t), p, body); !strings.Contains(got.text, `"finish_reason":"tool_calls"`) {
		t.Errorf("got %s", got.text)
	}
	list := p.Requests()[0].Chat.Messages
	if list[0].Text() != "ab" || list[1].Text() != "" || list[1].ToolCalls[0].Arguments() != `{"x":1}` || list[2].Text() != "r" || list[2].ToolCallID != "a" {
		t.Errorf("got %+v", list)
	}
}

func TestErrorsAsProvidersSendThem(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer      openaitest.Answer
		status      int
		contentType string
		retryAfter  string
		body        string
	}{
		"Error":     {openaitest.Error(503, "server_error", "", "<busy>"), 503, "application/json", "", "{\n  \"error\": {\n    \"message\": \"<busy>\",\n    \"type\": \"server_error\",\n    \"param\": null,\n    \"code\": null\n  }\n}\n"},
		"RateLimit": {openaitest.RateLimited("7"), 429, "application/json", "7", "{\n  \"error\": {\n    \"message\": \"too many requests, wait a moment\",\n    \"type\": \"requests\",\n    \"param\": null,\n    \"code\": \"rate_limit_exceeded\"\n  }\n}\n"},
		"NoAfter":   {openaitest.RateLimited(""), 429, "application/json", "", ""},
		"Page":      {openaitest.Page(502), 502, "text/html", "", "<html><body><h1>No agent is at home</h1></body></html>\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := ask(t, client(t), openaitest.New(t, tt.answer), hello)
			if got.err != nil || got.status != tt.status || got.header.Get("Content-Type") != tt.contentType || got.header.Get("Retry-After") != tt.retryAfter {
				t.Errorf("got %+v", got)
			}
			if tt.body != "" && got.text != tt.body {
				t.Errorf("got %s", got.text)
			}
		})
	}
}

// failing is a test that notes its failures.
type failing struct {
	testing.TB
	failed chan string
}

func (f failing) Errorf(format string, _ ...any) { f.failed <- format }
func (f failing) Fatalf(format string, _ ...any) {
	f.failed <- format
	runtime.Goexit()
}

func TestARequestThatDoesNotComeFailsTheTest(t *testing.T) {
	t.Parallel()
	f := failing{TB: t, failed: make(chan string, 1)}
	p := openaitest.New(t)
	p.SetPatience(time.Millisecond)
	go p.Await(f, 1)
	if got := <-f.failed; !strings.Contains(got, "did not come") {
		t.Errorf("failed with %q", got)
	}
}

func TestWhatFailsATest(t *testing.T) {
	t.Parallel()
	f := failing{TB: t, failed: make(chan string, 1)}
	p := openaitest.New(f)
	c := client(t)
	if got := ask(t, c, p, hello); got.status != http.StatusInternalServerError || !strings.Contains(got.text, "no answer is left") {
		t.Errorf("got %+v", got)
	}
	if got := <-f.failed; !strings.Contains(got, "not expected") {
		t.Errorf("failed with %q", got)
	}
	if got := ask(t, c, p, `{}`); got.status != http.StatusBadRequest {
		t.Errorf("got %+v", got)
	}
	if got := <-f.failed; !strings.Contains(got, "request %d: %v") || len(p.Refusals()) != 1 || !strings.HasPrefix(p.Refusals()[0].Error(), "refused with 400: a model has to be named") {
		t.Errorf("failed with %q", got)
	}
}
