package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

func TestBuiltinPsql(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Unverified)
	for name, test := range map[string]struct {
		input string
		args  []string
		code  int
		out   string
		err   string
	}{
		"ATable": {
			args: []string{"-c", `SELECT 1 AS n, 'ü' AS "text", NULL AS nothing UNION ALL SELECT 22, E'日\n' , 'x' ORDER BY 1`},
			out:  " n  | text | nothing\n----+------+---------\n 1  | ü    | \n 22 | 日⏎  | x\n(2 rows)\n\n",
		},
		"SeveralStatements": {
			args: []string{"-c", `CREATE TEMP TABLE x (a int); INSERT INTO x VALUES (1); SELECT a FROM x;`},
			out:  "CREATE TABLE\nINSERT 0 1\n a\n---\n 1\n(1 row)\n\n",
		},
		"AWrongStatement": {args: []string{"-c", `SELECT nonsense`}, code: 1, err: `column "nonsense" does not exist`},
		"AFailureInTheMiddleOfTheRows": {
			args: []string{"-c", `SELECT 1 / (3 - n) FROM generate_series(1, 5) AS n`}, code: 1, err: "division by zero",
		},
		"ANotice": {args: []string{"-c", `DO $$ BEGIN RAISE NOTICE 'hear me'; END $$`}, out: "DO\n", err: "NOTICE:  hear me"},
		"Lines": {
			input: "SELECT 1 AS a\n  ;\nSELECT 2 AS b;\n\n\\d\nSELECT 3 AS c",
			out:   " a\n---\n 1\n(1 row)\n\n b\n---\n 2\n(1 row)\n\n c\n---\n 3\n(1 row)\n\n",
			err:   `\d is a command of psql`,
		},
		"LinesWithAWrongOne": {
			input: "SELECT nonsense;\nSELECT 2 AS b;\n\\q\nSELECT 3;\n", code: 1,
			out: " b\n---\n 2\n(1 row)\n\n", err: "ERROR:  column",
		},
		"TheLossOfTheConnection": {
			input: "SELECT pg_terminate_backend(pg_backend_pid());\nSELECT 1;\n", code: 1, err: "terminating connection",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options{env: []string{"AGENTD_DATABASE_URL=" + db.URL}, stdin: strings.NewReader(test.input)}
			code, out, said := runAgentd(t, o, append([]string{"psql", "--builtin"}, test.args...)...)
			if code != test.code || out != test.out || !strings.Contains(said, test.err) || test.err == "" && said != "" {
				t.Errorf("exit code %d, said %q, printed\n%swant\n%s", code, said, out, test.out)
			}
		})
	}
}

func TestBuiltinPsqlInATerminal(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Unverified)
	cmd := command(options{env: []string{"AGENTD_DATABASE_URL=" + db.URL}}, "psql", "--builtin")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: 90, Rows: 20})
	if err != nil {
		t.Fatal(err)
	}
	v := newVT(90, 20)
	seen := make(chan struct{})
	go func() {
		defer close(seen)
		_, _ = v.copyFrom(tty)
	}()
	if _, err := tty.WriteString("SELECT\n1 AS one;\nnonsense;\n\\q\n"); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	<-seen
	_ = tty.Close()
	screen := v.String()
	for _, want := range []string{"psql is not installed", "agentd=> ", "agentd-> ", " one\n-----\n 1\n(1 row)", "ERROR:  syntax error"} {
		if !strings.Contains(screen, want) {
			t.Errorf("no %q on the screen:\n%s", want, screen)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

func TestPsqlKeepsThePasswordOutOfItsArguments(t *testing.T) {
	t.Parallel()
	// A psql that says how it was called.
	bin := t.TempDir()
	fake := "#!/bin/sh\necho \"$@\"\necho \"$PGPASSWORD\"\n"
	if err := os.WriteFile(filepath.Join(bin, "psql"), []byte(fake), 0o755); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{
		"postgres://u:p%20w@h:1/d?pool_max_conns=3&sslmode=disable": "postgres://u@h:1/d?sslmode=disable -c SELECT 1\np w\n",
		"postgres://u@h/d": "postgres://u@h/d -c SELECT 1\n\n",
		"host=h dbname=d":  "host=h dbname=d -c SELECT 1\n\n",
	} {
		o := options{env: []string{"AGENTD_DATABASE_URL=" + url, "PATH=" + bin + ":/bin:/usr/bin"}}
		if code, out, said := runAgentd(t, o, "psql", "-c", "SELECT 1"); code != 0 || out != want {
			t.Errorf("exit code %d, said %q, printed %q, want %q", code, said, out, want)
		}
	}
}

func TestPsqlThatCannotBeRun(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "psql"), []byte("not a program"), 0o755); err != nil {
		t.Fatal(err)
	}
	o := options{env: []string{"AGENTD_DATABASE_URL=postgres://u@h/d", "PATH=" + bin}}
	if code, _, said := runAgentd(t, o, "psql"); code != 1 || !strings.Contains(said, filepath.Join(bin, "psql")) {
		t.Errorf("exit code %d, said %q", code, said)
	}
}

func TestPsqlLineIsAWayIn(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "psql"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	const url = "postgres://u:it's@h/d"
	quoted := `'postgres://u:it'\''s@h/d'`
	if _, err := exec.LookPath("psql"); err == nil {
		if got := psqlLine(url, bin); got != "psql "+quoted {
			t.Errorf("psqlLine = %s", got)
		}
		return
	}
	if got := psqlLine(url, bin); got != "'"+bin+"/psql' "+quoted {
		t.Errorf("psqlLine = %s", got)
	}
	if got := psqlLine(url, ""); !strings.HasSuffix(got, " psql --database-url "+quoted) {
		t.Errorf("psqlLine = %s", got)
	}
}
