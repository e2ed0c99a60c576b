package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// TestThePolicyOfTheREADME: its lines are typed into a shell, with a server where
// they are typed, and do what stands beside them.
func TestThePolicyOfTheREADME(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	sh := newBashDir(t, "AGENTD_DATABASE_URL="+db.URL)
	dir := sh.dir
	sh.typed(t, readmeTour(t, "policy-file"), `BeforeToolCall +1 +validate +no-rm-rf@\w+ +rule .* agentd.yaml:2\n`)
	p := start(t, options{dir: dir, env: []string{"AGENTD_DATABASE_URL=" + db.URL, "AGENTD_LISTEN=127.0.0.1:0"}}, "serve")
	sh.env = append(sh.env, "AGENTD_URL="+p.await(t, &p.err, `msg=serving url=(\S+)`))
	p.await(t, &p.err, `(hooks are loaded" config=agentd.yaml cause=start hooks=1 )`)
	sh.typed(t, readmeTour(t, "policy-try"),
		`This is what I was told: remembered under the key "to run"`,
		`This is what I was told: This call was blocked and not run: Nobody deletes everything here\.`,
		`no-rm-rf +\| memory_write +\| Nobody deletes everything here\.`, `\(1 row\)`)

	sh.typed(t, readmeTour(t, "policy-test"), `^1 rule, 3 examples, 0 failures\n$`)
	p.await(t, &p.err, `hooks are loaded".*cause=file hooks=1 .*(hook_set=)`)
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
