package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// bashDir is a directory where the commands of a document are typed, with agentd
// where they expect it.
type bashDir struct {
	dir string
	env []string
}

func newBashDir(t *testing.T, env ...string) *bashDir {
	t.Helper()
	needBash(t)
	s := &bashDir{dir: t.TempDir(), env: command(options{env: env}).Env}
	self, err := os.Executable()
	if err == nil {
		err = os.Mkdir(filepath.Join(s.dir, "bin"), 0o755)
	}
	if err == nil {
		err = os.Symlink(self, filepath.Join(s.dir, "bin", "agentd"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// typed runs commands, which have to succeed, and checks what they print.
func (s *bashDir) typed(t *testing.T, commands string, patterns ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", "set -euo pipefail\n"+commands)
	cmd.Dir, cmd.Env = s.dir, s.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s%v: %s", commands, err, out)
	}
	for _, pattern := range patterns {
		if !regexp.MustCompile(pattern).Match(out) {
			t.Errorf("no %q in\n%s", pattern, out)
		}
	}
}

// TestTheWorkedExampleDecidesAlikeInEveryForm: the rule and the webhook of
// docs/hooks.md are typed in as they stand there. The Go function is in package
// hooks, as an example that is run.
func TestTheWorkedExampleDecidesAlikeInEveryForm(t *testing.T) {
	t.Parallel()
	text := document(t, "docs/hooks.md")
	try := func(t *testing.T, file, kind string, env ...string) {
		t.Helper()
		db := storetest.New(t)
		env = append(env, "AGENTD_DATABASE_URL="+db.URL)
		s := newBashDir(t, env...)
		s.typed(t, file, `BeforeToolCall +1 +(validate|mutate) +no-cards(@\w+)? +`+kind+` `)
		p := start(t, options{dir: s.dir, env: append(env, "AGENTD_LISTEN=127.0.0.1:0")}, "serve")
		s.env = append(s.env, "AGENTD_URL="+p.await(t, &p.err, `msg=serving url=(\S+)`))
		s.typed(t, tour(t, text, "card-try"),
			`remembered under the key "name"`,
			`This is what I was told: This call was blocked and not run: No card number is written down\.`,
			`no-cards +\| memory_write +\| card +\| No card number is written down\.`,
			`no-cards +\| `+kind+` +\| ok +\| block +\| t *\n +no-cards +\| `+kind+` +\| ok +\| continue +\| t *\n\(2 rows\)`)
	}
	t.Run("AsARule", func(t *testing.T) {
		t.Parallel()
		try(t, tour(t, text, "card-rule"), "rule")
	})
	t.Run("AsAWebhook", func(t *testing.T) {
		t.Parallel()
		python := findPython(t)
		if python == "" {
			return
		}
		whole := document(t, "examples/webhook-python/receiver.py")
		decide := regexp.MustCompile(`(?s)def decide\(question\):\n.*?\n\n\n`)
		if !decide.MatchString(whole) {
			t.Fatal("the receiver has no decide")
		}
		own := filepath.Join(t.TempDir(), "receiver.py")
		program := "import re\n" + decide.ReplaceAllLiteralString(whole, tour(t, text, "card-decide")+"\n\n")
		if err := os.WriteFile(own, []byte(program), 0o600); err != nil {
			t.Fatal(err)
		}
		p := receiver(t, python, own, "0")
		file := tour(t, text, "card-webhook")
		const url = "http://127.0.0.1:8787/gate"
		if !strings.Contains(file, url) {
			t.Fatalf("%s is not in %s", url, file)
		}
		file = strings.Replace(file, url, p.await(t, &p.out, `listening on (\S+)`), 1)
		// The tests share the machine: two seconds may be short there.
		try(t, strings.Replace(file, "    id: no-cards\n", "    id: no-cards\n    timeout: 30s\n", 1), "webhook", "POLICY_SECRET="+webhookSecret)
	})
}
