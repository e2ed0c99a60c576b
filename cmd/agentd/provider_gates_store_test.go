package main

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/model/openai"
	"github.com/seed-2ca4966b/agentd/loop/model/openai/openaitest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// moods are hooks at the provider gates that do what the test wants of them at
// the moment.
type moods struct{ now atomic.Value }

const (
	moodChange = "change what is sent, fail at the second answer"
	moodBlock  = "block the answer"
	moodHeader = "set a header that is none"
)

func (m *moods) hooks() hooks.Hooks {
	return hooks.Hooks{
		BeforeProviderHeaders: hooks.Named("headers", "2", func(context.Context, hooks.BeforeProviderHeaders) (hooks.BeforeProviderHeadersResult, error) {
			value := "team-a"
			if m.now.Load() == moodHeader {
				value += "\r\nX-Evil: 1"
			}
			return hooks.BeforeProviderHeadersResult{Action: hooks.ActionTransform, Set: []hooks.Header{{Name: "X-Team", Value: value}}, Remove: []string{"User-Agent"}}, nil
		}),
		BeforeProviderRequest: hooks.Named("body", "1", func(_ context.Context, in hooks.BeforeProviderRequest) (hooks.BeforeProviderRequestResult, error) {
			body := strings.Replace(in.Body, `"stream":true`, `"stream":true,"user":"u\u0000/9007199254740993"`, 1)
			return hooks.BeforeProviderRequestResult{Action: hooks.ActionTransform, Body: &body, Annotations: map[string]string{"why": "billing"}}, nil
		}),
		AfterProviderResponse: hooks.Named("answer", "1", func(_ context.Context, in hooks.AfterProviderResponse) (hooks.AfterProviderResponseResult, error) {
			switch {
			case m.now.Load() == moodBlock:
				return hooks.AfterProviderResponseResult{Action: hooks.ActionBlock, Reason: hooks.Reason{Code: "residency", Text: "Not from there."}}, nil
			case in.Attempt == 2:
				return hooks.AfterProviderResponseResult{}, errors.New("no such region")
			}
			return hooks.AfterProviderResponseResult{Action: hooks.ActionContinue}, nil
		}),
	}
}

