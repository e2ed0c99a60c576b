package main

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/loop/model/anthropic"
	"github.com/seed-2ca4966b/agentd/loop/model/anthropic/anthropictest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// messagesAnswer is a stream of the Messages API.
func messagesAnswer(reason string, events ...string) anthropictest.Answer {
	body := `data: {"type":"message_start","message":{"usage":{"input_tokens":11,"output_tokens":1}}}` + "\n\n"
	for _, e := range append(events, `{"type":"message_delta","delta":{"stop_reason":"`+reason+`"},"usage":{"output_tokens":7}}`, `{"type":"message_stop"}`) {
		body += "data: " + e + "\n\n"
	}
	return anthropictest.Answer{Body: body, Every: 1}
}

var (
	messagesCall = []string{
		`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Looking."}}`,
		`{"type":"content_block_stop","index":0}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_A","name":"get_time","input":{}}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"zone\":"}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"\"UTC\"}"}}`,
		`{"type":"content_block_stop","index":1}`,
	}
	messagesText = []string{
		`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"It is noon."}}`,
		`{"type":"content_block_stop","index":0}`,
	}
)

// TestAConversationOverTheMessagesAPI asks, runs a tool and answers, through
// the whole product.
func TestAConversationOverTheMessagesAPI(t *testing.T) {
	t.Parallel()
	p := anthropictest.New(t, messagesAnswer("tool_use", messagesCall...), messagesAnswer("end_turn", messagesText...))
	m, err := anthropic.New(anthropic.Config{BaseURL: p.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	s := newStack(t, storetest.New(t), playing(m, newDesk().tools()...))
	j := s.Start(t, s.Session(t), "what time is it?")
	s.advance(t, j).wait(t)
	got := s.lookAt(t, j)
	if got.run != "completed stop" || got.error != "" || got.finish != "tool_calls/tool_use 11/7" ||
		!slices.Equal(got.said, []string{"Looking.", "It is noon."}) ||
		!slices.Equal(got.calls, []string{`get_time{"zone":"UTC"} done ran → noon {"zone":"UTC"}`}) {
		t.Errorf("got %+v", got)
	}
	const want = `"messages":[{"role":"user","content":[{"type":"text","text":"what time is it?"}]},` +
		`{"role":"assistant","content":[{"type":"text","text":"Looking."},{"type":"tool_use","id":"toolu_A","name":"get_time","input":{"zone":"UTC"}}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_A","content":"noon {\"zone\":\"UTC\"}"}]}]`
	if list := p.Requests(); len(list) != 2 || !strings.Contains(list[1].Body, want) {
		t.Errorf("sent %s", list[len(list)-1].Body)
	}
}

func TestAModelBehindTheMessagesAPIAnswersWhenOneIsConfigured(t *testing.T) {
	t.Parallel()
	p := anthropictest.New(t, messagesAnswer("end_turn", messagesText...))
	s := startServe(t, storetest.New(t), []string{
		"ANTHROPIC_BASE_URL=" + p.URL, "ANTHROPIC_API_KEY=sk-ant-secret", "ANTHROPIC_MODEL=tiny", "AGENTD_ANTHROPIC_MAX_TOKENS=77", "AGENTD_LOG_LEVEL=debug",
	})
	c := chat(t, s.url, strings.NewReader("what time is it?\n"))
	if code := c.wait(t); code != 0 || c.out.String() != "It is noon.\n" {
		t.Fatalf("exit code %d, printed %q", code, c.out.String())
	}
	r := p.Requests()[0]
	if r.Header.Get("X-Api-Key") != "sk-ant-secret" || r.Asked.Model != "tiny" || r.Asked.MaxTokens != 77 || r.Asked.System != demoPrompt || len(r.Asked.Tools) != 7 {
		t.Errorf("request: %v %s", r.Header, r.Body)
	}
	if said := s.err.String(); strings.Contains(said, "sk-ant-secret") || strings.Contains(said, "what time") {
		t.Errorf("the log says %s", said)
	}
}

func TestChatCompletionsComeBeforeTheMessagesAPI(t *testing.T) {
	t.Parallel()
	requests := make(chan string, 2)
	p := anthropictest.New(t, anthropictest.Error(http.StatusTeapot, "api_error", "nobody asks here"))
	s := startServe(t, storetest.New(t), []string{
		"OPENAI_BASE_URL=" + provider(t, requests).URL + "/v1", "OPENAI_MODEL=tiny", "ANTHROPIC_BASE_URL=" + p.URL,
	})
	c := chat(t, s.url, strings.NewReader("does it work?\n"))
	if code := c.wait(t); code != 0 || c.out.String() != "The tool works.\n" || len(p.Requests()) > 0 {
		t.Errorf("exit code %d, printed %q", code, c.out.String())
	}
	if !strings.Contains(s.err.String(), "ANTHROPIC_API_KEY and ANTHROPIC_BASE_URL are not used") {
		t.Errorf("the log says %s", s.err.String())
	}
}
