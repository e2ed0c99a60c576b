package worker_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/loop/worker"
)

// childEnv makes the test binary a worker process on the database of that URL.
// Its tool "hold" never returns; the process lives until it is killed, or until
// its parent is gone.
const childEnv = "AGENTD_WORKER_TEST_CHILD"

func child(url string) int {
	parentGone := make(chan struct{})
	go func() {
		defer close(parentGone)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return complain(err)
	}
	hold := looptest.Tool{Name: "hold", Run: func(ctx context.Context, _ loop.ToolInput) (loop.ToolOutput, error) {
		fmt.Fprintln(os.Stdout, "entered")
		<-ctx.Done()
		return loop.ToolOutput{}, ctx.Err()
	}}
	p, err := open(ctx, pool, callsTool("hold"), hold)
	if err != nil {
		return complain(err)
	}
	cfg := p.config()
	short(&cfg)
	w, err := worker.New(cfg)
	if err != nil {
		return complain(err)
	}
	if err := w.Start(ctx); err != nil {
		return complain(err)
	}
	fmt.Fprintln(os.Stdout, "id", w.ID())
	<-parentGone
	return 2
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// subprocess is a child under the test's control.
type subprocess struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	id    string // of its worker
}

func startChild(t *testing.T, url string) *subprocess {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"="+url)
	cmd.Stderr = t.Output()
	if _, err := cmd.StdinPipe(); err != nil { // closed when this process ends
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &subprocess{cmd: cmd, lines: bufio.NewScanner(out)}
	t.Cleanup(s.kill)
	s.id = strings.TrimPrefix(s.says(t, "id "), "id ")
	return s
}

// says returns the child's next line, which begins with prefix.
func (s *subprocess) says(t *testing.T, prefix string) string {
	t.Helper()
	deadline := time.AfterFunc(limit, s.kill)
	defer deadline.Stop()
	if !s.lines.Scan() || !strings.HasPrefix(s.lines.Text(), prefix) {
		t.Fatalf("child said %q, want %q", s.lines.Text(), prefix)
	}
	return s.lines.Text()
}

// kill is kill -9.
func (s *subprocess) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}
