package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// asking is a server whose agent has two calls: one needs a yes.
func asking(t *testing.T, db *storetest.DB, env ...string) *server {
	t.Helper()
	return startServe(t, db, append([]string{
		"AGENTD_TOOL_PERMISSIONS=memory_w*=ask",
		"AGENTD_SCRIPT=" + script(t,
			`{"text": "May I? "}, {"tool": {"name": "memory_write", "arguments": {"key": "name", "content": "Ada\u001b[2J"}}}, {"tool": {"name": "ping", "arguments": {}}}`,
			`{"text": "It said: {{tool_result}}"}`),
	}, env...))
}

// awaitQuestion waits until the nth question may be answered.
func (p *person) awaitQuestion(t *testing.T, n int) {
	t.Helper()
	p.vt.await(t, "question", func(screen string) bool {
		return strings.Count(screen, "wants to run with exactly this:") == n && strings.HasSuffix(screen, "y or n?")
	})
}

func TestChatAsksForAYesOrANo(t *testing.T) {
	t.Parallel()

	t.Run("InATerminal", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t)
		s := asking(t, db)
		p := sitDown(t, s.url, 80, 40)
		p.types(t, "go\r")
		screen := p.awaitText(t, "y or n?")
		for _, want := range []string{
			"May I?\n", "· ping {} → pong\n",
			"\n? memory_write wants to run with exactly this:\n",
			"\n  {\"key\": \"name\", \"content\": \"Ada\\u001b[2J\"}\n",
		} {
			if !strings.Contains(screen, want) {
				t.Errorf("no %q on the screen:\n%s", want, screen)
			}
		}
		p.types(t, "what?\r")
		p.awaitText(t, "y or n? what?\n  y or n?")
		p.types(t, "y\r")
		p.awaitText(t, "remembered under")
		p.awaitText(t, "It said: ")
		p.awaitPrompt(t)
		p.types(t, "and again\r")
		p.awaitText(t, "> and again\n")
		p.awaitQuestion(t, 2)
		p.types(t, "n\r")
		p.awaitText(t, "✗ This call was denied")
		p.awaitPrompt(t)
		if n := awaitRow(t, db, `SELECT string_agg(status, ' ' ORDER BY requested_at) FROM agentd.approvals`); n != "approved denied" {
			t.Errorf("approvals: %s", n)
		}
	})

	t.Run("WhatWasTypedBeforeTheQuestionIsNoAnswer", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t)
		wait, open := gate(t)
		s := startServe(t, db, []string{"AGENTD_TOOL_PERMISSIONS=ping=ask", "AGENTD_SCRIPT=" + script(t,
			`{"text": "thinking"}, `+wait+`, {"tool": {"name": "ping", "arguments": {}}}`, `{"text": "Done."}`)})
		p := sitDown(t, s.url, 80, 20)
		p.types(t, "go\r")
		p.awaitText(t, "thinking")
		p.types(t, "y\ry\r")
		open()
		p.awaitText(t, "y or n?")
		// Leaving leaves it undecided.
		p.types(t, "\x04")
		p.awaitText(t, "(the run waits: agentd approvals approve or deny ")
		if code := p.wait(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
		if status := awaitRow(t, db, `SELECT status FROM agentd.approvals`); status != "pending" {
			t.Errorf("the approval is %s", status)
		}

		// Whoever comes back is asked before anything else.
		session := awaitRow(t, db, `SELECT id::text FROM agentd.sessions`)
		p = sitDown(t, s.url, 80, 20, "--session", session)
		p.types(t, "are you there?\r")
		p.awaitText(t, "y or n?")
		approval := awaitRow(t, db, `SELECT id::text FROM agentd.approvals`)
		if code, _, said := ofServer(s.url, "1m")(t, "approvals", "deny", approval); code != 0 {
			t.Fatalf("deny: %s", said)
		}
		p.types(t, "y\r")
		p.awaitText(t, "(the approval was already decided: denied by")
		p.awaitQuestion(t, 2) // of the next run
		p.types(t, "n\r")
		p.awaitPrompt(t)
		if n := awaitRow(t, db, `SELECT count(*)::text FROM agentd.runs WHERE status = 'completed'`); n != "2" {
			t.Errorf("%s runs are completed", n)
		}
	})

	t.Run("FromAPipeItSaysWhereToAnswer", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t)
		s := asking(t, db)
		c := chat(t, s.url, strings.NewReader("go\nand then this\n"))
		if code := c.wait(t); code != exitUndecided {
			t.Errorf("exit code %d", code)
		}
		approval := awaitRow(t, db, `SELECT id::text FROM agentd.approvals`)
		for _, want := range []string{
			"agentd: memory_write waits for a person's yes or no:", `{"key": "name", "content": "Ada\u001b[2J"}`, "agentd approvals approve " + approval,
		} {
			if !strings.Contains(c.err.String(), want) {
				t.Errorf("no %q in %s", want, c.err.String())
			}
		}
		if c.out.String() != "May I? \n" {
			t.Errorf("printed %q", c.out.String())
		}
	})
}

