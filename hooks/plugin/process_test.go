package plugin_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/plugintest"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

func TestAPluginMayPrintBeforeTheHandshakeAndMuchBehindIt(t *testing.T) {
	t.Parallel()
	p, _ := plugintest.Bootstrapped(t, os.Args[0], roleVariable+"=prints")
	flood := 2 << 20 // more than any buffer on the way takes
	if os.Getenv("AGENTD_FULL_SIZE") != "" {
		flood = 10 << 20
	}
	if _, err := answer(t, p, wire.BeforeExecute, hooks.BeforeExecute{Turn: flood}); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(p.Printed.String(), "hello from init\nand no end of line") {
		t.Errorf("it printed %.100q", p.Printed)
	}
	within(t, func() bool { return p.Printed.Bytes() >= 4*flood })
	if _, err := answer(t, p, wire.BeforeExecute, hooks.BeforeExecute{}); err != nil {
		t.Errorf("asked again: %v", err)
	}
}

func TestAPanicIsAnAnswerAndThePluginStays(t *testing.T) {
	t.Parallel()
	p, _ := plugintest.Bootstrapped(t, os.Args[0], roleVariable+"=panics")
	_, err := answer(t, p, wire.BeforeExecute, hooks.BeforeExecute{Turn: 1})
	var f *hooks.Failure
	if !errors.As(err, &f) || f.Outcome != hooks.OutcomePanic || f.Err.Error() != "secret-0123" {
		t.Errorf("%v", err)
	}
	if a, err := answer(t, p, wire.BeforeExecute, hooks.BeforeExecute{Turn: 2}); err != nil || a.Action != hooks.ActionContinue {
		t.Errorf("asked again: %+v, %v", a, err)
	}
	within(t, func() bool { return strings.Contains(p.Printed.String(), "panic in BeforeExecute") })
	if said := p.Printed.String(); strings.Contains(said, "secret-0123") {
		t.Errorf("it printed %q", said)
	}
}

func TestSIGTERMEndsAPluginAfterTheCallsThatAreUnderWay(t *testing.T) {
	t.Parallel()
	p, _ := plugintest.Bootstrapped(t, os.Args[0], roleVariable+"=slow")
	stream, err := p.ExecuteTool(t.Context(), &pluginv1.ExecuteToolRequest{Tool: "wait"})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := stream.Recv(); err != nil || m.GetProgress().GetText() != "waiting" {
		t.Fatal(m, err)
	}
	p.Signal(t, syscall.SIGTERM)
	within(t, func() bool {
		h, err := p.Health(t.Context(), &pluginv1.HealthRequest{})
		return err == nil && !h.GetReady() && h.GetInFlight() == 1
	})
	if _, err := p.Notify(t.Context(), &pluginv1.NotifyRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("a call behind the signal: %v", err)
	}
	p.Signal(t, syscall.SIGUSR1)
	if m, err := stream.Recv(); err != nil || m.GetOutput().GetContent() != "done" {
		t.Errorf("the call that was under way: %v, %v", m, err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("behind it: %v", err)
	}
	p.AwaitExit(t)
}

func TestAPluginGoesWithItsHost(t *testing.T) {
	t.Parallel()
	host := exec.CommandContext(t.Context(), os.Args[0])
	host.Env = []string{roleVariable + "=host"}
	out, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	printed, err := host.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Wait() }) // it was killed
	line, err := bufio.NewReader(printed).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	handshake, err := bufio.NewReader(out).ReadString('\n')
	parts := strings.Split(handshake, "|")
	if err != nil || len(parts) != 6 {
		t.Fatalf("%q, %v", handshake, err)
	}
	if err := host.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	within(t, func() bool { return !alive(pid) })
	if _, err := os.Stat(parts[3]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its socket %s is still there: %v", filepath.Base(parts[3]), err)
	}
}

// TestAPluginMayPrintWhereNobodyReads: it comes to its end.
func TestAPluginMayPrintWhereNobodyReads(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = []string{roleVariable + "=talks", wire.CookieKey + "=" + wire.CookieValue}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || strings.Count(line, "|") != 5 {
		t.Errorf("%q, %v", line, err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	within(t, func() bool {
		_ = cmd.Process.Signal(syscall.SIGTERM) // the first may come too early
		return len(ended) > 0
	})
	if err := <-ended; cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("it ended with %v", err)
	}
}

func TestAPluginThatCannotBeUsedSaysWhy(t *testing.T) {
	t.Parallel()
	said, err := plugintest.StartError(t, os.Args[0], roleVariable+"=bad")
	if err == nil || !strings.Contains(said, `plugin Bad: the id "Bad" is not`) {
		t.Errorf("%v; it printed %q", err, said)
	}
}

// alive also takes one that nobody has waited for as dead.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// within waits for what no signal tells.
func within(t *testing.T, done func() bool) {
	t.Helper()
	deadline, tick := time.After(time.Minute), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline:
			t.Fatal("it has not happened")
		case <-tick.C:
		}
	}
}
