package main

import (
	"net/http"
	"slices"
	"testing"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/loop/model/anthropic"
	"github.com/seed-2ca4966b/agentd/loop/model/anthropic/anthropictest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// TestAConversationOfEmptyAndBlankTextsOverTheMessagesAPI: its roles alternate
// and no text of it is blank, however little was said, and what people said
// stays, in order.
func TestAConversationOfEmptyAndBlankTextsOverTheMessagesAPI(t *testing.T) {
	t.Parallel()
	block := func(text string) []string {
		return []string{
			`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"` + text + `"}}`,
			`{"type":"content_block_stop","index":0}`,
		}
	}
	p := anthropictest.New(t,
		messagesAnswer("tool_use", `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t1","name":"quiet","input":{}}}`, `{"type":"content_block_stop","index":0}`),
		messagesAnswer("end_turn", block(`\n`)...),
		anthropictest.Error(http.StatusUnauthorized, "authentication_error", "not today"),
		messagesAnswer("end_turn"),
		messagesAnswer("end_turn", block("Good.")...))
	m, err := anthropic.New(anthropic.Config{BaseURL: p.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	s := newStack(t, storetest.New(t), playing(m, looptest.Says("quiet", "")))
	id := s.Session(t)
	for _, c := range []struct {
		said string
		want loop.RunStatus
	}{
		{"hi", loop.RunCompleted}, {"one", loop.RunFailed}, {"two", loop.RunCompleted}, {"three", loop.RunCompleted},
	} {
		if run := s.Advance(t, s.Start(t, id, c.said)); run.Status != c.want {
			t.Errorf("%q: the run is %s, want it %s: %s", c.said, run.Status, c.want, run.Error)
		}
	}
	list := p.Requests()
	var got []string
	for _, m := range list[len(list)-1].Asked.Messages {
		for _, b := range m.Content {
			got = append(got, m.Role+" "+b.Type+" "+b.Text+b.Name+b.Content)
		}
	}
	want := []string{
		"user text hi", "assistant tool_use quiet", "user tool_result (no output)", "user text one", "user text two", "user text three",
	}
	if len(list) != 5 || !slices.Equal(got, want) {
		t.Errorf("the last of %d requests has %q, want %q", len(list), got, want)
	}
}
