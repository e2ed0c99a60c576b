package openai_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/seed-2ca4966b/agentd/loop/model/openai"
)

// playback is how the fake provider answers one request.
type playback struct {
	status int // 0 means 200
	header map[string]string
	body   string
	// cuts are the offsets at which the body is cut into writes, each of
	// which is flushed; every is the same at regular intervals.
	cuts  []int
	every int
	// end is what follows the body: "" ends it properly, "cut" breaks the
	// connection without the end of the chunked body, "reset" resets it,
	// "stall" keeps it open until the client gives up.
	end string
	// beforeHeaders stalls before anything is sent.
	beforeHeaders bool
}

// fakeProvider answers requests with the playbacks, in order, and refuses
// what a strict provider refuses.
type fakeProvider struct {
	url string

	mu        sync.Mutex
	playbacks []playback
	requests  []sentRequest
	refusals  []string
	// gone is closed when a stalled request ended.
	gone chan struct{}
}

type sentRequest struct {
	auth   string
	header http.Header
	body   string
}

func newFake(t *testing.T, playbacks ...playback) *fakeProvider {
	t.Helper()
	f := &fakeProvider{playbacks: playbacks, gone: make(chan struct{})}
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	f.url = srv.URL
	return f
}

func (f *fakeProvider) model(t *testing.T, cfg openai.Config) *openai.Model {
	t.Helper()
	if cfg.BaseURL == "" {
		cfg.BaseURL = f.url + "/v1"
	}
	m, err := openai.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func (f *fakeProvider) sent() []sentRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests
}

func (f *fakeProvider) refused() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refusals
}

func (f *fakeProvider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var raw json.RawMessage
	err := json.NewDecoder(r.Body).Decode(&raw)
	if err == nil {
		err = checkRequest(r, raw)
	}
	f.mu.Lock()
	f.requests = append(f.requests, sentRequest{auth: r.Header.Get("Authorization"), header: r.Header, body: string(raw)})
	if err == nil && len(f.playbacks) == 0 {
		err = fmt.Errorf("an unexpected request")
	}
	if err != nil {
		f.refusals = append(f.refusals, err.Error())
		f.mu.Unlock()
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"error":{"message":%q,"type":"invalid_request_error","code":null}}`, err)
		return
	}
	p := f.playbacks[0]
	f.playbacks = f.playbacks[1:]
	f.mu.Unlock()
	f.play(w, r, p)
}

func (f *fakeProvider) play(w http.ResponseWriter, r *http.Request, p playback) {
	if p.beforeHeaders {
		<-r.Context().Done()
		close(f.gone)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for k, v := range p.header {
		w.Header().Set(k, v)
	}
	w.WriteHeader(max(p.status, http.StatusOK))
	rc := http.NewResponseController(w)
	_ = rc.Flush()
	for _, part := range parts(p) {
		if _, err := w.Write([]byte(part)); err != nil {
			break
		}
		_ = rc.Flush()
	}
	switch p.end {
	case "cut":
		panic(http.ErrAbortHandler)
	case "reset":
		conn, _, err := rc.Hijack()
		if err != nil {
			panic(err)
		}
		_ = conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	case "stall":
		<-r.Context().Done()
		close(f.gone)
	}
}

func parts(p playback) []string {
	cuts := p.cuts
	if p.every > 0 {
		for i := p.every; i < len(p.body); i += p.every {
			cuts = append(cuts, i)
		}
	}
	var out []string
	last := 0
	for _, c := range cuts {
		out = append(out, p.body[last:c])
		last = c
	}
	return append(out, p.body[last:])
}

// checkRequest refuses what the strictest providers refuse.
func checkRequest(r *http.Request, raw json.RawMessage) error {
	if r.URL.Path != "/v1/chat/completions" || r.Method != http.MethodPost {
		return fmt.Errorf("%s %s is not the endpoint", r.Method, r.URL.Path)
	}
	var req struct {
		Model    string `json:"model"`
		Stream   bool   `json:"stream"`
		Messages []struct {
			Role       string  `json:"role"`
			Content    *string `json:"content"`
			ToolCallID string  `json:"tool_call_id"`
			ToolCalls  []struct {
				ID, Type string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		} `json:"messages"`
		Tools []struct {
			Type     string
			Function struct {
				Name       string
				Parameters map[string]any
			}
		} `json:"tools"`
	}
	if err := json.Unmarshal(raw, &req); err != nil {
		return err
	}
	if req.Model == "" || !req.Stream || len(req.Messages) == 0 {
		return fmt.Errorf("model, stream and messages are required")
	}
	for _, tool := range req.Tools {
		if tool.Type != "function" || tool.Function.Name == "" || tool.Function.Parameters["type"] != "object" {
			return fmt.Errorf("tool %q is not a function over an object", tool.Function.Name)
		}
	}
	ids := make(map[string]bool)
	var open []string
	for i, m := range req.Messages {
		if m.Role == "tool" {
			if len(open) == 0 || open[0] != m.ToolCallID {
				return fmt.Errorf("messages[%d]: tool_call_id %q answers no call", i, m.ToolCallID)
			}
			open = open[1:]
		} else if len(open) > 0 {
			return fmt.Errorf("messages[%d]: call %q has no result", i, open[0])
		}
		if m.Content != nil && strings.TrimSpace(*m.Content) == "" {
			return fmt.Errorf("messages[%d]: blank content", i)
		}
		if m.Content == nil && len(m.ToolCalls) == 0 {
			return fmt.Errorf("messages[%d]: nothing in it", i)
		}
		for _, tc := range m.ToolCalls {
			var object map[string]json.RawMessage
			switch {
			case m.Role != "assistant", tc.Type != "function", tc.Function.Name == "":
				return fmt.Errorf("messages[%d]: not a tool call", i)
			case tc.ID == "" || ids[tc.ID]:
				return fmt.Errorf("messages[%d]: id %q is empty or used before", i, tc.ID)
			case json.Unmarshal([]byte(tc.Function.Arguments), &object) != nil:
				return fmt.Errorf("messages[%d]: arguments %q are no object", i, tc.Function.Arguments)
			}
			ids[tc.ID] = true
			open = append(open, tc.ID)
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("call %q has no result", open[0])
	}
	return nil
}

func fixture(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".sse"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
