package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
)

const startLimit = 30 * time.Second

// child is a process of agentd that serves, or one of this program that does
// the same with a paced model. Whoever started it must call stop or kill.
type child struct {
	cmd *exec.Cmd
	url string
	// worker is the id under which it takes jobs, "" if it takes none.
	worker string
	done   chan struct{} // closed when it has ended

	mu   sync.Mutex
	said []string // the last lines
}

var (
	servingLine = regexp.MustCompile(`msg=serving url=(\S+)`)
	workerLine  = regexp.MustCompile(`msg="worker takes jobs" worker=(\S+)`)
)

// startAgentd starts `agentd serve` on a free port. Whatever the environment
// says of agentd and of models does not count.
func (b *bench) startAgentd(ctx context.Context, database string, env []string, args ...string) (*child, error) {
	env = append([]string{"AGENTD_DATABASE_URL=" + database, "AGENTD_LISTEN=127.0.0.1:0"}, env...)
	return startChild(ctx, startLimit, b.agentd, env, append([]string{"serve"}, args...)...)
}

// startNode starts this program as a process with a paced model.
func (b *bench) startNode(ctx context.Context, database string, args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	args = append([]string{"node", "--database-url=" + database, "--every=" + paceEvery.String()}, args...)
	return startChild(ctx, startLimit, self, nil, args...)
}

// startChild returns once the process serves. It is killed when ctx ends.
func startChild(ctx context.Context, patience time.Duration, binary string, env []string, args ...string) (*child, error) {
	c := &child{cmd: exec.CommandContext(ctx, binary, args...), done: make(chan struct{})}
	dieWithUs(c.cmd)
	c.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, env...)
	out, err := c.cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	serving := make(chan struct{})
	go func() {
		defer close(c.done)
		c.read(out, serving)
		_ = c.cmd.Wait() // how it ended says nothing that it has not said itself
	}()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-serving:
		return c, nil
	case <-c.done:
		err = errors.New("it ended")
	case <-limit.C:
		err = fmt.Errorf("it does not serve after %s", patience)
	case <-ctx.Done():
		err = ctx.Err()
	}
	c.kill()
	return nil, fmt.Errorf("start %s: %w%s", binary, err, c.lastWords())
}

// read keeps the last lines until the process has ended.
func (c *child) read(out io.Reader, serving chan<- struct{}) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := lines.Text()
		c.mu.Lock()
		c.said = append(c.said, line)[max(0, len(c.said)-9):]
		if m := workerLine.FindStringSubmatch(line); m != nil {
			c.worker = m[1]
		}
		m := servingLine.FindStringSubmatch(line)
		first := m != nil && c.url == ""
		if first {
			c.url = m[1]
		}
		c.mu.Unlock()
		if first {
			close(serving)
		}
	}
	_, _ = io.Copy(io.Discard, out) // behind a line that is too long
}

func (c *child) lastWords() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.said) == 0 {
		return ""
	}
	return ": " + strings.Join(c.said, "\n")
}

// workerID is the id under which it takes jobs now.
func (c *child) workerID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.worker
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// kill is kill -9.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may have ended
	<-c.done
}

// leave asks it to end, and returns when it has.
func (c *child) leave() error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("end a process: %w", err)
	}
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	select {
	case <-c.done:
		return nil
	case <-limit.C:
		return fmt.Errorf("a process does not end%s", c.lastWords())
	}
}

// client calls its API.
type client struct {
	http *http.Client
	runs agentdv1connect.RunServiceClient
}

func newClient(url string) client {
	h := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	return client{http: h, runs: agentdv1connect.NewRunServiceClient(h, url)}
}

func (c client) start(ctx context.Context, sessionID, text string) error {
	_, err := c.runs.StartRun(ctx, connect.NewRequest(&agentdv1.StartRunRequest{SessionId: sessionID, Text: text}))
	if err != nil {
		return fmt.Errorf("start a run: %w", err)
	}
	return nil
}

func (c client) close() { c.http.CloseIdleConnections() }
