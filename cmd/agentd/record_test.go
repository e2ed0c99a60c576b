package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

const (
	recordVariable = "AGENTD_RECORD"
	beginSession   = "<!-- session:begin -->\n"
	endSession     = "<!-- session:end -->"
)

// TestRecordSession writes docs/session.txt, and README's copy of it, from a
// real run. It is what `make record` calls.
func TestRecordSession(t *testing.T) {
	t.Parallel()
	if os.Getenv(recordVariable) == "" {
		t.Skip("only make record records")
	}
	here := options{dir: openDir(t)}
	p := start(t, here, "dev")
	p.await(t, &p.out, `psql: .*\n`)
	// Not even the password of a database that is gone belongs into a README.
	lines := regexp.MustCompile(`:[0-9a-f]{20,}@`).ReplaceAllString(p.out.String(), ":…@")

	person := sitDown(t, "http://127.0.0.1:8080", 120, 60)
	for _, message := range []string{"hello", "remember that my name is Ada", "what do you remember?", "forget my name", "forget everything"} {
		person.types(t, message+"\r")
		person.awaitText(t, "> "+message+"\n") // so that the prompt is the next one
		if message == "forget my name" {
			person.awaitQuestion(t, 1)
			person.types(t, "y\r")
		}
		person.awaitPrompt(t)
	}
	talk := strings.TrimSuffix(person.String(), "\n>")
	person.types(t, "\x04")
	if code := person.wait(t); code != 0 {
		t.Fatalf("chat: exit code %d", code)
	}

	const question = `SELECT seq, kind, type, summary FROM agentd.timeline WHERE type <> 'assistant.delta' ORDER BY seq DESC, kind DESC LIMIT 12`
	code, rows, said := runAgentd(t, here, "psql", "--builtin", "-c", question)
	if code != 0 {
		t.Fatalf("psql: exit code %d, said %s", code, said)
	}
	p.signal(t, syscall.SIGTERM)
	if code := p.wait(t); code != 0 {
		t.Fatalf("dev: exit code %d", code)
	}

	session := "$ bin/agentd dev\n" + lines + "\n$ bin/agentd chat        # in a second terminal\n" + talk +
		"\n\n$ bin/agentd psql -c \"" + question + "\"\n" + strings.TrimRight(rows, "\n") + "\n"
	session = regexp.MustCompile(`(?m) +$`).ReplaceAllString(session, "")
	root := filepath.Join("..", "..")
	if err := os.WriteFile(filepath.Join(root, "docs", "session.txt"), []byte(session), 0o644); err != nil {
		t.Fatal(err)
	}
	readme := filepath.Join(root, "README.md")
	content, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	before, after, _ := cutSession(t, string(content))
	if err := os.WriteFile(readme, []byte(before+beginSession+fenced(session)+endSession+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// cutSession finds the recorded session in the README.
func cutSession(t *testing.T, readme string) (before, after, session string) {
	t.Helper()
	before, rest, ok := strings.Cut(readme, beginSession)
	session, after, found := strings.Cut(rest, endSession)
	if !ok || !found {
		t.Fatal("README.md has no place for the session")
	}
	return before, after, session
}

func fenced(session string) string { return "```text\n" + session + "```\n" }

func TestREADMEShowsTheRecordedSession(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	recorded, err := os.ReadFile(filepath.Join(root, "docs", "session.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, session := cutSession(t, string(readme)); session != fenced(string(recorded)) {
		t.Error("README.md and docs/session.txt differ: make record")
	}
}
