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

// TestThePolicyOfTheREADME: its lines are typed into a shell, with a server where
// they are typed, and do what stands beside them.
func TestThePolicyOfTheREADME(t *testing.T) {
	t.Parallel()
	needBash(t)
	db := storetest.New(t)
	dir := t.TempDir()
	self, err := os.Executable()
	if err == nil {
		err = os.Mkdir(filepath.Join(dir, "bin"), 0o755)
	}
	if err == nil {
		err = os.Symlink(self, filepath.Join(dir, "bin", "agentd"))
	}
	if err != nil {
		t.Fatal(err)
	}
	env := command(options{env: []string{"AGENTD_DATABASE_URL=" + db.URL}}).Env
	typed := func(part string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "bash", "-c", "set -euo pipefail\n"+readmeTour(t, part))
		cmd.Dir, cmd.Env = dir, env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", part, err, out)
		}
		return string(out)
	}
	expect := func(out string, patterns ...string) {
		t.Helper()
		for _, pattern := range patterns {
			if !regexp.MustCompile(pattern).MatchString(out) {
				t.Errorf("no %q in\n%s", pattern, out)
			}
		}
	}

	expect(typed("policy-file"), `BeforeToolCall +1 +validate +no-rm-rf@\w+ +rule .* agentd.yaml:2\n`)
	p := start(t, options{dir: dir, env: []string{"AGENTD_DATABASE_URL=" + db.URL, "AGENTD_LISTEN=127.0.0.1:0"}}, "serve")
	env = append(env, "AGENTD_URL="+p.await(t, &p.err, `msg=serving url=(\S+)`))
	expect(p.err.String(), `hooks are loaded" config=agentd.yaml cause=start hooks=1 `)
	expect(typed("policy-try"),
		`This is what I was told: remembered under the key "to run"`,
		`This is what I was told: This call was blocked and not run: Nobody deletes everything here\.`,
		`no-rm-rf +\| memory_write +\| Nobody deletes everything here\.`, `\(1 row\)`)

	expect(typed("policy-test"), `^1 rule, 3 examples, 0 failures\n$`)
	p.await(t, &p.err, `hooks are loaded".*cause=file hooks=1 (hook_set=)`)
	path := filepath.Join(dir, "agentd.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	replaceConfig(t, path, strings.ReplaceAll(string(text), `"rm -rf"`, `"nothing"`))
	if code, out, _ := runAgentd(t, options{dir: dir}, "hooks", "test"); code != 1 || !strings.Contains(out, "agentd.yaml:7: an example of rule no-rm-rf\n    action: expected block, got continue\n") {
		t.Errorf("exit code %d, printed %s", code, out)
	}
}
