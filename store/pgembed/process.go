package pgembed

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a child that dies with us. Its fields are fixed once started,
// except err, which may be read after done is closed.
type process struct {
	cmd  *exec.Cmd
	pid  int
	done chan struct{}
	err  error
}

// startProcess starts cmd and waits for it in a goroutine that ends with it.
// That goroutine keeps its OS thread for the child's whole life: the kernel
// sends the parent-death signal when the thread that forked ends, not the
// process, and a thread that is given back may be taken and ended by any
// goroutine that exits while locked to it. A healthy Postgres would shut down.
func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		defer close(p.done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		p.pid = cmd.Process.Pid
		started <- nil
		p.err = cmd.Wait()
	}()
	if err := <-started; err != nil {
		<-p.done
		return nil, err
	}
	return p, nil
}

// stop sends the signals in turn, each when the one before had its time and
// the last one without limit, and returns when the child is gone. It reports
// whether the first was enough.
func (p *process) stop(ctx context.Context, first os.Signal) bool {
	p.signal(first)
	select {
	case <-p.done:
		return true
	case <-ctx.Done():
	}
	p.signal(syscall.SIGQUIT)
	timer := time.NewTimer(immediateLimit)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.signal(syscall.SIGKILL)
		<-p.done
	}
	return false
}

// signal ignores that the child may be gone: then there is nothing to do.
func (p *process) signal(sig os.Signal) {
	_ = p.cmd.Process.Signal(sig)
}

// command builds a child of the account: its user, a bare environment, its own
// process group (a Ctrl-C in the terminal must reach agentd only, which still
// needs the database to finish its steps), output to the log, and death as
// told when we die.
func command(acct account, log *logFile, death syscall.Signal, path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...) //nolint:noctx // a context kills with SIGKILL and one process only; see stop and runTool
	cmd.Env = acct.env()
	cmd.Dir = "/"
	cmd.Stdout = log.file
	cmd.Stderr = log.file
	cmd.SysProcAttr = childAttr(acct.credential(), death)
	return cmd
}

// runTool runs a short-lived tool to its end, or kills its whole process group
// when ctx ends.
func runTool(ctx context.Context, cmd *exec.Cmd) error {
	p, err := startProcess(cmd)
	if err != nil {
		return err
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		_ = syscall.Kill(-p.pid, syscall.SIGKILL)
		<-p.done
		return ctx.Err()
	}
}
