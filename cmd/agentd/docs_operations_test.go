package main

import (
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// TestTheDocumentedDoctorFindsNothingWrong with a process that works.
func TestTheDocumentedDoctorFindsNothingWrong(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startServe(t, db, nil)
	commands := tour(t, document(t, "docs/operations.md"), "doctor")
	commands = strings.NewReplacer("agentd doctor", "bin/agentd doctor", "http://127.0.0.1:8080", s.url).Replace(commands)
	newBashDir(t, "AGENTD_DATABASE_URL="+db.URL).typed(t, commands,
		`(?m)^ok +schema +it is at version \d+`, `(?m)^ok +process +http://127\.0\.0\.1:\d+ is ready$`, `(?m)^\d+ checks, 0 failures, 3 warnings$`)
}

// TestTheRunbookHasEveryCheck that a doctor makes.
func TestTheRunbookHasEveryCheck(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startServe(t, db, nil)
	text := document(t, "docs/operations.md")
	_, d := doctor(t, options{dir: t.TempDir(), env: []string{"AGENTD_DATABASE_URL=" + db.URL}}, "--url", s.url)
	for _, c := range d {
		if !strings.Contains(text, "`"+c.Name+"`") && c.Name != "its plugins" {
			t.Errorf("docs/operations.md does not have %s", c.Name)
		}
	}
}
