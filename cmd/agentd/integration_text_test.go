package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"connectrpc.com/connect"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

func fixture(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// heard is what a model was sent, and a tool given.
type heard struct {
	mu       sync.Mutex
	requests []loop.ModelRequest
	inputs   []loop.ToolInput
}

// listening plays model and keeps what it is sent.
func (h *heard) listening(model looptest.Model) looptest.Model {
	return func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		h.mu.Lock()
		h.requests = append(h.requests, req)
		h.mu.Unlock()
		model(ctx, req, yield)
	}
}

// answering is a tool that keeps what it is given.
func (h *heard) answering(name, content string, err error) looptest.Tool {
	return looptest.Tool{Name: name, Run: func(_ context.Context, in loop.ToolInput) (loop.ToolOutput, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.inputs = append(h.inputs, in)
		return loop.ToolOutput{Content: content}, err
	}}
}

// completes runs one message to a normal end, and reads all of it by plain SQL
// and over HTTP.
func (s *stack) completes(t *testing.T, text string) (facts []fact, messages []*agentdv1.Message) {
	t.Helper()
	id := s.Session(t)
	run := s.Advance(t, s.Start(t, id, text))
	if run.Status != loop.RunCompleted {
		t.Fatalf("the run is %s: %s", run.Status, run.Error)
	}
	return s.readable(t, id)
}

// readable reads a session in every way that there is, which must be possible
// whatever was said in it.
func (s *stack) readable(t *testing.T, sessionID string) (facts []fact, messages []*agentdv1.Message) {
	t.Helper()
	facts = stored(t, s.db, sessionID)
	sameStory(t, "stream", s.replay(t, sessionID, fromStart), facts)
	sameStory(t, "list", s.listed(t, sessionID, 0, 500), facts)
	for _, f := range facts {
		if !json.Valid([]byte(f.Payload)) || !utf8.ValidString(f.Payload) || strings.ContainsRune(f.Payload, 0) {
			t.Errorf("seq %d is not valid JSON: %q", f.Seq, f.Payload)
		}
	}
	// Whoever looks with SQL may look into every value, and may use jsonb.
	if n := scalar[int](t, s.db, `
		SELECT count(*) FROM agentd.events, json_each_text(payload) AS field
		WHERE session_id = $1 AND payload::jsonb IS NOT NULL AND field.value <> E'\x01'`, sessionID); n == 0 {
		t.Error("no fields in the events")
	}
	if n := scalar[int](t, s.db, `SELECT count(summary) FROM agentd.timeline WHERE session_id = $1`, sessionID); n != len(facts) {
		t.Errorf("%d lines in the timeline, want %d", n, len(facts))
	}
	res, err := s.sessions.ListMessages(t.Context(), connect.NewRequest(&agentdv1.ListMessagesRequest{SessionId: sessionID}))
	if err != nil {
		t.Fatal(err)
	}
	return facts, res.Msg.GetMessages()
}

// Pieces of text that no column of Postgres and no provider takes.
const (
	nul = "a\x00b"
	// Both halves of a pair, each alone, as UTF-16 tools write them into UTF-8.
	high, low = "\xed\xa0\xbd", "\xed\xb8\x80"
	spelled   = `\u0000`
)

