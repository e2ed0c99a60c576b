package proc_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/cmd/proc"
	"github.com/seed-2ca4966b/agentd/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }

// stub is a program that is a shell script. A file of its own could still be
// open for writing in another process that is just being started.
func stub(script string, args ...string) proc.Config {
	return proc.Config{Binary: "/bin/sh", Args: append([]string{"-c", script, "agentd"}, args...)}
}

func startIt(ctx context.Context, patience time.Duration, cfg proc.Config) (*proc.Process, error) {
	cfg.Patience = patience
	return proc.Start(ctx, cfg)
}

func TestAProcessThatDoesNotServeIsEndedAndQuoted(t *testing.T) {
	t.Parallel()
	if _, err := startIt(t.Context(), time.Minute, proc.Config{Binary: "/nowhere/agentd"}); err == nil || !strings.Contains(err.Error(), "start /nowhere/agentd") {
		t.Errorf("no binary: %v", err)
	}
	_, err := startIt(t.Context(), time.Minute, stub("echo which database? >&2; exit 1"))
	if err == nil || !strings.Contains(err.Error(), "it ended: which database?") {
		t.Errorf("it ends: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	t.Cleanup(cancel)
	if _, err := startIt(ctx, time.Minute, stub("exec sleep 60")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it says nothing: %v", err)
	}
	id := filepath.Join(t.TempDir(), "id")
	_, err = startIt(t.Context(), 300*time.Millisecond, stub("echo $$ > "+id+"; exec sleep 60"))
	if err == nil || !strings.Contains(err.Error(), "it does not serve after 300ms") {
		t.Errorf("it does not serve in time: %v", err)
	}
	if text, err := os.ReadFile(id); err == nil { // it has come that far
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			t.Errorf("process %d is left: %v", pid, err)
		}
	}
	c, err := startIt(t.Context(), time.Minute, stub(`
		echo 'level=INFO msg="worker takes jobs" worker=w1' >&2
		echo 'level=INFO msg=serving url=http://127.0.0.1:1' >&2
		exec sleep 60`))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Kill)
	if c.URL() != "http://127.0.0.1:1" || c.Worker() != "w1" || c.PID() <= 0 {
		t.Errorf("url %q, worker %q", c.URL(), c.Worker())
	}
}

func TestAProcessLeavesWhenItIsAskedAndIsHeard(t *testing.T) {
	t.Parallel()
	var heard strings.Builder
	cfg := stub(`trap 'echo bye >&2; exit 0' TERM; echo "msg=serving url=http://127.0.0.1:1 $1 $WHAT $HIDDEN" >&2; while :; do sleep 0.01; done`, "first")
	cfg.Env, cfg.Log = []string{"WHAT=second"}, &heard
	p, err := startIt(t.Context(), time.Minute, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Leave(); err != nil {
		t.Error(err)
	}
	<-p.Done()
	if want := "msg=serving url=http://127.0.0.1:1 first second \nbye\n"; heard.String() != want {
		t.Errorf("heard %q, want %q", &heard, want)
	}
	if err := p.Leave(); err != nil {
		t.Errorf("it has left: %v", err)
	}
	p.Kill()
}

func TestAProcessThatDoesNotLeaveIsQuoted(t *testing.T) {
	t.Parallel()
	p, err := startIt(t.Context(), 300*time.Millisecond, stub(`trap 'echo no >&2' TERM; echo msg=serving url=x >&2; while :; do sleep 0.01; done`))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	if err := p.Leave(); err == nil || !strings.Contains(err.Error(), "does not end after 300ms") {
		t.Errorf("it does not leave: %v", err)
	}
}
