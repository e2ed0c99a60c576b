package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/loop/model/openai"
	"github.com/seed-2ca4966b/agentd/loop/model/openai/openaitest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// providedBy gives a stack an agent that asks a provider through the adapter.
func providedBy(t *testing.T, p *openaitest.Provider, cfg openai.Config, tools ...loop.Tool) stackOption {
	t.Helper()
	cfg.BaseURL = p.URL
	m, err := openai.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return playing(m, tools...)
}

// desk is a desk with tools that note what they are used for, by session.
type desk struct {
	mu   sync.Mutex
	used map[string][]string
}

func newDesk() *desk { return &desk{used: map[string][]string{}} }

// tools are the tools that the recorded streams ask for.
func (d *desk) tools() []loop.Tool {
	tool := func(name string, answer func(arguments json.RawMessage) string) loop.Tool {
		return looptest.Tool{Name: name, Run: func(_ context.Context, in loop.ToolInput) (loop.ToolOutput, error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.used[in.SessionID] = append(d.used[in.SessionID], name)
			return loop.ToolOutput{Content: answer(in.Arguments)}, nil
		}}
	}
	return []loop.Tool{
		tool("lookup_order", func(a json.RawMessage) string { return "order " + string(a) }),
		tool("get_time", func(a json.RawMessage) string { return "noon " + string(a) }),
		tool("run_steps", func(json.RawMessage) string { return "ran" }),
		tool("save_note", func(a json.RawMessage) string {
			var note struct{ Body string }
			if err := json.Unmarshal(a, &note); err != nil {
				return err.Error()
			}
			return fmt.Sprintf("saved %d bytes", len(note.Body))
		}),
	}
}

// uses is how often tools ran in a session.
func (d *desk) uses(sessionID string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.used[sessionID])
}

// telling is what a user sees of a run.
type telling struct {
	run   string // status and reason
	error string
	// finish is the first turn's finish reason, as agentd's and as the
	// provider's word, and usage.
	finish string
	// said are the answers, those that were cut off with a mark.
	said []string
	// calls are the tool calls with their results.
	calls []string
}

const cutOff = "[cut off] "

// lookAt reads what the tables tell of a run, and holds that the stream of
// events told the same words.
func (s *stack) lookAt(t *testing.T, j loop.Job) telling {
	t.Helper()
	var got telling
	got.run = scalar[string](t, s.db, `SELECT status || ' ' || coalesce(reason, '') FROM agentd.runs WHERE id = $1`, j.RunID)
	got.error = scalar[string](t, s.db, `SELECT coalesce(error, '') FROM agentd.runs WHERE id = $1`, j.RunID)
	got.finish = scalar[string](t, s.db, `
		SELECT coalesce(finish_reason, '') || '/' || coalesce(finish_raw, '') || ' ' || input_tokens || '/' || output_tokens
		FROM agentd.turns WHERE run_id = $1 AND turn_no = 1`, j.RunID)
	got.said = scalar[[]string](t, s.db, `
		SELECT coalesce(array_agg(said ORDER BY position), '{}') FROM (
			SELECT position, CASE WHEN partial THEN $2 ELSE '' END ||
				(SELECT string_agg(p ->> 'text', '') FROM json_array_elements(parts) AS p WHERE p ->> 'type' = 'text') AS said
			FROM agentd.messages WHERE run_id = $1 AND role = 'assistant') AS m
		WHERE said IS NOT NULL`, j.RunID, cutOff)
	got.calls = scalar[[]string](t, s.db, `
		SELECT coalesce(array_agg(concat_ws(' ', name || left(arguments, 100), c.status, CASE WHEN c.attempt > 0 THEN 'ran' END, result_reason, '→',
			m.parts -> 0 -> 'tool_result' ->> 'content') ORDER BY c.turn_no, c.call_no), '{}')
		FROM agentd.tool_calls c JOIN agentd.messages m ON m.id = c.result_message_id WHERE c.run_id = $1`, j.RunID)

	var shown []string
	told := slices.DeleteFunc(s.replay(t, j.SessionID, fromStart), func(f fact) bool { return f.RunID != j.RunID })
	for _, p := range decoded[event.Payload](t, told) {
		switch p := p.(type) {
		case event.ModelRequested:
			shown = append(shown, "")
		case event.AssistantDelta:
			if p.Lane == stream.LaneText {
				shown[len(shown)-1] += p.Text
			}
		}
	}
	if got, want := strings.Join(shown, ""), strings.ReplaceAll(strings.Join(got.said, ""), cutOff, ""); got != want {
		t.Errorf("the stream showed %q, the tables have %q", got, want)
	}
	return got
}

// pairs lists the tool calls of a request with what follows as their results,
// in order.
func pairs(c openaitest.Chat) (list []string) {
	for i, m := range c.Messages {
		for _, call := range m.ToolCalls {
			said := call.Function.Name + call.Arguments() + " → "
			for _, r := range c.Messages[i+1:] {
				if r.Role == "tool" && r.ToolCallID == call.ID {
					said += r.Text()
				}
			}
			list = append(list, said)
		}
	}
	return list
}

// lastUser is what a request's last user message says.
func lastUser(c openaitest.Chat) (text string) {
	for _, m := range c.Messages {
		if m.Role == "user" {
			text = m.Text()
		}
	}
	return text
}

// askedAbout are the requests of a session that began with this message.
func askedAbout(p *openaitest.Provider, first string) []openaitest.Request {
	return slices.DeleteFunc(p.Requests(), func(r openaitest.Request) bool {
		return len(r.Chat.Messages) == 0 || r.Chat.Messages[0].Text() != first
	})
}

// newProvided starts a stack that asks p, with a desk of tools.
func newProvided(t *testing.T, p *openaitest.Provider, cfg openai.Config) (*stack, *desk) {
	t.Helper()
	d := newDesk()
	return newStack(t, storetest.New(t), providedBy(t, p, cfg, d.tools()...)), d
}