func TestToolOutputThatCannotBeStoredIsMadeValidOnceAndSaysSo(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	for name, tt := range map[string]struct {
		output, want string
		sanitized    bool
	}{
		"UTF-16 with NULs":      {fixture(t, "tool_output_nul.bin"), "ok \uFFFD done\nW\uFFFDs\uFFFDl\uFFFD\n", true},
		"JSON that spells NUL":  {fixture(t, "tool_output_nul.json"), fixture(t, "tool_output_nul.json"), false},
		"JSON that spells half": {fixture(t, "lone_surrogates.json"), fixture(t, "lone_surrogates.json"), false},
		"lone surrogates":       {"hi " + high + " lo " + low + " pair 😀", "hi \uFFFD lo \uFFFD pair 😀", true},
		"swapped surrogates":    {low + high + "!", "\uFFFD!", true},
		"broken bytes":          {"a\xff\xfe b\xc3", "a\uFFFD b\uFFFD", true},
		"spelled escape":        {spelled + ` and \\u0000 and \ud83d`, spelled + ` and \\u0000 and \ud83d`, false},
		"replacement character": {"\uFFFD is fine", "\uFFFD is fine", false},
		"control characters":    {"\x01\x1b[31m\x7f\u0085\u2028", "\x01\x1b[31m\x7f\u0085\u2028", false},
		"nothing":               {"", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var h heard
			s := newStack(t, db, playing(h.listening(callsOnce("show", "{}")), h.answering("show", tt.output, nil)))
			facts, messages := s.completes(t, "show me")
			result := only[event.ToolResult](t, facts)
			if result.Content != tt.want || result.Sanitized != tt.sanitized {
				t.Errorf("stored %q, sanitized %t, want %q, %t", result.Content, result.Sanitized, tt.want, tt.sanitized)
			}
			if executed := only[event.ToolExecuted](t, facts); executed.Bytes != int64(len(tt.output)) {
				t.Errorf("%d bytes, want those of the tool: %d", executed.Bytes, len(tt.output))
			}
			if got := messages[2].GetParts()[0].GetToolResult().GetContent(); got != tt.want {
				t.Errorf("shown %q, want %q", got, tt.want)
			}
			sentParts := h.requests[1].Messages[2].Parts
			if got := sentParts[0].ToolResult.Content; got != tt.want {
				t.Errorf("the model was sent %q, want %q", got, tt.want)
			}
			column := scalar[string](t, db, `SELECT payload ->> 'content' FROM agentd.events WHERE type = 'tool.result' AND session_id = $1`, facts[0].SessionID)
			if column != tt.want {
				t.Errorf("SQL reads %q, want %q", column, tt.want)
			}
		})
	}
}

func TestALongOutputIsNotCutInsideACharacter(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	for _, shift := range []int{0, 3} { // both cut a character somewhere else
		output := strings.Repeat("x", shift) + strings.Repeat("😀", 265_000)
		s := newStack(t, db, playing(callsOnce("show", "{}"), looptest.Says("show", output)))
		facts, _ := s.completes(t, "show me")
		content := only[event.ToolResult](t, facts).Content
		if len(content) > 1<<20 || len(content) < 1<<20-8 || strings.ContainsRune(content, '\uFFFD') {
			t.Errorf("%d bytes are stored, want just under 1 MiB and no broken character", len(content))
		}
	}
}

