package main

import (
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// person is a chat in a terminal.
type person struct {
	*process
	*vt
	tty *os.File
}

// sitDown starts a chat in a terminal of that size, and waits for its prompt.
func sitDown(t *testing.T, url string, width, height int, args ...string) *person {
	t.Helper()
	p := approach(t, url, width, height, args...)
	p.awaitPrompt(t)
	return p
}

// approach is sitDown without the wait.
func approach(t *testing.T, url string, width, height int, args ...string) *person {
	t.Helper()
	cmd := command(options{dir: t.TempDir(), env: []string{"AGENTD_URL=" + url}}, append([]string{"chat"}, args...)...)
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: uint16(width), Rows: uint16(height)})
	if err != nil {
		t.Fatal(err)
	}
	p := &person{process: &process{cmd: cmd, done: make(chan struct{})}, vt: newVT(width, height), tty: tty}
	seen := make(chan struct{})
	go func() {
		defer close(seen)
		_, _ = p.copyFrom(tty)
	}()
	go func() {
		defer close(p.done)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.done
		<-seen
		_ = tty.Close()
		if len(p.strange) > 0 {
			t.Errorf("sent to the terminal: %s", p.strange)
		}
		if t.Failed() {
			t.Logf("chat: %s, screen:\n%s", cmd.ProcessState, p.vt)
		}
	})
	return p
}

func (p *person) types(t *testing.T, keys string) {
	t.Helper()
	if _, err := io.WriteString(p.tty, keys); err != nil {
		t.Fatal(err)
	}
}

// awaitPrompt waits until a message may be typed.
func (p *person) awaitPrompt(t *testing.T) string {
	t.Helper()
	return p.vt.await(t, "prompt", func(screen string) bool { return strings.HasSuffix(screen, "\n>") })
}