// lines is what a query gives, a line per row.
func lines(t *testing.T, db *storetest.DB, query string, args ...any) []string {
	t.Helper()
	rows, err := db.Pool.Query(t.Context(), query, args...)
	if err != nil {
		t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func wantLines(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s\n got\n  %s\nwant\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// TestDecisionsOfTheProviderGatesAreToldInSQL: of a call that is made again, of
// an answer that is refused, and of a header that is none.
func TestDecisionsOfTheProviderGatesAreToldInSQL(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	// The second answer goes on once its first text is durable.
	hold, hello := openaitest.NewHold(), openaitest.Text("Hel", "lo.")
	p := openaitest.New(t, openaitest.Error(503, "server_error", "", "busy"), hello.Hold(bytes.Index(hello.Body, []byte("lo.")), hold), openaitest.Text("Never shown."))
	s := newStack(t, db, providedBy(t, p, openai.Config{}))
	agent := s.Engine.Agents["demo"]
	agent.Retry = loop.Retry{Attempts: 2}
	s.Engine.Agents["demo"] = agent
	var m moods
	s.checked(t, m.hooks())
	var runs []string
	session := s.Session(t)
	for _, mood := range []string{moodChange, moodBlock, moodHeader} {
		m.now.Store(mood)
		j := s.Start(t, session, "hi")
		a := s.advance(t, j)
		if mood == moodChange {
			awaitRow(t, db, `SELECT type FROM agentd.events WHERE type = 'assistant.delta'`)
			hold.Release()
		}
		a.wait(t)
		runs = append(runs, j.RunID)
	}
	if n := len(p.Requests()); n != 3 {
		t.Errorf("%d requests were sent", n)
	}

	wantLines(t, "decisions", lines(t, db, `
		SELECT concat_ws(' ', array_position($2::text[], d.run_id::text), gate, subject || '/' || attempt, hook_id, action, nullif(outcome, 'ok'),
			CASE WHEN failed_open THEN 'open' END, nullif(array_to_string(fields_changed, ','), ''), reason_code, '|', run_status, '|', e.type)
		FROM agentd.decisions AS d JOIN agentd.events AS e ON e.session_id = d.session_id AND e.seq = d.event_seq
		WHERE d.session_id = $1 ORDER BY ledger_seq`, session, runs),
		"1 BeforeProviderHeaders 1/1 headers transform headers | completed | model.requested",
		"1 BeforeProviderRequest 1/1 body transform body | completed | model.requested",
		"1 AfterProviderResponse 1/1 answer continue | completed | assistant.discarded",
		"1 BeforeProviderHeaders 1/2 headers transform headers | completed | model.requested",
		"1 BeforeProviderRequest 1/2 body transform body | completed | model.requested",
		"1 AfterProviderResponse 1/2 answer continue error open hook.error | completed | assistant.delta",
		"2 BeforeProviderHeaders 1/1 headers transform headers | failed | model.requested",
		"2 BeforeProviderRequest 1/1 body transform body | failed | model.requested",
		"2 AfterProviderResponse 1/1 answer block residency | failed | run.failed",
		"3 BeforeProviderHeaders 1/1 headers block unappliable hook.unappliable | failed | run.failed",
	)
	wantLines(t, "patches", lines(t, db, `
		SELECT concat_ws(' ', p.patch, p.annotations, p.reason) FROM agentd.hook_payloads AS p JOIN agentd.hook_decisions AS d USING (decision_id)
		WHERE d.session_id = $1 ORDER BY ledger_seq OFFSET 2`, session),
		`[{"op":"remove","path":"/headers/User-Agent"},{"op":"add","path":"/headers/X-Team"}]`,
		`[{"op":"add","path":"/body/user","value":"u\u0000/9007199254740993"}] {"why":"billing"}`,
		"error: no such region",
		`[{"op":"remove","path":"/headers/User-Agent"},{"op":"add","path":"/headers/X-Team"}]`,
		`[{"op":"add","path":"/body/user","value":"u\u0000/9007199254740993"}] {"why":"billing"}`,
		"Not from there.",
		"unappliable: header X-Team: the value has a byte that is no printable ASCII",
	)
	wantLines(t, "fail_open", lines(t, db, `SELECT concat_ws(' ', gate, subject, hook_id, outcome, reason) FROM agentd.fail_open WHERE session_id = $1`, session),
		"AfterProviderResponse 1 answer error error: no such region")
	wantLines(t, "blocked", lines(t, db, `SELECT concat_ws(' ', blocked_by, hook_id, action, outcome, reason_code) FROM agentd.blocked WHERE session_id = $1 ORDER BY seq`, session),
		"AfterProviderResponse answer block ok residency", "BeforeProviderHeaders headers block unappliable hook.unappliable")
	wantLines(t, "hook_latency", lines(t, db, `SELECT concat_ws(' ', gate, hook_id, calls, failures) FROM agentd.hook_latency ORDER BY 1`),
		"AfterProviderResponse answer 3 1", "BeforeProviderHeaders headers 4 1", "BeforeProviderRequest body 3 0")
	wantLines(t, "timeline", lines(t, db, `
		SELECT concat_ws(': ', type, CASE kind WHEN 'decision' THEN summary END) FROM agentd.timeline WHERE run_id = $1 ORDER BY seq, kind, ledger_seq OFFSET 2`, runs[0]),
		"run.queued", "run.started", "BeforeProviderHeaders: transform", "BeforeProviderRequest: transform", "turn.started", "model.requested",
		"AfterProviderResponse: continue", "assistant.discarded",
		"BeforeProviderHeaders: transform", "BeforeProviderRequest: transform", "model.requested",
		"AfterProviderResponse: continue (error, let through): hook.error: error: no such region", "assistant.delta",
		"assistant.delta", "assistant.completed", "turn.completed", "run.completed",
	)
	wantLines(t, "verify_ledger", lines(t, db, `SELECT v::text FROM agentd.verify_ledger($1) AS v`, session))
	s.explained(t, runs[1], `? BeforeProviderHeaders turn 1 attempt 1
    headers@2: transform headers [TIME]
      changed: [{"op":"remove","path":"/headers/User-Agent"},{"op":"add","path":"/headers/X-Team"}]
? BeforeProviderRequest turn 1 attempt 1
    body@1: transform body [TIME]
      changed: [{"op":"add","path":"/body/user","value":"u\u0000/9007199254740993"}]
→ # model.requested      test-model attempt 1, 3 messages
? AfterProviderResponse turn 1 attempt 1
    answer@1: block, residency: Not from there. [TIME]
→ # assistant.stopped    blocked:
→ # run.failed           blocked: Not from there.
`)
	s.explained(t, runs[0], `? AfterProviderResponse turn 1 attempt 1
    answer@1: continue [TIME]
→ # assistant.discarded  attempt 1, failed: busy
`)
	s.explained(t, runs[0], `? AfterProviderResponse turn 1 attempt 2
    answer@1: continue (failed open: error), hook.error: error: no such region [TIME]
  # assistant.completed  stop: Hello.
`)
	s.explained(t, runs[2], `? BeforeProviderHeaders turn 1 attempt 1
    headers@2: block (failed: unappliable), hook.unappliable: unappliable: header X-Team: the value has a byte that is no printable ASCII [TIME]
→ # run.failed           blocked: The check headers gave no usable answer (unappliable), so this was not let through.
`)
}

var (
	tookTime = regexp.MustCompile(`\[[0-9.]+[mµn]?s\]`)
	eventSeq = regexp.MustCompile(`(?m)^(.) #\d+ +`)
)

// explained holds that explain tells a run with these lines.
func (s *stack) explained(t *testing.T, id, want string) {
	t.Helper()
	var out, said bytes.Buffer
	if err := run(t.Context(), []string{"explain", id, "--url", s.url}, nil, &out, &said); err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	got := eventSeq.ReplaceAllString(tookTime.ReplaceAllString(out.String(), "[TIME]"), "$1 # ")
	if !strings.Contains(got, want) {
		t.Errorf("explain:\n%s\nwithout:\n%s", got, want)
	}
}