func TestTextThatCannotBeStoredIsMadeValidWhereverItComesFrom(t *testing.T) {
	t.Parallel()
	const clean = "a\uFFFDb"
	say := func(chunks ...any) looptest.Model {
		return looptest.Answers(looptest.Answer(append(chunks, looptest.Finish(stream.FinishStop))...))
	}

	t.Run("UserMessage", func(t *testing.T) {
		t.Parallel()
		s := newStack(t, storetest.New(t))
		for text, want := range map[string]string{nul: clean, "x" + high: "x\uFFFD", low + "y": "\uFFFDy"} {
			facts, messages := s.completes(t, text)
			m := only[event.MessageCreated](t, facts)
			if m.Parts[0].Text != want || !m.Sanitized || messages[0].GetParts()[0].GetText() != want {
				t.Errorf("%q is stored as %+v and shown as %v", text, m, messages[0])
			}
		}
		facts, _ := s.completes(t, spelled)
		if m := only[event.MessageCreated](t, facts); m.Parts[0].Text != spelled || m.Sanitized {
			t.Errorf("six characters are stored as %+v", m)
		}
	})

	t.Run("Answer", func(t *testing.T) {
		t.Parallel()
		s := newStack(t, storetest.New(t), playing(say(looptest.Reasoning(nul), looptest.Text(nul+spelled), looptest.Text(high))))
		facts, _ := s.completes(t, "speak")
		a := only[event.AssistantCompleted](t, facts)
		if a.Parts[0].Text != clean || a.Parts[1].Text != clean+spelled+"\uFFFD" || !a.Sanitized {
			t.Errorf("%+v", a)
		}
		for _, d := range decoded[event.AssistantDelta](t, facts) {
			if !d.Sanitized {
				t.Errorf("%+v does not say that it was sanitized", d)
			}
		}
	})

	t.Run("ToolCall", func(t *testing.T) {
		t.Parallel()
		var h heard
		model := looptest.Answers(
			looptest.Answer(looptest.ToolCall("i\x00d", "na\x00me", "{}"), looptest.ToolCall("2", "show", "{\"k\":\"\x00\",\"s\":\"\\u0000\"}"), looptest.Finish(stream.FinishToolCalls)),
			looptest.Answer(looptest.Text("Done."), looptest.Finish(stream.FinishStop)),
		)
		s := newStack(t, storetest.New(t), playing(model, h.answering("show", "ok", nil)))
		facts, messages := s.completes(t, "go")
		calls := decoded[event.ToolProposed](t, facts)
		if calls[0].Name != "na\uFFFDme" || !calls[0].Sanitized {
			t.Errorf("%+v", calls[0])
		}
		const arguments = "{\"k\":\"\uFFFD\",\"s\":\"\\u0000\"}"
		if calls[1].Arguments != arguments || !calls[1].Sanitized {
			t.Errorf("%+v", calls[1])
		}
		if got := messages[1].GetParts()[1].GetToolCall().GetArguments(); got != arguments {
			t.Errorf("shown %q", got)
		}
		if len(h.inputs) != 1 || string(h.inputs[0].Arguments) != arguments {
			t.Errorf("the tool was given %+v", h.inputs)
		}
		results := decoded[event.ToolResult](t, facts)
		if r := results[0]; r.Reason != hooks.ReasonUnknownTool || !r.IsError {
			t.Errorf("the call of an unknown tool has %+v", r)
		}
	})

	t.Run("ErrorOfATool", func(t *testing.T) {
		t.Parallel()
		var h heard
		s := newStack(t, storetest.New(t), playing(callsOnce("show", "{}"), h.answering("show", "", errors.New("broke: "+nul+high))))
		facts, _ := s.completes(t, "go")
		if r := only[event.ToolResult](t, facts); r.Content != "broke: "+clean+"\uFFFD" || !r.Sanitized || !r.IsError {
			t.Errorf("%+v", r)
		}
	})

	t.Run("ErrorOfAModel", func(t *testing.T) {
		t.Parallel()
		s := newStack(t, storetest.New(t), playing(looptest.Model(func(_ context.Context, _ loop.ModelRequest, yield func(stream.Chunk, error) bool) {
			_ = yield(looptest.Text("half "+nul), nil) && yield(stream.Chunk{}, &loop.ModelError{Message: "refused: " + nul + low})
		})))
		id := s.Session(t)
		if r := s.Advance(t, s.Start(t, id, "go")); r.Status != loop.RunFailed {
			t.Errorf("the run is %s", r.Status)
		}
		facts, _ := s.readable(t, id)
		if f := only[event.RunFailed](t, facts); f.Error != "refused: "+clean+"\uFFFD" || !f.Sanitized {
			t.Errorf("%+v", f)
		}
		if a := only[event.AssistantStopped](t, facts); a.Parts[0].Text != "half "+clean || !a.Sanitized {
			t.Errorf("%+v", a)
		}
	})

	t.Run("FinishReason", func(t *testing.T) {
		t.Parallel()
		raw := stream.Chunk{Kind: stream.KindFinish, Finish: stream.Finish{Reason: stream.FinishUnknown, Raw: nul + high}}
		s := newStack(t, storetest.New(t), playing(looptest.Answers(looptest.Answer(looptest.Text("x"), raw))))
		facts, _ := s.completes(t, "go")
		if a := only[event.AssistantCompleted](t, facts); a.FinishRaw != clean+"\uFFFD" || !a.Sanitized {
			t.Errorf("%+v", a)
		}
	})

	t.Run("ReasonOfACancel", func(t *testing.T) {
		t.Parallel()
		s := newStack(t, storetest.New(t))
		id := s.Session(t)
		job := s.Start(t, id, "go")
		if err := s.Commands.CancelRun(t.Context(), loop.CancelRun{
			TenantID: looptest.Tenant, SessionID: id, RunID: job.RunID, Reason: nul, Actor: looptest.Tester,
		}); err != nil {
			t.Fatal(err)
		}
		facts, _ := s.readable(t, id)
		if c := only[event.RunCancelRequested](t, facts); c.Reason != clean || !c.Sanitized {
			t.Errorf("%+v", c)
		}
	})
}