func TestChatInATerminal(t *testing.T) {
	t.Parallel()

	t.Run("ShowsToolsAndText", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t)
		s := startServe(t, db, []string{"AGENTD_SCRIPT=" + script(t,
			`{"reasoning": "Hmm."}, {"text": "Let me ask. "}, {"tool": {"name": "ping", "arguments": {"message": "a\nb"}}}, {"tool": {"name": "nothing", "arguments": {}}}`,
			`{"text": "It said\u001b[2J {{tool_result}}"}`)})
		p := sitDown(t, s.url, 60, 20)
		p.types(t, "hi therr\x7fe\r")
		p.awaitText(t, "It said")
		screen := p.awaitPrompt(t)
		session := awaitRow(t, db, `SELECT id::text FROM agentd.sessions`)
		for _, want := range []string{
			"session " + session,
			"> hi there\nHmm.\nLet me ask.\n· ",
			"\n· ping {\"message\": \"a\\nb\"} → pong: a b\n",
			"\n· nothing {} ✗ ",
			"\nIt said\uFFFD[2J ",
		} {
			if !strings.Contains(screen, want) {
				t.Errorf("no %q on the screen:\n%s", want, screen)
			}
		}
		if text := awaitRow(t, db, `SELECT payload -> 'parts' -> 0 ->> 'text' FROM agentd.events WHERE type = 'message.created'`); text != "hi there" {
			t.Errorf("sent %q", text)
		}
		p.types(t, "\x04")
		if code := p.wait(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})

	t.Run("ShowsAnAnswerOnceWhenTheServerIsKilledInTheMiddle", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t)
		wait, open := gate(t)
		env := []string{lasting(t), "AGENTD_SCRIPT=" + script(t,
			`{"text": "Once upon a time there was a log,\nand it was long enough to be wrapped. ", "split": 7}, `+wait+`, {"text": "The end."}`)}
		s := startServe(t, db, env)
		p := sitDown(t, s.url, 20, 24)
		p.types(t, "tell me\r")
		p.awaitText(t, "wrapped.")
		s.kill(t)
		p.awaitText(t, "the server is away")
		startServe(t, db, env)
		open()
		p.awaitText(t, "\ne end.")
		screen := p.awaitPrompt(t)
		want := "> tell me\nOnce upon a time the\nre was a log,\nand it was long enou\ngh to be wrapped. Th\ne end.\n>"
		if !strings.HasSuffix(screen, want) || strings.Contains(screen, "away") {
			t.Errorf("screen:\n%s\nwant its end:\n%s", screen, want)
		}
		if n := awaitRow(t, db, `SELECT count(*)::text FROM agentd.events WHERE type = 'assistant.discarded'`); n != "1" {
			t.Errorf("%s discarded answers: the test did not test it", n)
		}
		if n := awaitRow(t, db, `SELECT count(*)::text FROM agentd.events WHERE type = 'message.created'`); n != "1" {
			t.Errorf("%s messages", n)
		}
	})

	t.Run("CtrlCStopsAnAnswerAndThenLeaves", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t)
		s := startServe(t, db, []string{"AGENTD_SCRIPT=" + script(t, `{"text": "on and on"}, {"stall": true}`)})
		p := sitDown(t, s.url, 60, 20)
		p.types(t, "go\r")
		p.awaitText(t, "on and on")
		p.types(t, "typed ahead\x03")
		screen := p.awaitText(t, "(the run was cancelled: interrupted in chat)")
		if !strings.Contains(screen, "> go\non and on\n(the run") {
			t.Errorf("screen:\n%s", screen)
		}
		p.awaitPromptOrText(t)
		p.types(t, "\x03")
		if code := p.wait(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})

	t.Run("TwoCtrlCsDoNotWaitForTheServer", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t)
		s := startServe(t, db, []string{"AGENTD_SCRIPT=" + script(t, `{"text": "on and on"}, {"stall": true}`)})
		p := sitDown(t, s.url, 60, 20)
		p.types(t, "go\r")
		p.awaitText(t, "on and on")
		s.kill(t)
		p.awaitText(t, "the server is away")
		// Two at once may become one on their way.
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for !strings.Contains(p.String(), "on and on\n(interrupted)") {
			select {
			case <-tick.C:
				p.types(t, "\x03")
			case <-p.done:
				t.Fatal("it has ended")
			}
		}
	})

	t.Run("CtrlCDoesNotWaitForAServerAtTheStart", func(t *testing.T) {
		t.Parallel()
		p := approach(t, "http://127.0.0.1:1", 60, 20)
		p.awaitText(t, "the server is away")
		p.types(t, "\x03")
		// Its last words may be lost: the kernel drops a terminal's output behind
		// the signal that it sends for Ctrl-C.
		if code := p.wait(t); code != 1 || strings.Contains(p.String(), "has not answered") {
			t.Errorf("exit code %d, screen %q; want it to end at once", code, p.String())
		}
	})

	t.Run("SaysWhyARunFailed", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t)
		s := startServe(t, db, []string{"AGENTD_SCRIPT=" + script(t, `{"text": "I "}, {"fail": {"status": 400, "message": "not today"}}`)})
		p := sitDown(t, s.url, 60, 20)
		p.types(t, "go\r")
		p.awaitText(t, "not today")
		p.awaitPrompt(t) // what is typed before it may be lost
		p.types(t, "\x04")
		if code := p.wait(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})

	t.Run("GivesTheTerminalBackWhenItIsTerminated", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t)
		s := startServe(t, db, nil)
		p := sitDown(t, s.url, 60, 20)
		p.signal(t, syscall.SIGTERM)
		if code := p.wait(t); code != 1 {
			t.Errorf("exit code %d", code)
		}
	})

	t.Run("LeavesWhenTheServerIsGoneForGood", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t)
		s := startServe(t, db, nil)
		p := sitDown(t, s.url, 60, 20, "--patience", "1s")
		s.kill(t)
		p.types(t, "go\r")
		p.awaitText(t, "has not answered for 1s")
		if code := p.wait(t); code != 1 {
			t.Errorf("exit code %d", code)
		}
	})
}

// awaitPromptOrText waits for a prompt, whatever was typed ahead of it.
func (p *person) awaitPromptOrText(t *testing.T) {
	t.Helper()
	p.vt.await(t, "prompt", func(screen string) bool {
		return strings.HasSuffix(screen, "\n>") || strings.HasSuffix(screen, "\n> typed ahead")
	})
}
