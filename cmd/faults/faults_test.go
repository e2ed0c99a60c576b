package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestWhateverIsKilledNothingIsLostAndNothingHappensTwice is the short version
// of `make faults`.
func TestWhateverIsKilledNothingIsLostAndNothingHappensTwice(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes long")
	}
	duration := "15s"
	if os.Getenv("AGENTD_FULL_SIZE") != "" {
		duration = "120s"
	}
	binary := filepath.Join(t.TempDir(), "agentd")
	build := exec.CommandContext(t.Context(), "go", "build", "-tags", "faults", "-o", binary, "../agentd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build agentd: %v\n%s", err, out)
	}
	var out, said bytes.Buffer
	keep := filepath.Join(os.TempDir(), "agentd-faults-kept")
	err := run(t.Context(), []string{
		"--duration=" + duration, "--users=6", "--seed=" + strconv.FormatInt(time.Now().Unix(), 10), "--agentd=" + binary, "--keep=" + keep,
	}, &out, &said)
	t.Logf("%s%s", &said, &out)
	if err != nil {
		t.Error(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "faults: seed ") {
		t.Errorf("the last line is %q, want the summary", last)
	}
	for _, counted := range []string{"SIGKILL", "runs", "events", "clients of events"} {
		if number(t, lines, counted) == 0 {
			t.Errorf("no %s: nothing was tested", counted)
		}
	}
	if err == nil {
		_ = os.Remove(keep) // another one may have kept something
	}
}

// number is the figure of a line.
func number(t *testing.T, lines []string, name string) int {
	t.Helper()
	for _, l := range lines {
		if rest, ok := strings.CutPrefix(l, name+" "); ok {
			n := 0
			for _, c := range strings.TrimSpace(rest) {
				if c < '0' || c > '9' {
					break
				}
				n = n*10 + int(c-'0')
			}
			return n
		}
	}
	t.Errorf("no line says %q", name)
	return 0
}

func TestARunThatIsInterruptedLeavesNothing(t *testing.T) {
	t.Parallel()
	keep := t.TempDir()
	fake := filepath.Join(t.TempDir(), "agentd")
	// It never says that it serves.
	if err := os.WriteFile(fake, []byte("#!/bin/sh\nexec sleep 60\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var said notice
	said.then = cancel
	var out bytes.Buffer
	err := run(ctx, []string{"--agentd=" + fake, "--keep=" + keep}, &out, &said)
	if !errors.Is(err, context.Canceled) || exitCode(err, &bytes.Buffer{}) != 130 {
		t.Errorf("ended with %v", err)
	}
	if left, err := os.ReadDir(keep); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// notice calls a function when something is written.
type notice struct{ then func() }

func (n *notice) Write(b []byte) (int, error) {
	n.then()
	return len(b), nil
}

func TestSettingsThatCannotWorkAreRefused(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--duration=0s":                      "DURATION has to be positive, and is 0s",
		"--kill-every=1ms":                   "KILL_EVERY has to be 200ms or more",
		"--users=0":                          "USERS_AT_ONCE has to be 1 or more",
		"--agentd=" + os.TempDir() + "/none": "run `make build-faults`",
		"--seed=x":                           "--seed",
	} {
		var said bytes.Buffer
		err := run(t.Context(), []string{args}, &said, &said)
		if code := exitCode(err, &said); code != 2 || !strings.Contains(said.String(), want) {
			t.Errorf("%s: exit code %d, %q; want 2 and %q", args, code, &said, want)
		}
	}
}