func TestIdentifiersThatCannotBeStoredAreRefused(t *testing.T) {
	t.Parallel()
	s := newStack(t, storetest.New(t))
	id := s.Session(t)
	_, err := s.runs.StartRun(t.Context(), connect.NewRequest(&agentdv1.StartRunRequest{SessionId: id, Text: "x", IdempotencyKey: nul}))
	if d := wantRefused(t, err, connect.CodeInvalidArgument, "invalid_argument"); d.GetField() != "idempotency_key" {
		t.Errorf("field %q", d.GetField())
	}
	_, err = s.runs.StartRun(t.Context(), connect.NewRequest(&agentdv1.StartRunRequest{SessionId: id, Text: "x", Agent: nul}))
	if d := wantRefused(t, err, connect.CodeInvalidArgument, "invalid_argument"); d.GetField() != "agent" {
		t.Errorf("field %q", d.GetField())
	}
	_, err = s.sessions.CreateSession(t.Context(), connect.NewRequest(&agentdv1.CreateSessionRequest{ExternalId: nul}))
	if d := wantRefused(t, err, connect.CodeInvalidArgument, "invalid_argument"); d.GetField() != "external_id" {
		t.Errorf("field %q", d.GetField())
	}
	for _, sessionID := range []string{nul, id + "\x00", "\x00"} {
		_, err = s.sessions.ListMessages(t.Context(), connect.NewRequest(&agentdv1.ListMessagesRequest{SessionId: sessionID}))
		wantRefused(t, err, connect.CodeNotFound, "not_found")
	}
	// Without HTTP, which refuses text that is not UTF-8 by itself.
	for _, text := range []string{nul, "k" + high} {
		var invalid *loop.InvalidError
		if _, err := s.Commands.CreateSession(t.Context(), loop.CreateSession{
			TenantID: looptest.Tenant, ExternalID: text, Actor: looptest.Tester,
		}); !errors.As(err, &invalid) || invalid.Field != "external_id" {
			t.Errorf("external id %q: %v", text, err)
		}
		if _, err := s.Commands.StartRun(t.Context(), loop.StartRun{
			TenantID: looptest.Tenant, SessionID: id, Text: "x", IdempotencyKey: text, Actor: looptest.Tester,
		}); !errors.As(err, &invalid) || invalid.Field != "idempotency_key" {
			t.Errorf("key %q: %v", text, err)
		}
	}
	if n := len(stored(t, s.db, id)); n != 1 {
		t.Errorf("%d events, want only session.created", n)
	}
}

