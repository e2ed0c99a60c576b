package main

import (
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// TestTheObserversOfTheDocumentDoWhatItSays: its commands are typed in as they
// stand there, and its Go is the example of package stream, which is run.
func TestTheObserversOfTheDocumentDoWhatItSays(t *testing.T) {
	t.Parallel()
	text := document(t, "docs/observers.md")
	try := func(t *testing.T, part, script, listed string, patterns ...string) {
		t.Helper()
		t.Parallel()
		db := storetest.New(t)
		env := []string{"AGENTD_DATABASE_URL=" + db.URL, "AGENTD_SCRIPT=" + script}
		s := newBashDir(t, env...)
		s.typed(t, tour(t, text, part+"-file"), listed)
		p := start(t, options{dir: s.dir, env: append(env, "AGENTD_LISTEN=127.0.0.1:0")}, "serve")
		s.env = append(s.env, "AGENTD_URL="+p.await(t, &p.err, `msg=serving url=(\S+)`))
		s.typed(t, tour(t, text, part+"-try"), patterns...)
	}
	t.Run("ARefusalIsAskedAgain", func(t *testing.T) {
		try(t, "refusal", "refusing.json", `1 +refusals@1 +main +retry `,
			`(?s)Let me see\. I cannot \n.*Roses are red, and the log keeps its own\.`,
			` refusals +\| The answer reads like a refusal\. +\| +6 \| +21 \| retry +\| turn\.started\n`,
			`The user has been shown the part of it that you see`)
	})
	t.Run("WhatIsFoundIsTakenOut", func(t *testing.T) {
		try(t, "redact", "leaking.json", `(?s)1 +redact@1 +main .*2 +metrics@1 `,
			`Your key is \[removed\] and your order \[removed\]\.`,
			` redact +\| OnEnd +\| transform +\| \{reasoning,text\}\n metrics +\| OnEnd +\| continue `,
			`leaks *\n-+\n +0\n`)
	})
	t.Run("TheGoOfItIsRun", func(t *testing.T) {
		t.Parallel()
		if !strings.Contains(document(t, "hooks/stream/example_test.go"), tour(t, text, "mask-go")) {
			t.Error("the example of package stream is another one")
		}
	})
}
