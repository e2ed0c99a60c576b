package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// A chat logs of each event that it shows the seq and the type.
var shownEvent = regexp.MustCompile(`level=DEBUG msg=event seq=(\d+) type=(\S+)`)

// shownBy are the events that a chat has shown, as "seq type".
func shownBy(log string) (list []string) {
	for _, m := range shownEvent.FindAllStringSubmatch(log, -1) {
		list = append(list, m[1]+" "+m[2])
	}
	return list
}

// streamed are the events of runs in an SSE stream, as "seq type", and the
// texts of its assistant.completed events, one answer a line.
func streamed(t *testing.T, stream string) (list []string, transcript string) {
	t.Helper()
	for r := newSSEReader(strings.NewReader(stream)); ; {
		fr, err := r.event()
		if errors.Is(err, io.EOF) {
			return list, transcript
		}
		if err != nil {
			t.Fatal(err)
		}
		var e struct {
			RunID string `json:"run_id"`
			Type  string `json:"type"`
			Data  struct {
				Parts []struct{ Type, Text string }
			}
		}
		if err := json.NewDecoder(bytes.NewReader(fr.data)).Decode(&e); err != nil {
			t.Fatal(err)
		}
		if e.RunID != "" {
			list = append(list, fmt.Sprint(fr.id, " ", e.Type))
		}
		switch e.Type {
		case "assistant.completed":
			for _, p := range e.Data.Parts {
				if p.Type == "text" {
					transcript += p.Text
				}
			}
		case "run.completed":
			transcript += "\n"
		}
	}
}

// typing is a chat in a terminal, whose stderr goes elsewhere.
func typing(t *testing.T, url string, args ...string) *person {
	t.Helper()
	p := &person{
		process: &process{cmd: command(options{dir: t.TempDir(), env: []string{"AGENTD_URL=" + url}}, append([]string{"chat"}, args...)...), done: make(chan struct{})},
		vt:      newVT(80, 20),
	}
	p.cmd.Stderr = &p.err
	var err error
	if p.tty, err = pty.StartWithSize(p.cmd, &pty.Winsize{Cols: 80, Rows: 20}); err != nil {
		t.Fatal(err)
	}
	seen := make(chan struct{})
	go func() {
		defer close(seen)
		_, _ = p.copyFrom(p.tty)
	}()
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		<-seen
		_ = p.tty.Close()
	})
	return p
}

func TestOneRunIsToldAlikeByChatAndSSEAndSQL(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	wait, open := gate(t)
	s := startServe(t, db, []string{"AGENTD_SCRIPT=" + script(t,
		`{"reasoning": "secret thoughts"}, {"text": "Let me look: 日本. ", "split": "words", "every": "1ms"}, `+wait+`, {"tool": {"name": "ping", "arguments": {"message": "paper"}}}`,
		`{"text": "It is  done.", "split": "words", "every": "1ms"}`)})

	// One client is there in the middle of the run, from a pipe and over SSE.
	piped := chat(t, s.url, strings.NewReader("hello\n"), "--session", "told", "--log-level", "debug")
	session := awaitRow(t, db, `SELECT session_id::text FROM agentd.events WHERE type = 'assistant.delta' LIMIT 1`)
	live := followSSE(t, s.url+"/v1/sessions/"+session+"/events?until=idle")
	open()
	if code := piped.wait(t); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	first, transcript := streamed(t, <-live)
	if got := shownBy(piped.err.String()); !slices.Equal(got, first) || len(got) < 15 {
		t.Errorf("chat has shown\n%q\nSSE has sent\n%q", got, first)
	}
	if got := piped.out.String(); got != transcript || got != completedTexts(t, db) || got != "Let me look: 日本. It is  done.\n" {
		t.Errorf("chat has printed\n%q\nSSE has sent\n%q\nthe log has\n%q", got, transcript, completedTexts(t, db))
	}

	// Another run of the session, from a terminal.
	p := typing(t, s.url, "--session", "told", "--log-level", "debug")
	p.awaitPrompt(t)
	p.types(t, "again\r")
	p.vt.await(t, "answer", func(screen string) bool { return strings.Contains(screen, "It is  done.") })
	screen := p.awaitPrompt(t)
	p.types(t, "\x04")
	if code := p.wait(t); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	_, all := get(t, s.url+"/v1/sessions/"+session+"/events?until=idle")
	both, _ := streamed(t, all)
	if got := append(shownBy(piped.err.String()), shownBy(p.err.String())...); !slices.Equal(got, both) {
		t.Errorf("chats have shown\n%q\nSSE has sent\n%q", got, both)
	}
	if !strings.Contains(screen, "Let me look: 日本.") || strings.Count(screen, "done.") != 1 {
		t.Errorf("screen:\n%s", screen)
	}

	stored := strings.Fields(scalar[string](t, db, `
		SELECT string_agg(seq || ' ' || type, ' ' ORDER BY seq) FROM agentd.events WHERE session_id = $1 AND run_id IS NOT NULL`, session))
	if sent := strings.Fields(strings.Join(both, " ")); !slices.Equal(stored, sent) {
		t.Errorf("SQL has\n%q\nSSE has sent\n%q", stored, sent)
	}
	for _, payload := range []string{"hello", "secret", "Let me", "paper", "done"} {
		if strings.Contains(piped.err.String()+p.err.String(), payload) {
			t.Errorf("%q is in the log", payload)
		}
	}
}
