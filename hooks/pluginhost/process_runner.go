package pluginhost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-plugin/runner"

	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

// supervised is one process of a plugin with its keeper, as go-plugin sees it.
type supervised struct {
	keeper  *exec.Cmd
	order   keepOrder
	sockets string
	printed *output
	// limit is how long the keeper may take to end what there is, before it is killed.
	limit time.Duration

	// ours are the host's ends of the pipes, theirs the keeper's.
	control, status, stdout, stderr *os.File
	theirs                          []*os.File

	pid int
	// died is closed when the plugin has ended, gone when nothing is left of it, and
	// silent when it can print no more. Cause may be read behind died.
	died, gone, silent chan struct{}
	cause              error
	ending             sync.Once
	watching           sync.WaitGroup
}

var _ runner.Runner = (*supervised)(nil)

// newSupervised makes the pipes. The lock is handed to the keeper.
func newSupervised(keeper []string, label string, lock *os.File, order keepOrder, printed *output, limit time.Duration) (*supervised, error) {
	s := &supervised{
		order: order, printed: printed, limit: limit,
		died: make(chan struct{}), gone: make(chan struct{}), silent: make(chan struct{}),
	}
	s.keeper = exec.Command(keeper[0], append(keeper[1:], label)...) //nolint:noctx,gosec // it ends with the host, and is the host's own program
	s.keeper.Env = []string{"GOMAXPROCS=1"}
	s.keeper.Dir = "/"
	s.keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // what is typed at the host's terminal is not for it
	var err error
	pipe := func() (read, write *os.File) {
		if err == nil {
			read, write, err = os.Pipe()
		}
		return read, write
	}
	control, stdout, stderr, status := (*os.File)(nil), (*os.File)(nil), (*os.File)(nil), (*os.File)(nil)
	control, s.control = pipe()
	s.stdout, stdout = pipe()
	s.stderr, stderr = pipe()
	s.status, status = pipe()
	s.theirs = []*os.File{control, stdout, stderr, status}
	if err != nil {
		s.close(s.theirs...)
		s.close(s.control, s.status, s.stdout, s.stderr)
		return nil, err
	}
	s.keeper.Stdout, s.keeper.Stderr = stdout, stderr
	s.keeper.ExtraFiles = []*os.File{control, status, lock}
	return s, nil
}

func (s *supervised) close(files ...*os.File) {
	for _, f := range files {
		_ = f.Close() // some may be nil, or closed
	}
}

// Start implements runner.Runner.
func (s *supervised) Start(ctx context.Context) error {
	err := s.keeper.Start()
	s.close(s.theirs...)
	if err != nil {
		return fmt.Errorf("its keeper: %w", err)
	}
	reports, first := json.NewDecoder(s.status), keepReport{}
	// A keeper that is killed cannot end what it may have started. So one that is late
	// is told first, by whoever has called this.
	deadline, _ := ctx.Deadline()
	late := time.AfterFunc(time.Until(deadline)+s.limit, func() { _ = s.keeper.Process.Kill() })
	defer late.Stop()
	if err = json.NewEncoder(s.control).Encode(s.order); err == nil {
		err = reports.Decode(&first)
	}
	switch {
	case err != nil:
		err = fmt.Errorf("its keeper did not start it: %w", err)
	case first.Failed != "":
		err = fmt.Errorf("%s: %s", filepath.Base(s.order.Path), first.Failed)
	}
	if err != nil {
		s.kill()
		s.reap()
		return err
	}
	s.pid = first.PID
	var printing sync.WaitGroup
	printing.Go(func() {
		_, _ = io.Copy(s.printed.stream("stderr"), s.stderr) // it ends with the process
	})
	s.watching.Go(func() { s.watch(reports) })
	s.watching.Go(func() {
		printing.Wait()
		<-s.silent
		s.close(s.stdout, s.stderr)
	})
	return nil
}

