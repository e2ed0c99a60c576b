package storetest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		// victim chooses among parent and child.
		victim func(parent, child int) int
		signal syscall.Signal
		mess   bool // files may be left, for the next Start of some binary to remove
	}{
		{"AfterTheParentIsKilled", func(parent, _ int) int { return parent }, syscall.SIGKILL, false},
		{"AfterTheBinaryIsInterrupted", func(_, child int) int { return child }, syscall.SIGINT, false},
		{"AfterTheBinaryIsKilled", func(_, child int) int { return child }, syscall.SIGKILL, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			parent := exec.Command(os.Args[0])
			parent.Env = append(os.Environ(), roleVariable+"=parent")
			stdout, err := parent.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := parent.Start(); err != nil {
				t.Fatal(err)
			}
			var child, postmaster int
			var dataDir string
			lines := bufio.NewScanner(stdout)
			for dataDir == "" && lines.Scan() {
				_, _ = fmt.Sscanf(lines.Text(), "ready %d %d %s", &child, &postmaster, &dataDir)
			}
			if dataDir == "" {
				t.Fatal("the child did not start")
			}
			family := append([]int{child, postmaster}, childrenOf(t, postmaster)...)
			if len(family) < 5 {
				t.Fatalf("saw only the processes %v", family)
			}
			if err := syscall.Kill(test.victim(parent.Process.Pid, child), test.signal); err != nil {
				t.Fatal(err)
			}
			// Nobody tells us of the end of a process that is not our child.
			tick, deadline := time.NewTicker(10*time.Millisecond), time.After(time.Minute)
			defer tick.Stop()
			for left := living(family); len(left) > 0; left = living(left) {
				select {
				case <-tick.C:
				case <-deadline:
					t.Fatalf("processes %v are left after a minute, of child %d and postmaster %d", left, child, postmaster)
				}
			}
			// Its output pipe was the child's too: it is closed when all are gone.
			for lines.Scan() {
				t.Log(lines.Text())
			}
			_ = parent.Wait() // it was killed, or its child failed
			if _, err := os.Stat(filepath.Dir(dataDir)); !test.mess && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is left: %v", filepath.Dir(dataDir), err)
			}
			if err := os.RemoveAll(filepath.Dir(dataDir)); err != nil {
				t.Error(err)
			}
		})
	}
}

func childrenOf(t *testing.T, pid int) (children []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if _, ppid, ok := stat(child); ok && ppid == pid {
			children = append(children, child)
		}
	}
	return children
}

// living leaves out zombies: who adopted them has not looked yet.
func living(pids []int) (left []int) {
	for _, pid := range pids {
		if state, _, ok := stat(pid); ok && state != "Z" && state != "X" {
			left = append(left, pid)
		}
	}
	return left
}

func stat(pid int) (state string, ppid int, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, false
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	_, err = fmt.Sscan(rest, &state, &ppid)
	return state, ppid, err == nil
}
