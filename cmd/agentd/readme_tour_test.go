package main

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// readmeTour is the block of code in a part of the README.
func readmeTour(t *testing.T, part string) string {
	t.Helper()
	return tour(t, document(t, "README.md"), part)
}

// tour is the block of code in a part of a document, which must not be empty.
func tour(t *testing.T, text, part string) string {
	t.Helper()
	m := regexp.MustCompile("(?s)<!-- " + part + ":begin -->\n```[a-z]+\n(.*\n)```\n<!-- " + part + ":end -->").FindStringSubmatch(text)
	if len(m) == 0 || strings.TrimSpace(m[1]) == "" {
		t.Fatalf("there is no %s", part)
	}
	return m[1]
}

// readmeBash runs a tour with the server at url in place of that of `make run`.
func readmeBash(t *testing.T, tour, url string, env ...string) string {
	t.Helper()
	const documented = "http://127.0.0.1:8080"
	if !strings.Contains(tour, documented) {
		t.Fatalf("the tour does not go to %s", documented)
	}
	// A person sees a refusal; here it has to fail.
	const strict = "set -euo pipefail\ncurl() { command curl --fail-with-body --max-time 60 \"$@\"; }\n"
	cmd := exec.Command("bash", "-c", strict+strings.ReplaceAll(tour, documented, url))
	cmd.Dir, cmd.Env = t.TempDir(), append([]string{"PATH=" + os.Getenv("PATH")}, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// needBash skips a test whose tour cannot be made here.
func needBash(t *testing.T) {
	t.Helper()
	for _, tool := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("there is no %s", tool)
		}
	}
}

func TestToursOfTheREADME(t *testing.T) {
	t.Parallel()
	needBash(t)
	db := storetest.New(t)
	s := startServe(t, db, []string{"AGENTD_DENY_TOOLS=memory_clear"})
	// The SQL asks about a blocked call and an approval, too.
	if code := chat(t, s.url, strings.NewReader("forget everything\nforget my name\n")).wait(t); code != exitUndecided {
		t.Fatalf("chat: exit code %d", code)
	}

	out := readmeBash(t, readmeTour(t, "curl-tour"), s.url)
	// The whole stream, and once more what came after 10.
	for pattern, want := range map[string]int{
		`"runId":`: 1, `(?m)^id: 1$`: 1, `(?m)^id: 10$`: 1, `(?m)^id: 11$`: 2, `"type":"run.completed"`: 2, `"type":"tool.result"`: 2, `Tokyo`: -1,
	} {
		if got := len(regexp.MustCompile(pattern).FindAllString(out, -1)); got != want && (want >= 0 || got == 0) {
			t.Errorf("%s is there %d times, want %d:\n%s", pattern, got, want, out)
		}
	}

	statements := strings.SplitAfter(strings.TrimSpace(readmeTour(t, "sql-tour")), ";\n")
	if len(statements) < 3 {
		t.Errorf("only %d statements in SQL", len(statements))
	}
	for _, statement := range statements {
		code, out, said := runAgentd(t, options{env: []string{"AGENTD_DATABASE_URL=" + db.URL}}, "psql", "--builtin", "-c", statement)
		if code != 0 || said != "" || !strings.Contains(out, " row") || strings.Contains(out, "(0 rows)") {
			t.Errorf("exit code %d, said %q, printed %q:\n%s", code, said, out, statement)
		}
	}
}

// TestTheREADMETellsWhatTheModelSaw: what hooks made of the context, and what
// they added to it unseen, and not what was said.
func TestTheREADMETellsWhatTheModelSaw(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := newStack(t, db)
	s.checked(t, hooks.Hooks{
		BeforeRunStart: hooks.Named("calendar", "1", func(context.Context, hooks.BeforeRunStart) (hooks.BeforeRunStartResult, error) {
			return hooks.BeforeRunStartResult{Action: hooks.ActionTransform, Append: []hooks.HiddenMessage{{Role: hooks.RoleSystem, Text: "It is Sunday."}}}, nil
		}),
		TransformContext: hooks.Named("redact", "1", func(_ context.Context, in hooks.TransformContext) (hooks.TransformContextResult, error) {
			if in.Messages[0].Text() != "my key is 1234" {
				return hooks.TransformContextResult{Action: hooks.ActionContinue}, nil
			}
			messages := in.Messages
			messages[0].Parts = []hooks.Part{{Type: hooks.PartText, Text: "my key is [removed]"}}
			return hooks.TransformContextResult{Action: hooks.ActionTransform, Messages: &messages}, nil
		}),
	})
	saw := func(text string) string {
		t.Helper()
		if run := s.Advance(t, s.Start(t, s.Session(t), text)); run.Status != loop.RunCompleted {
			t.Fatalf("run %+v", run)
		}
		for _, statement := range strings.SplitAfter(strings.TrimSpace(readmeTour(t, "sql-tour")), ";\n") {
			if strings.Contains(statement, "what did the model see") {
				code, out, said := runAgentd(t, options{env: []string{"AGENTD_DATABASE_URL=" + db.URL}}, "psql", "--builtin", "-c", statement)
				if code != 0 || said != "" {
					t.Fatalf("exit code %d, said %q", code, said)
				}
				return out
			}
		}
		t.Fatal("the README does not ask it")
		return ""
	}
	if out := saw("my key is 1234"); !strings.Contains(out, "my key is [removed]") || !strings.Contains(out, "It is Sunday.") || strings.Contains(out, "1234") {
		t.Errorf("printed %s", out)
	}
	if out := saw("hello"); !strings.Contains(out, "hello") || !strings.Contains(out, "It is Sunday.") || strings.Contains(out, "removed") {
		t.Errorf("printed %s", out)
	}
}
