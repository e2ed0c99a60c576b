package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

func TestSQLMayBeginWithAComment(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Unverified)
	commands := map[string][]string{"Builtin": {"psql", "--builtin"}}
	if _, err := exec.LookPath("psql"); err == nil {
		commands["Psql"] = []string{"psql"}
	}
	for name, command := range commands {
		for what, args := range map[string][]string{
			"Short":       {"-c", "-- which\nSELECT 40 + 2 AS n"},
			"ShortAtOnce": {"-c-- which\nSELECT 40 + 2 AS n"},
			"Long":        {"--command", "--which\nSELECT 40 + 2 AS n;"},
			"LongAtOnce":  {"--command=-- which\nSELECT 40 + 2 AS n;"},
			"AScript":     {"-c", "-- make it;\nCREATE TEMP TABLE x (n int);\n-- fill it\nINSERT INTO x VALUES (42);\n\n-- read it\nSELECT n FROM x; -- done"},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				code, out, said := runAgentd(t, options{env: []string{"AGENTD_DATABASE_URL=" + db.URL}}, append(command, args...)...)
				if code != 0 || !strings.Contains(out, "42\n(1 row)") {
					t.Errorf("exit code %d, said %q, printed %q", code, said, out)
				}
			})
		}
		t.Run(name+"/FromAPipe", func(t *testing.T) {
			t.Parallel()
			o := options{env: []string{"AGENTD_DATABASE_URL=" + db.URL}, stdin: strings.NewReader("-- one;\n\n-- two\nSELECT 40 +\n-- and\n2 AS n;\n-- the end\n")}
			if code, out, said := runAgentd(t, o, command...); code != 0 || !strings.Contains(out, "42\n(1 row)") {
				t.Errorf("exit code %d, said %q, printed %q", code, said, out)
			}
		})
		t.Run(name+"/Nothing", func(t *testing.T) {
			t.Parallel()
			if code, _, said := runAgentd(t, options{env: []string{"AGENTD_DATABASE_URL=" + db.URL}}, append(command, "-c")...); code != 2 || !strings.Contains(said, "SQL") {
				t.Errorf("exit code %d, said %q", code, said)
			}
		})
	}
}
