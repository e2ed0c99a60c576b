// Package proc runs processes of agentd for the programs that measure and break
// it.
package proc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Config says what to start. Of this process's environment only PATH and HOME
// are passed on: whatever else it says of agentd and of models does not count.
type Config struct {
	Binary string
	Args   []string
	Env    []string
	// Patience is how long it may take until it serves, and to leave.
	Patience time.Duration
	// Log gets all that it says; nil discards.
	Log io.Writer
}

// Process is a process that serves. Whoever started it must call Leave or Kill.
// It is safe for concurrent use.
type Process struct {
	cfg  Config
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended

	mu          sync.Mutex
	url, worker string
	said        []string // the last lines
}

var (
	servingLine = regexp.MustCompile(`msg=serving url=(\S+)`)
	workerLine  = regexp.MustCompile(`msg="worker takes jobs" worker=(\S+)`)
)

// keptLines is how much of what it said is part of an error.
const keptLines = 10

// Start returns once the process serves. It is killed when ctx ends, and when
// this process ends.
func Start(ctx context.Context, cfg Config) (*Process, error) {
	p := &Process{cfg: cfg, cmd: exec.CommandContext(ctx, cfg.Binary, cfg.Args...), done: make(chan struct{})}
	DieWithUs(p.cmd)
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, cfg.Env...)
	out, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", cfg.Binary, err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cfg.Binary, err)
	}
	serving := make(chan struct{})
	go func() {
		defer close(p.done)
		p.read(out, serving)
		_ = p.cmd.Wait() // how it ended says nothing that it has not said itself
	}()
	limit := time.NewTimer(cfg.Patience)
	defer limit.Stop()
	select {
	case <-serving:
		return p, nil
	case <-p.done:
		err = errors.New("it ended")
	case <-limit.C:
		err = fmt.Errorf("it does not serve after %s", cfg.Patience)
	case <-ctx.Done():
		err = ctx.Err()
	}
	p.Kill()
	return nil, fmt.Errorf("start %s: %w%s", cfg.Binary, err, p.lastWords())
}

// read keeps the last lines until the process has ended.
func (p *Process) read(out io.Reader, serving chan<- struct{}) {
	if p.cfg.Log != nil {
		out = io.TeeReader(out, p.cfg.Log)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := lines.Text()
		p.mu.Lock()
		p.said = append(p.said, line)[max(0, len(p.said)+1-keptLines):]
		if m := workerLine.FindStringSubmatch(line); m != nil {
			p.worker = m[1]
		}
		m := servingLine.FindStringSubmatch(line)
		first := m != nil && p.url == ""
		if first {
			p.url = m[1]
		}
		p.mu.Unlock()
		if first {
			close(serving)
		}
	}
	_, _ = io.Copy(io.Discard, out) // behind a line that is too long
}

func (p *Process) lastWords() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.said) == 0 {
		return ""
	}
	return ": " + strings.Join(p.said, "\n")
}

// URL is where it serves.
func (p *Process) URL() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.url
}

// Worker is the id under which it takes jobs now, "" if it takes none.
func (p *Process) Worker() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.worker
}

// PID is its process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when it has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill is kill -9. It returns when the process has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// Signal sends a signal. One that has ended gets none.
func (p *Process) Signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", s, err)
	}
	return nil
}

// Leave asks it to end, and returns when it has.
func (p *Process) Leave() error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	limit := time.NewTimer(p.cfg.Patience)
	defer limit.Stop()
	select {
	case <-p.done:
		return nil
	case <-limit.C:
		return fmt.Errorf("process %d does not end after %s%s", p.PID(), p.cfg.Patience, p.lastWords())
	}
}