func TestApprovalsCommand(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := asking(t, db)
	chat(t, s.url, strings.NewReader("go\n"), "--session", "mine").wait(t)
	approval := awaitRow(t, db, `SELECT id::text FROM agentd.approvals`)
	for _, test := range []struct {
		args []string
		code int
		want []string
	}{
		{args: nil, want: []string{"APPROVAL ", approval + "  memory_write  {"}},
		{args: []string{"--session", "mine"}, want: []string{approval}},
		{args: []string{"list", "--session", "nobody's"}, code: 1, want: []string{`there is no session "nobody's"`}},
		{args: []string{"show", approval}, want: []string{"pending", "asked for by:      permission", `"Ada\u001b[2J"}`}},
		{args: []string{"show", newID()}, code: 1, want: []string{"there is no such"}},
		{args: []string{"approve", newID()}, code: 1, want: []string{"there is no such"}},
		{args: []string{"approve", approval, "--url", "nowhere"}, code: 1, want: []string{"no server to talk to"}},
		{args: []string{"list", "--url", "nowhere"}, code: 1, want: []string{"no server to talk to"}},
		{args: []string{"show", approval, "--url", "nowhere"}, code: 1, want: []string{"no server to talk to"}},
		{args: []string{"deny", approval, "--reason", "not now"}, want: []string{"denied: memory_write {"}},
		{args: []string{"deny", approval}, want: []string{"denied: memory_write {"}},
		{args: []string{"approve", approval}, code: 1, want: []string{"already decided: denied by principal local at "}},
		{args: []string{"show", approval}, want: []string{"denied", "not now", "principal local"}},
	} {
		code, out, said := ofServer(s.url, "1m")(t, append([]string{"approvals"}, test.args...)...)
		if code != test.code {
			t.Errorf("approvals %v: exit code %d", test.args, code)
		}
		for _, want := range test.want {
			if !strings.Contains(out+said, want) {
				t.Errorf("approvals %v: no %q in\n%s%s", test.args, want, out, said)
			}
		}
	}
	awaitRow(t, db, `SELECT 'x' FROM agentd.runs WHERE status = 'completed'`)
	if text := awaitRow(t, db, `SELECT parts -> 0 ->> 'text' FROM agentd.messages WHERE role = 'assistant' ORDER BY position DESC LIMIT 1`); !strings.Contains(text, "pong") {
		t.Errorf("the model says %q", text)
	}
	if text := awaitRow(t, db, `SELECT parts::text FROM agentd.messages WHERE role = 'tool' ORDER BY position LIMIT 1`); !strings.Contains(text, "not now") {
		t.Errorf("the model is told %s", text)
	}
}

