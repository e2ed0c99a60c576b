package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// leakKind is where a secret is.
type leakKind int

const (
	leakText leakKind = iota
	leakReasoning
	leakArguments
	leakEscaped // arguments in which some characters are escapes
	leakResult  // what a tool answers
	leakToolError
	leakFixture
	leakName   // of the tool, and in the id of the call
	leakFinish // the provider's word for why it ended
	leakError  // of a provider that has begun to answer
	leakRefusal
	leakLong // more than may be held back
	leakKinds
)

// leakCase is a run whose messages have secrets in them. Each has its own.
type leakCase struct {
	n      int
	kind   leakKind
	secret string
	// open is what anybody may see.
	open string
	// cuts are where the text with the secret is cut.
	cuts []int
	// dies says that the worker is killed in the middle of the secret; reached is
	// closed when the provider has said that half.
	dies    bool
	reached chan string
	// started has a value once its client knows of the run.
	started chan struct{}
}

// marked is the text with the secret in it.
func (c *leakCase) marked() string {
	secret := c.secret
	if c.kind == leakLong {
		secret = "long-test-" + strings.Repeat(strings.TrimPrefix(secret, leakMarker), 8) + ";"
	}
	if c.kind == leakEscaped {
		var b strings.Builder
		for i, r := range secret {
			if (i+c.n)%3 == 0 {
				fmt.Fprintf(&b, `\u%04x`, r)
			} else {
				b.WriteRune(r)
			}
		}
		secret = b.String()
	}
	return "token is " + secret + " bye"
}

// pieces are the answer's deltas. The first has nothing to hide.
func (c *leakCase) pieces(t testing.TB) []string {
	if c.kind == leakFixture {
		return fixturePieces(t)
	}
	text := c.marked()
	all := []string{c.open + " "}
	if c.kind == leakArguments || c.kind == leakEscaped {
		all, text = nil, `{"key":"`+text+`","n":"`+c.open+`"}`
	}
	from := 0
	for _, at := range append(slices.Sorted(slices.Values(c.cuts)), len(text)) {
		if at = min(at, len(text)); at > from {
			all = append(all, text[from:at])
			from = at
		}
	}
	return all
}

var fixtureContent = regexp.MustCompile(`"content":("[^"]*")`)

// fixturePieces are the deltas of the recorded stream.
func fixturePieces(t testing.TB) (all []string) {
	t.Helper()
	text, err := os.ReadFile("testdata/secret_split_stream.sse")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range fixtureContent.FindAllStringSubmatch(string(text), -1) {
		piece, err := strconv.Unquote(m[1])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, piece)
	}
	return all
}

// leakProvider speaks both protocols and says what the case of the message is
// about. It keeps what it was sent.
type leakProvider struct {
	*httptest.Server

	t     testing.TB
	cases []*leakCase

	mu   sync.Mutex
	sent strings.Builder
	died map[int]bool
}

func newLeakProvider(t testing.TB, cases []*leakCase) *leakProvider {
	p := &leakProvider{t: t, cases: cases, died: map[int]bool{}}
	p.Server = httptest.NewServer(p)
	t.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
	})
	return p
}

func (p *leakProvider) requests() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent.String()
}

var leakCaseName = regexp.MustCompile(`case (\d+):`)

