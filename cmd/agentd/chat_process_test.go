package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

func TestChatFromAPipe(t *testing.T) {
	t.Parallel()

	t.Run("PrintsTheCompletedTextsByteForByte", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t)
		s := startServe(t, db, nil)
		c := chat(t, s.url, strings.NewReader("what time is it?\n\n  \nping\r\nuse several tools"))
		if code := c.wait(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
		want := completedTexts(t, db)
		if got := c.out.String(); got != want || strings.Count(got, "\n") != 3 {
			t.Errorf("printed %q, the log has %q", got, want)
		}
		if !strings.Contains(c.err.String(), "session ") {
			t.Errorf("no session in %q", c.err.String())
		}
	})

	t.Run("GoesOnWhenTheServerIsKilledInTheMiddleOfAnAnswer", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t)
		wait, open := gate(t)
		env := []string{lasting(t), "AGENTD_SCRIPT=" + script(t,
			`{"text": "Let me look. "}, {"tool": {"name": "get_time", "arguments": {}}}`,
			`{"text": "Once upon a time ", "split": "words", "every": "1ms"}, `+wait+`, {"text": "\u001b[31mred\u0007 · 日本\n"}`)}
		s := startServe(t, db, env)
		c := chat(t, s.url, strings.NewReader("tell me\n"))
		awaitRow(t, db, `SELECT 'x' FROM agentd.events WHERE type = 'assistant.delta' AND payload ->> 'text' LIKE '%time%'`)
		s.kill(t)
		again := startServe(t, db, env)
		open()
		if code := c.wait(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
		want := completedTexts(t, db)
		if got := c.out.String(); got != want || !strings.Contains(got, "\x1b[31mred\a") {
			t.Errorf("printed %q, the log has %q", got, want)
		}
		again.signal(t, syscall.SIGTERM)
		if code := again.wait(t); code != 0 {
			t.Errorf("the server's exit code is %d", code)
		}
	})

	t.Run("DoublesNoMessageWhenTheServerComesLate", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t)
		env := []string{lasting(t)}
		s := startServe(t, db, env)
		messages, write := io.Pipe()
		c := chat(t, s.url, messages)
		say := func(text string) {
			t.Helper()
			if _, err := io.WriteString(write, text+"\n"); err != nil {
				t.Fatal(err)
			}
		}
		say("ping 1")
		c.await(t, &c.out, "ping 1\n")
		s.kill(t)
		say("ping 2")
		c.await(t, &c.err, "the server is away")
		startServe(t, db, env)
		c.await(t, &c.err, "the server is back")
		c.await(t, &c.out, "ping 2\n")
		if err := write.Close(); err != nil {
			t.Fatal(err)
		}
		if code := c.wait(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
		if n := awaitRow(t, db, `SELECT count(*)::text FROM agentd.runs`); n != "2" {
			t.Errorf("%s runs for 2 messages", n)
		}
	})

	t.Run("ExitsWithAFailureAfterAFailedRun", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t)
		s := startServe(t, db, []string{"AGENTD_SCRIPT=" + script(t, `{"fail": {"status": 400, "message": "not today"}}`)})
		c := chat(t, s.url, strings.NewReader("one\ntwo\n"))
		if code := c.wait(t); code != 1 || c.out.String() != "" {
			t.Errorf("exit code %d, printed %q", code, c.out.String())
		}
		if got := c.err.String(); strings.Count(got, "not today") != 2 {
			t.Errorf("said %q", got)
		}
	})

	t.Run("GoesOnInASessionOfThatName", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t)
		s := startServe(t, db, nil)
		for range 2 {
			if code := chat(t, s.url, strings.NewReader("ping\n"), "--session", "mine").wait(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
		}
		id := awaitRow(t, db, `SELECT id::text FROM agentd.sessions WHERE external_id = 'mine'`)
		if code := chat(t, s.url, strings.NewReader("ping\n"), "--session", id).wait(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
		if n := awaitRow(t, db, `SELECT count(*) || ' in ' || count(DISTINCT session_id) FROM agentd.runs`); n != "3 in 1" {
			t.Errorf("%s sessions", n)
		}
		c := chat(t, s.url, strings.NewReader("ping\n"), "--session", newID())
		if code := c.wait(t); code != 1 || !strings.Contains(c.err.String(), "there is no session") {
			t.Errorf("exit code %d, said %q", code, c.err.String())
		}
	})

	t.Run("WaitsForAnotherRunOfTheSession", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t)
		wait, open := gate(t)
		s := startServe(t, db, []string{"AGENTD_SCRIPT=" + script(t, wait+`, {"text": "{{last_user}}"}`)})
		first := chat(t, s.url, strings.NewReader("first\n"), "--session", "shared")
		awaitRow(t, db, `SELECT 'x' FROM agentd.events WHERE type = 'model.requested'`)
		second := chat(t, s.url, strings.NewReader("second\n"), "--session", "shared")
		second.await(t, &second.err, "another run of this session has to end first")
		third := chat(t, s.url, strings.NewReader("third\n"), "--session", "shared")
		third.await(t, &third.err, "another run of this session has to end first")
		third.signal(t, syscall.SIGINT)
		if code := third.wait(t); code != 1 || !strings.Contains(third.err.String(), "agentd: interrupted") {
			t.Errorf("exit code %d, said %q", code, third.err.String())
		}
		open()
		for p, want := range map[*process]string{first: "first\n", second: "second\n"} {
			if code := p.wait(t); code != 0 || p.out.String() != want {
				t.Errorf("exit code %d, printed %q, want %q", code, p.out.String(), want)
			}
		}
		if n := scalar[int](t, db, `SELECT count(*) FROM agentd.runs`); n != 2 {
			t.Errorf("%d runs", n)
		}
	})

	t.Run("EnqueuesBehindAnotherRunOfTheSession", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t)
		wait, open := gate(t)
		s := startServe(t, db, []string{"AGENTD_SCRIPT=" + script(t, wait+`, {"text": "{{last_user}}"}`), "AGENTD_DOUBLE_TEXTING=enqueue"})
		first := chat(t, s.url, strings.NewReader("first\n"), "--session", "shared")
		awaitRow(t, db, `SELECT 'x' FROM agentd.events WHERE type = 'model.requested'`)
		second := chat(t, s.url, strings.NewReader("second\n"), "--session", "shared")
		awaitRow(t, db, `SELECT 'x' FROM agentd.runs WHERE status = 'enqueued'`)
		second.await(t, &second.err, "another run of this session has to end first")
		third := chat(t, s.url, strings.NewReader("third\n"), "--session", "shared", "--double-texting", "enqueue")
		awaitRow(t, db, `SELECT 'x' FROM agentd.runs HAVING count(*) FILTER (WHERE status = 'enqueued') = 2`)
		fourth := chat(t, s.url, strings.NewReader("fourth\n"), "--session", "shared", "--double-texting", "reject")
		fourth.await(t, &fourth.err, "another run of this session has to end first")
		fourth.signal(t, syscall.SIGINT)
		if code := fourth.wait(t); code != 1 {
			t.Errorf("exit code %d", code)
		}
		// What is enqueued is taken back before it begins.
		third.signal(t, syscall.SIGINT)
		if code := third.wait(t); code != 1 || !strings.Contains(third.err.String(), "the run was cancelled: interrupted in chat") {
			t.Errorf("exit code %d, said %q", code, third.err.String())
		}
		open()
		for p, want := range map[*process]string{first: "first\n", second: "second\n"} {
			if code := p.wait(t); code != 0 || p.out.String() != want {
				t.Errorf("exit code %d, printed %q, want %q", code, p.out.String(), want)
			}
		}
		if got := awaitRow(t, db, `SELECT string_agg(status, ' ' ORDER BY created_seq) FROM agentd.runs`); got != "completed completed cancelled" {
			t.Errorf("runs: %s", got)
		}
	})

	t.Run("AnInterruptCancelsTheRun", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t)
		s := startServe(t, db, []string{"AGENTD_SCRIPT=" + script(t, `{"text": "never "}, {"stall": true}`)})
		c := chat(t, s.url, strings.NewReader("one\ntwo\n"))
		awaitRow(t, db, `SELECT 'x' FROM agentd.events WHERE type = 'assistant.delta'`)
		c.signal(t, syscall.SIGINT)
		if code := c.wait(t); code != 1 || c.out.String() != "" {
			t.Errorf("exit code %d, printed %q", code, c.out.String())
		}
		if got := awaitRow(t, db, `SELECT string_agg(status, ' ') FROM agentd.runs`); got != "cancelled" {
			t.Errorf("runs: %s", got)
		}
	})

	t.Run("AnInterruptCancelsTheRunThatItsMessageStarts", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t)
		s := startServe(t, db, []string{"AGENTD_SCRIPT=" + script(t, `{"stall": true}`)})
		to, err := url.Parse(s.url)
		if err != nil {
			t.Fatal(err)
		}
		slow, answer := httputil.NewSingleHostReverseProxy(to), make(chan struct{})
		slow.ModifyResponse = func(r *http.Response) error {
			if strings.HasSuffix(r.Request.URL.Path, "/StartRun") {
				<-answer
			}
			return nil
		}
		between := httptest.NewServer(slow)
		t.Cleanup(between.Close)
		c := chat(t, between.URL, strings.NewReader("one\n"))
		awaitRow(t, db, `SELECT 'x' FROM agentd.runs WHERE status = 'running'`)
		c.signal(t, syscall.SIGINT)
		select {
		case <-c.done:
			t.Error("it does not wait for the run's id")
		case <-time.After(200 * time.Millisecond):
		}
		close(answer)
		if code := c.wait(t); code != 1 || !strings.Contains(c.err.String(), "the run was cancelled: interrupted in chat") {
			t.Errorf("exit code %d, said %q", code, c.err.String())
		}
		if got := awaitRow(t, db, `SELECT string_agg(status, ' ') FROM agentd.runs`); got != "cancelled" {
			t.Errorf("runs: %s", got)
		}
	})

	t.Run("TwoInterruptsDoNotWaitForTheServer", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t)
		s := startServe(t, db, []string{"AGENTD_SCRIPT=" + script(t, `{"text": "never "}, {"stall": true}`)})
		c := chat(t, s.url, strings.NewReader("one\n"))
		awaitRow(t, db, `SELECT 'x' FROM agentd.events WHERE type = 'assistant.delta'`)
		s.kill(t)
		c.await(t, &c.err, "the server is away")
		c.signal(t, syscall.SIGINT)
		c.signal(t, syscall.SIGINT)
		// A process that has not looked in between gets two as one.
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for ended := false; !ended; {
			select {
			case <-tick.C:
				_ = c.cmd.Process.Signal(syscall.SIGINT)
			case <-c.done:
				ended = true
			}
		}
		if code := c.wait(t); code != 1 || !strings.Contains(c.err.String(), "interrupted") {
			t.Errorf("exit code %d, said %q", code, c.err.String())
		}
	})

	t.Run("AnInterruptDoesNotWaitForAServerAtTheStart", func(t *testing.T) {
		t.Parallel()
		c := chat(t, "http://127.0.0.1:1", strings.NewReader("one\n"))
		c.await(t, &c.err, "the server is away")
		c.signal(t, syscall.SIGINT)
		if code := c.wait(t); code != 1 || !strings.Contains(c.err.String(), "agentd: interrupted") {
			t.Errorf("exit code %d, said %q", code, c.err.String())
		}
	})

	t.Run("AnInterruptBetweenMessagesEndsIt", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t)
		s := startServe(t, db, nil)
		// A file, since the end of an io.Pipe would race with the signal.
		messages, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = messages.Close()
			_ = write.Close()
		})
		c := chat(t, s.url, messages)
		if _, err := io.WriteString(write, "ping\n"); err != nil {
			t.Fatal(err)
		}
		c.await(t, &c.out, "pong.*\n")
		c.signal(t, syscall.SIGINT)
		if code := c.wait(t); code != 1 {
			t.Errorf("exit code %d", code)
		}
	})
}

func TestChatSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startServe(t, db, []string{"AGENTD_API_KEY=sesame"})
	for name, test := range map[string]struct {
		env  []string
		args []string
		want string
	}{
		"NoServer":   {env: []string{"AGENTD_URL=http://127.0.0.1:1", "AGENTD_PATIENCE=1s"}, want: "has not answered for 1s"},
		"NoURL":      {env: []string{"AGENTD_URL=localhost"}, want: "is no server to talk to"},
		"NoKey":      {env: []string{"AGENTD_URL=" + s.url}, want: "an API key is required"},
		"NoAgent":    {env: []string{"AGENTD_URL=" + s.url, "AGENTD_API_KEY=sesame"}, args: []string{"--agent", "nobody"}, want: "nobody"},
		"NoKeyFile":  {env: []string{"AGENTD_API_KEY_FILE=/nowhere"}, want: "read the API key"},
		"EmptyKey":   {env: []string{"AGENTD_API_KEY_FILE=/dev/null"}, want: "is empty"},
		"TwoKeys":    {env: []string{"AGENTD_API_KEY_FILE=/dev/null", "AGENTD_API_KEY=x"}, want: "given twice"},
		"BrokenKey":  {env: []string{"AGENTD_API_KEY=a b"}, want: "visible ASCII"},
		"OtherThing": {env: []string{"AGENTD_URL=" + s.url + "/elsewhere", "AGENTD_API_KEY=sesame"}, want: "there is no such route"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out, err := runAgentd(t, options{dir: t.TempDir(), env: test.env, stdin: strings.NewReader("ping\n")}, append([]string{"chat"}, test.args...)...)
			if code != 1 || out != "" || !strings.Contains(err, test.want) {
				t.Errorf("exit code %d, printed %q, said %q, want %q", code, out, err, test.want)
			}
		})
	}
}
