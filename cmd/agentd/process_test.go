package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/proctest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// patience is for what has no bound of its own, on a machine that does other
// things too.
const patience = 90 * time.Second

// process is an agentd that a test has started. It is killed when the test ends
// before it.
type process struct {
	cmd  *exec.Cmd
	out  output // stdout
	err  output // stderr
	done chan struct{}
}

// options of a process.
type options struct {
	dir   string
	env   []string // beside PATH, and nothing else
	stdin io.Reader
	// binary is another build of this one, "" for this one.
	binary string
}

func command(o options, args ...string) *exec.Cmd {
	binary, err := os.Executable()
	if err != nil {
		panic(err)
	}
	if o.binary != "" {
		binary = o.binary
	}
	cmd := exec.Command(binary, args...)
	cmd.Dir = o.dir
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), asAgentd + "=1",
		"GORACE=atexit_sleep_ms=0", // the race detector would make each process sleep for a second at its end
	}, o.env...)
	cmd.Stdin = o.stdin
	return cmd
}

// start starts agentd with args.
func start(t *testing.T, o options, args ...string) *process {
	t.Helper()
	return launch(t, "agentd "+strings.Join(args, " "), command(o, args...))
}

// launch starts a program, whose output is told if the test fails.
func launch(t *testing.T, name string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{cmd: cmd, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.reap(t, name)
	return p
}

// reap waits for a process that was started, and kills it when the test ends
// before it.
func (p *process) reap(t *testing.T, name string) {
	t.Helper()
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("%s: %s\nstdout: %s\nstderr: %s", name, p.cmd.ProcessState, p.out.String(), p.err.String())
		}
	})
}

// runAgentd runs agentd to its end.
func runAgentd(t *testing.T, o options, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	p := start(t, o, args...)
	return p.wait(t), p.out.String(), p.err.String()
}

// here runs a command to its end in the process of the test, which is a tenth of
// the work: for commands that ask a server or a database something and end. What
// is in the environment of a process has to be in the flags.
func here(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	err := run(t.Context(), args, strings.NewReader(""), &out, &errs)
	code = exitCode(err, &errs)
	return code, out.String(), errs.String()
}

// ofServer returns here for commands that ask the server at url, which they do for
// as long as that is patient; another --url in their arguments wins.
func ofServer(url, patience string) func(t *testing.T, args ...string) (code int, stdout, stderr string) {
	return func(t *testing.T, args ...string) (code int, stdout, stderr string) {
		t.Helper()
		args = slices.Concat(args, []string{"--patience", patience})
		if !slices.Contains(args, "--url") {
			args = append(args, "--url", url)
		}
		return here(t, args...)
	}
}

// ofDatabase returns here for commands that ask the database of a URL.
func ofDatabase(databaseURL string) func(t *testing.T, args ...string) (code int, stdout, stderr string) {
	return func(t *testing.T, args ...string) (code int, stdout, stderr string) {
		t.Helper()
		return here(t, append(slices.Clone(args), "--database-url", databaseURL)...)
	}
}

// wait returns the exit code; -1 for a process that a signal has ended.
func (p *process) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatal("the process does not end")
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// kill is kill -9.
func (p *process) kill(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGKILL)
	p.wait(t)
}

// await returns the first submatch of pattern in o, once it is there.
func (p *process) await(t *testing.T, o *output, pattern string) string {
	t.Helper()
	deadline := time.After(patience)
	re := regexp.MustCompile(pattern)
	for {
		text, changed := o.state()
		if m := re.FindStringSubmatch(text); m != nil {
			return m[len(m)-1]
		}
		select {
		case <-changed:
		case <-p.done:
			if m := re.FindStringSubmatch(o.String()); m != nil {
				return m[len(m)-1]
			}
			t.Fatalf("the process ended without %q", pattern)
		case <-deadline:
			t.Fatalf("no %q", pattern)
		}
	}
}

// output is what a process has written.
type output struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{}
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.changed != nil {
		close(o.changed)
		o.changed = nil
	}
	return o.text.Write(b)
}

func (o *output) String() string {
	text, _ := o.state()
	return text
}

// state also returns a channel that is closed when there is more.
func (o *output) state() (text string, changed <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.changed == nil {
		o.changed = make(chan struct{})
	}
	return o.text.String(), o.changed
}

// server is an `agentd serve` that is ready.
type server struct {
	*process
	url string
}

// address is where it listens.
func (s *server) address(t *testing.T) string {
	t.Helper()
	u, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// lasting is an address where a server can be started again after another one
// was there.
func lasting(t *testing.T) (env string) {
	t.Helper()
	return fmt.Sprintf("AGENTD_LISTEN=127.0.0.1:%d", storetest.Port(t))
}

// startServe starts a server on a free port over db; args and env come last.
func startServe(t *testing.T, db *storetest.DB, env []string, args ...string) *server {
	t.Helper()
	env = append([]string{"AGENTD_DATABASE_URL=" + db.URL, "AGENTD_LISTEN=127.0.0.1:0"}, env...)
	p := start(t, options{dir: t.TempDir(), env: env}, append([]string{"serve"}, args...)...)
	return &server{process: p, url: p.await(t, &p.err, `msg=serving url=(\S+)`)}
}

// chat starts a chat that reads messages from input.
func chat(t *testing.T, url string, input io.Reader, args ...string) *process {
	t.Helper()
	return start(t, options{dir: t.TempDir(), env: []string{"AGENTD_URL=" + url}, stdin: input}, append([]string{"chat"}, args...)...)
}

// script writes a script that answers every message with steps, one list per
// model call.
func script(t *testing.T, answers ...string) string {
	t.Helper()
	text := `{"scenarios": [{"name": "all", "match": {"default": true}, "answers": [{"steps": [` +
		strings.Join(answers, `]}, {"steps": [`) + `]}]}]}`
	path := filepath.Join(t.TempDir(), "script.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// gate is a file that a script waits for.
func gate(t *testing.T) (step string, open func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "open")
	return `{"wait_file": "` + path + `"}`, func() {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Error(err)
		}
	}
}

// openDir is a directory that the user whom Postgres runs as may enter.
func openDir(t *testing.T) string {
	t.Helper()
	return proctest.Dir(t, testDirPrefix)
}

// awaitRow polls until the query gives a value, which it returns: what it looks
// for is done by another process.
func awaitRow(t *testing.T, db *storetest.DB, query string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var text string
		err := db.Pool.QueryRow(ctx, query).Scan(&text)
		if err == nil {
			return text
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(errors.Join(ctx.Err(), err))
		}
	}
}

// completedTexts are the texts of all answers of the database, one line each.
func completedTexts(t *testing.T, db *storetest.DB) string {
	t.Helper()
	var text string
	err := db.Pool.QueryRow(t.Context(), `
		SELECT coalesce(string_agg(answer || E'\n', '' ORDER BY first), '') FROM (
			SELECT string_agg(part ->> 'text', '' ORDER BY e.seq, n) AS answer, min(e.at) AS first
			FROM agentd.events e, json_array_elements(e.payload -> 'parts') WITH ORDINALITY AS p (part, n)
			WHERE e.type = 'assistant.completed' AND part ->> 'type' = 'text'
			GROUP BY e.run_id) AS answers`).Scan(&text)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