// watch waits for the ends of the plugin and its keeper.
func (s *supervised) watch(reports *json.Decoder) {
	defer close(s.gone)
	var last keepReport
	if err := reports.Decode(&last); err != nil || !last.Ended {
		// The plugin is killed with its keeper by the kernel, and what it has started
		// here.
		_ = syscall.Kill(-s.pid, syscall.SIGKILL)
		s.cause = errors.New("its keeper was ended")
	} else {
		s.cause = last.cause()
	}
	close(s.died)
	_ = reports.Decode(&last) // the end of the keeper
	s.reap()
	s.close(s.status)
}

// reap waits for the end of the keeper, and does its work where it did not come to it.
func (s *supervised) reap() {
	_ = s.keeper.Wait() // how it has ended is in its state
	if !s.keeper.ProcessState.Exited() {
		killUsers(s.sockets)
		// Who has hidden from that may have what it prints to open without end.
		end := time.Now().Add(deathTime)
		_, _ = s.stdout.SetReadDeadline(end), s.stderr.SetReadDeadline(end)
	}
}

// keeperPID is the keeper of a process that runs, 0 if there is none.
func (s *supervised) keeperPID() int {
	if s.keeper == nil {
		return 0
	}
	return s.keeper.Process.Pid
}

// cause says how the plugin has ended.
func (r keepReport) cause() error {
	if r.Signal != 0 {
		return fmt.Errorf("it was ended by a signal: %v", syscall.Signal(r.Signal))
	}
	return fmt.Errorf("it ended with exit code %d", r.Code)
}

// signal sends the plugin a signal.
func (s *supervised) signal(sig syscall.Signal) {
	_ = json.NewEncoder(s.control).Encode(keepOrder{Signal: int(sig)}) // it may have gone
}

// kill kills the plugin and all that it has started. It does not wait.
func (s *supervised) kill() { s.ending.Do(func() { s.close(s.control) }) }

// end kills it, and returns when nothing is left. A keeper that does not do so within
// its limit is killed too. Without a process it closes what there is.
func (s *supervised) end() {
	s.kill()
	if s.pid == 0 {
		s.close(s.theirs...)
		s.close(s.status, s.stdout, s.stderr)
		return
	}
	slow := time.AfterFunc(s.limit, func() { _ = s.keeper.Process.Kill() })
	defer slow.Stop()
	<-s.gone
	s.watching.Wait()
}

// Wait implements runner.Runner.
func (s *supervised) Wait(context.Context) error {
	<-s.gone
	return nil
}

// Kill implements runner.Runner. It does nothing: go-plugin kills what has closed its
// output, and then nobody learns how it would have ended.
func (s *supervised) Kill(context.Context) error { return nil }

// Stdout implements runner.Runner: of what is printed go-plugin sees the handshake.
func (s *supervised) Stdout() io.ReadCloser {
	return io.NopCloser(&untilEnd{r: wire.Handshake(s.stdout, s.printed.stream("stdout")), end: s.silent})
}

// Stderr implements runner.Runner.
func (s *supervised) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// Name implements runner.Runner.
func (s *supervised) Name() string { return s.order.Path }

// ID implements runner.Runner.
func (s *supervised) ID() string { return strconv.Itoa(s.pid) }

// Diagnose implements runner.Runner.
func (s *supervised) Diagnose(context.Context) string { return "" }

// PluginToHost implements runner.Runner. A plugin that could name any address would
// have its host connect to it.
func (s *supervised) PluginToHost(network, address string) (string, string, error) {
	if network != "unix" || filepath.Dir(address) != s.sockets {
		return "", "", fmt.Errorf("it listens at %s %s, and not at a socket in PLUGIN_UNIX_SOCKET_DIR", network, escape([]byte(address)))
	}
	return network, address, nil
}

// HostToPlugin implements runner.Runner.
func (s *supervised) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}

// untilEnd closes end when there is nothing more to read. It is for one goroutine.
type untilEnd struct {
	r   io.Reader
	end chan struct{}
	was bool
}

// Read implements io.Reader.
func (u *untilEnd) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	if err != nil && !u.was {
		u.was = true
		close(u.end)
	}
	return n, err
}