func TestJSONWithHalfAPairOrANULIsStoredWithReplacementsAndSaysSo(t *testing.T) {
	t.Parallel()
	s := newStack(t, storetest.New(t))
	for name, tt := range map[string]struct {
		text, want string
		sanitized  bool
	}{
		"high":              {`abc\ud83d`, "abc\uFFFD", true},
		"low":               {`\ude00abc`, "\uFFFDabc", true},
		"swapped":           {`\ude00\ud83d`, "\uFFFD\uFFFD", true},
		"high and a letter": {`\ud83dx`, "\uFFFDx", true},
		"bytes":             {"x" + high + "y", "x\uFFFDy", true},
		"NUL":               {`a\u0000b`, "a\uFFFDb", true},
		"pair":              {`\ud83d\ude00`, "😀", false},
		"spelled":           {`\\u0000`, spelled, false},
	} {
		id := s.Session(t)
		status, body := s.post(t, "RunService/StartRun", `{"sessionId": "`+id+`", "text": "`+tt.text+`"}`)
		if status != http.StatusOK {
			t.Errorf("%s: %d %s, want it taken", name, status, body)
			continue
		}
		runID := scalar[string](t, s.db, `SELECT id::text FROM agentd.runs WHERE session_id = $1`, id)
		s.Advance(t, loop.Job{TenantID: looptest.Tenant, SessionID: id, RunID: runID, Ticket: 1})
		facts, messages := s.readable(t, id)
		m := only[event.MessageCreated](t, facts)
		if shown := messages[0].GetParts()[0].GetText(); m.Parts[0].Text != tt.want || shown != tt.want || m.Sanitized != tt.sanitized {
			t.Errorf("%s is stored as %+v and shown as %q, want %q, sanitized %t", name, m, shown, tt.want, tt.sanitized)
		}
	}
	id := s.Session(t)
	status, body := s.post(t, "RunService/StartRun", `{"sessionId": "`+id+`", "text": "\ud8"}`)
	if status != http.StatusBadRequest || !strings.Contains(body, "invalid_argument") || len(stored(t, s.db, id)) != 1 {
		t.Errorf("an escape that is none: %d %s, want it refused", status, body)
	}
}

func TestNumbersReachTheToolDigitForDigit(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	arguments := fixture(t, "numbers.json")
	var h heard
	leave := make(chan struct{})
	asks := callsOnce("charge", arguments)
	model := h.listening(looptest.Model(func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		asks(ctx, req, yield)
		if len(req.Messages) == 1 {
			close(leave) // hand the run back before the tool is entered
		}
	}))
	tool := h.answering("charge", `{"charged": 9007199254740993}`, nil)
	s := newStack(t, db, playing(model, tool))
	id := s.Session(t)
	job := s.Start(t, id, "charge")
	if err := s.Engine.Advance(t.Context(), job, loop.Holder{WorkerID: looptest.NewID(), Leaving: leave}); err != nil {
		t.Fatal(err)
	}
	if r := s.Run(t, job); r.Status != loop.RunQueued || len(h.inputs) != 0 {
		t.Fatalf("the run is %s and the tool was entered %d times, want it handed back first", r.Status, len(h.inputs))
	}
	// Another process has only what is stored.
	s = s.again(t, playing(model, tool))
	job.Ticket = 2
	if r := s.Advance(t, job); r.Status != loop.RunCompleted {
		t.Fatalf("the run is %s: %s", r.Status, r.Error)
	}

	facts, messages := s.readable(t, id)
	part := only[event.ToolProposed](t, facts)
	sentTo := h.requests[len(h.requests)-1].Messages
	for where, got := range map[string]string{
		"the tool":              string(h.inputs[0].Arguments),
		"the model, afterwards": sentTo[1].Parts[0].ToolCall.Arguments,
		"the event":             part.Arguments,
		"the message":           messages[1].GetParts()[0].GetToolCall().GetArguments(),
		"SQL, of the call":      scalar[string](t, db, `SELECT arguments FROM agentd.tool_calls WHERE session_id = $1`, id),
		"SQL, of the event":     scalar[string](t, db, `SELECT payload ->> 'arguments' FROM agentd.events WHERE session_id = $1 AND type = 'tool.proposed'`, id),
		"SQL, of the message": scalar[string](t, db, `
			SELECT parts -> 0 -> 'tool_call' ->> 'arguments' FROM agentd.messages WHERE session_id = $1 AND role = 'assistant' ORDER BY position LIMIT 1`, id),
	} {
		if got != arguments {
			t.Errorf("%s has %q, want %q", where, got, arguments)
		}
	}
	if got := messages[2].GetParts()[0].GetToolResult().GetContent(); got != `{"charged": 9007199254740993}` {
		t.Errorf("the result is %q", got)
	}
}
