package main

import (
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// What is piped in may be of another encoding, and so may be what is pasted
// into a terminal.
func TestBytesThatAreNoTextAreReplacedAndSent(t *testing.T) {
	t.Parallel()
	const sent = "bytes \xff\xfe \xe9t\xe9"
	db := storetest.New(t)
	s := startServe(t, db, []string{"AGENTD_SCRIPT=" + script(t, `{"text": "<{{last_user}}>"}`)})

	c := chat(t, s.url, strings.NewReader(sent+"\n"))
	if code := c.wait(t); code != 0 || c.out.String() != "<bytes \uFFFD \uFFFDt\uFFFD>\n" {
		t.Errorf("from a pipe: exit code %d, printed %q", code, c.out.String())
	}

	p := sitDown(t, s.url, 60, 10)
	p.types(t, sent+"\r")
	p.vt.await(t, "answer", func(screen string) bool { return strings.Contains(screen, "<bytes ?? ?t?>") })
	p.awaitPrompt(t)
	p.types(t, "\x04")
	if code := p.wait(t); code != 0 {
		t.Errorf("from a terminal: exit code %d", code)
	}
}