func TestExplainAndLedgerTellWhoDecidedWhat(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startServe(t, db, []string{"AGENTD_MAX_INPUT_BYTES=100", "AGENTD_DENY_TOOLS=memory_clear"})
	ask := ofServer(s.url, "1s")
	c := chat(t, s.url, strings.NewReader("forget everything\n"+strings.Repeat("x", 101)+"\nping\n"), "--session", "mine")
	if code := c.wait(t); code != 1 || !strings.Contains(c.err.String(), "The message has 101 bytes; at most 100 are allowed.") || strings.Count(c.out.String(), "\n") != 2 {
		t.Errorf("exit code %d, printed %q, said %q", code, c.out.String(), c.err.String())
	}
	run := awaitRow(t, db, `SELECT id::text FROM agentd.runs ORDER BY created_seq LIMIT 1`)
	session := awaitRow(t, db, `SELECT id::text FROM agentd.sessions`)

	code, out, said := ask(t, "explain", run)
	if code != 0 {
		t.Fatalf("explain: %s", said)
	}
	worker := awaitRow(t, db, fmt.Sprintf(`SELECT payload ->> 'worker_id' FROM agentd.events WHERE type = 'run.started' AND run_id = '%s'`, run))
	set := awaitRow(t, db, `SELECT left(digest, 12) FROM agentd.hook_sets`)
	got := strings.NewReplacer(run, "RUN", session, "SESSION", worker, "WORKER", set, "SET").Replace(out)
	got = regexp.MustCompile(`\[[0-9.]+[mµn]?s\]`).ReplaceAllString(got, "[TIME]")
	got = regexp.MustCompile(`(?m)^(.) #\d+ +`).ReplaceAllString(got, "$1 # ")
	const want = `run RUN of session SESSION
agent demo: completed (stop), 2 turns, 2 decisions

? BeforeInput
    max-input-bytes@1: continue [TIME]
→ # message.created      user: forget everything
→ # run.created          by principal local
→ # run.queued
  # run.started          worker WORKER, hooks SET
  # turn.started
  # model.requested      scripted attempt 1, 1 message
  # assistant.completed  tool_calls: I will clear my memory.
  # tool.proposed        memory_clear {}
? BeforeToolCall memory_clear {}
    deny-tools@1: block, tool_denied: rule memory_clear: The tool memory_clear is not allowed here. [TIME]
      config: {"tools":["memory_clear"]}
→ # tool.blocked         memory_clear by BeforeToolCall: tool_denied
→ # tool.result          memory_clear: This call was blocked and not run: The tool memory_clear is not allowed here.
  # turn.completed
  # turn.started
  # model.requested      scripted attempt 1, 3 messages
  # assistant.completed  stop: This is what I was told: This call was blocked and not run: The tool memory_clear is not allowed here.
  # turn.completed
  # run.completed        stop
`
	if got != want {
		t.Errorf("explain:\n%s\nwant:\n%s", got, want)
	}

	for _, test := range []struct {
		id   string
		code int
		rows int // with the header
		want []string
	}{
		{run, 0, 3, []string{"BeforeToolCall  memory_clear  deny-tools@1       block     tool_denied: rule memory_clear"}},
		{session, 0, 6, []string{"max-input-bytes@1  block     input_too_long: The message has 101 bytes", "BeforeToolCall  ping"}},
		{"mine", 0, 6, nil},
		{"nobody's", 1, 0, []string{"there is no session"}},
		{newID(), 1, 0, []string{"there is no session"}},
	} {
		code, out, said := ask(t, "ledger", "show", test.id)
		if code != test.code || strings.Count(out, "\n") != test.rows {
			t.Errorf("ledger show %s: exit code %d, printed\n%s", test.id, code, out)
		}
		for _, want := range test.want {
			if !strings.Contains(out+said, want) {
				t.Errorf("ledger show %s: no %q in\n%s%s", test.id, want, out, said)
			}
		}
	}
	for _, args := range [][]string{{"explain", newID()}, {"explain", run, "--url", "nowhere"}, {"ledger", "show", run, "--url", "nowhere"}, {"explain", run, "--url", "http://127.0.0.1:1"}} {
		if code, _, said := ask(t, args...); code != 1 || said == "" {
			t.Errorf("%v: exit code %d, said %q", args, code, said)
		}
	}
}
