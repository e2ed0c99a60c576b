package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// shell pastes a line into a shell.
func shell(t *testing.T, line string) string {
	t.Helper()
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), asAgentd + "=1"}
	cmd.Stdin = strings.NewReader("SELECT 'rows: ' || count(*) FROM agentd.sessions;\n")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v: %s", line, err, out)
	}
	return string(out)
}

// paste runs what a dev says that can be pasted.
func paste(t *testing.T, p *process) {
	t.Helper()
	url := p.await(t, &p.out, `(?m)^url: (http://127\.0\.0\.1:\d+)$`)
	if code, _ := get(t, url+"/readyz"); code != 200 {
		t.Errorf("url: %d", code)
	}
	line := p.await(t, &p.out, `(?m)^curl: (curl .*)$`)
	out := shell(t, line+` -w '\n%{http_code}'`)
	body, code, _ := strings.Cut(out, "\n")
	var session struct{ SessionID string }
	if err := json.Unmarshal([]byte(body), &session); err != nil || code != "200" || session.SessionID == "" {
		t.Errorf("curl: %s", out)
	}
	line = p.await(t, &p.out, `(?m)^psql: (.*)$`)
	if out := shell(t, line); !strings.Contains(out, "rows: ") || strings.Contains(out, "rows: 0") {
		t.Errorf("psql: %s", out)
	}
	if got := strings.Count(p.out.String(), "\n"); got != 3 {
		t.Errorf("printed %d lines: %s", got, p.out.String())
	}
}

func TestDevWithAPostgresOfItsOwn(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl")
	}
	dir := openDir(t)
	here := options{dir: dir}
	if code, _, said := runAgentd(t, here, "verify"); code != 1 || !strings.Contains(said, "No `agentd dev` runs in this directory") {
		t.Errorf("before it runs: exit code %d, said %q", code, said)
	}
	p := start(t, here, "dev", "--listen", "127.0.0.1:0")
	paste(t, p)

	url := p.await(t, &p.out, `url: (\S+)`)
	c := chat(t, url, strings.NewReader("remember that my name is Ada\nwhat do you remember?\n"))
	if code := c.wait(t); code != 0 || !strings.Contains(c.out.String(), `remembered under the key "name"`) || !strings.Contains(c.out.String(), "name: Ada") {
		t.Errorf("chat: exit code %d, printed %q", code, c.out.String())
	}
	for _, args := range [][]string{{"psql", "-c"}, {"psql", "--builtin", "-c"}} {
		code, out, said := runAgentd(t, here, append(args, "SELECT count(*) AS runs FROM agentd.runs")...)
		if code != 0 || !strings.Contains(out, "2\n(1 row)") {
			t.Errorf("%v: exit code %d, printed %q, said %q", args, code, out, said)
		}
	}
	code, out, _ := runAgentd(t, here, "verify")
	if code != 0 || !strings.Contains(out, "2 runs, 2 tool calls") || !strings.Contains(out, " 0 differences") {
		t.Errorf("verify: exit code %d, printed %q", code, out)
	}
	code, _, said := runAgentd(t, here, "dev", "--listen", "127.0.0.1:0")
	if code != 1 || !strings.Contains(said, "another agentd uses the data directory") {
		t.Errorf("a second one: exit code %d, said %q", code, said)
	}

	file := filepath.Join(dir, ".agentd", "pg.url")
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%s: %v, %v", file, info, err)
	}
	p.signal(t, syscall.SIGTERM)
	if code := p.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, gone := range []string{file, filepath.Join(dir, ".agentd", "pg", "postmaster.pid")} {
		if _, err := os.Stat(gone); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", gone, err)
		}
	}
	for _, secret := range []string{"Ada", "postgres://"} {
		if strings.Contains(p.err.String(), secret) {
			t.Errorf("%q is in the log: %s", secret, p.err.String())
		}
	}
}

// As root, Postgres runs as somebody else, who may not enter this directory.
func TestDevWherePostgresCannotGo(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	p := start(t, options{dir: dir}, "dev", "--listen", "127.0.0.1:0")
	p.await(t, &p.out, `psql: `)
	dataDir := p.await(t, &p.err, `Postgres accepts connections.* data_dir=(\S+)`)
	if os.Geteuid() == 0 {
		// Where a sweep finds it, too.
		if filepath.Dir(dataDir) != systemDirOf(systemData, dir) {
			t.Errorf("the data is in %s", dataDir)
		}
		t.Cleanup(func() {
			if err := os.RemoveAll(filepath.Dir(dataDir)); err != nil {
				t.Error(err)
			}
		})
	}
	if code, out, said := runAgentd(t, options{dir: dir}, "psql", "--builtin", "-c", "SELECT 1 AS one"); code != 0 || !strings.Contains(out, "one") {
		t.Errorf("psql: exit code %d, printed %q, said %q", code, out, said)
	}

	// And it ends with an error when its Postgres does, soon and in few words.
	var pid int
	if err := json.Unmarshal([]byte(p.await(t, &p.err, `Postgres accepts connections.* pid=(\d+)`)), &pid); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	if code := p.wait(t); code != 1 || !strings.Contains(p.err.String(), "exited unexpectedly") {
		t.Errorf("exit code %d, said %q", code, p.err.String())
	}
	// It takes a second. If it tried to save anything, it would take some of these.
	if took := time.Since(killed); took > stepLimit {
		t.Errorf("it took %s", took)
	}
	// Who was about to ask it says so once; nobody asks again and again.
	var cannot int
	for line := range strings.Lines(p.err.String()) {
		if strings.Contains(line, "failed to connect to") {
			cannot++
		}
	}
	if cannot > 5 {
		t.Errorf("%d lines say that it cannot connect: %s", cannot, p.err.String())
	}
}

func TestDevWithAPostgresOfYours(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl")
	}
	db := storetest.New(t, storetest.Empty)
	p := start(t, options{dir: openDir(t), env: []string{"AGENTD_DATABASE_URL=" + db.URL + "?pool_max_conns=7", "AGENTD_API_KEY=it's-secret"}},
		"dev", "--listen", "127.0.0.1:0")
	paste(t, p)
	p.signal(t, syscall.SIGINT)
	if code := p.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