// ServeHTTP answers a model call.
func (p *leakProvider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has died
	}
	found := leakCaseName.FindAllSubmatch(body, -1)
	if len(found) == 0 {
		p.t.Errorf("nobody knows what to say to %s", body)
		http.Error(w, "unexpected", http.StatusBadRequest)
		return
	}
	n, _ := strconv.Atoi(string(found[len(found)-1][1]))
	c := p.cases[n]
	p.mu.Lock()
	p.sent.Write(body)
	p.sent.WriteByte('\n')
	dies := c.dies && !p.died[n]
	p.died[n] = true
	p.mu.Unlock()
	second := strings.Contains(string(body), `"role":"tool"`) || strings.Contains(string(body), `"tool_result"`)
	if c.kind == leakRefusal {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"type":"error","error":{"type":"invalid_request_error","message":%q}}`, c.marked())
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	say := &leakSaying{w: w, messages: strings.HasSuffix(r.URL.Path, "/messages")}
	if dies {
		say.dies = func() {
			c.reached <- r.URL.Path
			<-r.Context().Done()
		}
	}
	say.answer(p.t, c, second)
}

// leakSaying writes one answer, in either protocol.
type leakSaying struct {
	w        http.ResponseWriter
	messages bool
	// dies waits in the middle of the secret until the client is dead.
	dies func()
}

func (s *leakSaying) frame(v any) {
	text, _ := json.Marshal(v) // maps of texts always encode
	fmt.Fprintf(s.w, "data: %s\n\n", text)
	_ = http.NewResponseController(s.w).Flush() // a client that is dead hears nothing
}

type obj = map[string]any

func (s *leakSaying) answer(t testing.TB, c *leakCase, second bool) {
	if s.messages {
		s.frame(obj{"type": "message_start", "message": obj{"usage": obj{"input_tokens": 1}}})
	}
	reason, call := [2]string{"stop", "end_turn"}, [2]string{"tool_calls", "tool_use"}
	switch {
	case second:
		s.deltas("text", []string{c.open, " done"})
	case c.kind == leakReasoning:
		s.deltas("reasoning", c.pieces(t))
		s.deltas("text", []string{"well"})
	case c.kind == leakArguments, c.kind == leakEscaped:
		reason = call
		s.call("vault", "call-"+c.open, c.pieces(t))
	case c.kind == leakResult, c.kind == leakToolError:
		reason = call
		s.call("vault", "call-"+c.open, []string{fmt.Sprintf(`{"n":"%d"}`, c.n)})
	case c.kind == leakName:
		reason = call
		s.call("vault-"+c.secret, "call-"+c.secret, []string{`{}`})
		s.call("vault", "call-"+c.secret, []string{`{}`})
	case c.kind == leakFinish:
		s.deltas("text", []string{c.open})
		reason = [2]string{c.secret, c.secret}
	default:
		s.deltas("text", c.pieces(t))
	}
	if c.kind == leakError {
		s.frame(obj{"type": "error", "error": obj{"type": "server_error", "code": c.secret, "message": c.marked()}})
		return
	}
	if s.messages {
		s.frame(obj{"type": "message_delta", "delta": obj{"stop_reason": reason[1]}, "usage": obj{"output_tokens": 2}})
		s.frame(obj{"type": "message_stop"})
		return
	}
	s.frame(obj{"choices": []obj{{"index": 0, "delta": obj{}, "finish_reason": reason[0]}}})
	fmt.Fprint(s.w, "data: [DONE]\n\n")
}

// half is called before each piece.
func (s *leakSaying) half(i, n int) {
	if i == (n+1)/2 && s.dies != nil {
		s.dies()
	}
}

func (s *leakSaying) deltas(lane string, pieces []string) {
	words := map[string][3]string{"text": {"text", "text", "content"}, "reasoning": {"thinking", "thinking", "reasoning_content"}}[lane]
	index := map[string]int{"reasoning": 0, "text": 1}[lane]
	if s.messages {
		s.frame(obj{"type": "content_block_start", "index": index, "content_block": obj{"type": words[0], words[1]: ""}})
	}
	for i, piece := range pieces {
		s.half(i, len(pieces))
		if s.messages {
			s.frame(obj{"type": "content_block_delta", "index": index, "delta": obj{"type": words[0] + "_delta", words[1]: piece}})
		} else {
			s.frame(obj{"choices": []obj{{"index": 0, "delta": obj{words[2]: piece}}}})
		}
	}
	if s.messages {
		s.frame(obj{"type": "content_block_stop", "index": index})
	}
}

func (s *leakSaying) call(name, id string, pieces []string) {
	const index = 2
	if s.messages {
		s.frame(obj{"type": "content_block_start", "index": index, "content_block": obj{"type": "tool_use", "id": id, "name": name, "input": obj{}}})
	} else {
		s.frame(obj{"choices": []obj{{"index": 0, "delta": obj{"tool_calls": []obj{{"id": id + name, "function": obj{"name": name, "arguments": ""}}}}}}})
	}
	for i, piece := range pieces {
		s.half(i, len(pieces))
		if s.messages {
			s.frame(obj{"type": "content_block_delta", "index": index, "delta": obj{"type": "input_json_delta", "partial_json": piece}})
		} else {
			s.frame(obj{"choices": []obj{{"index": 0, "delta": obj{"tool_calls": []obj{{"id": id + name, "function": obj{"arguments": piece}}}}}}})
		}
	}
	if s.messages {
		s.frame(obj{"type": "content_block_stop", "index": index})
	}
}
