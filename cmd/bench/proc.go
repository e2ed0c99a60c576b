package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// What /proc tells, which is 0 on systems that have none: the figures are then
// left out.

// clockTicks per second, which Linux has the same everywhere.
const clockTicks = 100

type procStat struct {
	parent         int
	own, collected time.Duration // CPU of the process, and of children that have ended
}

func readStat(pid int) (procStat, bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return procStat{}, false
	}
	// The name in parentheses may hold anything.
	end := bytes.LastIndexByte(text, ')')
	fields := strings.Fields(string(text[end+1:]))
	if end < 0 || len(fields) < 15 {
		return procStat{}, false
	}
	parent, _ := strconv.Atoi(fields[1])
	ticks := func(i int) time.Duration {
		n, _ := strconv.ParseInt(fields[i], 10, 64)
		return time.Duration(n) * time.Second / clockTicks
	}
	return procStat{parent: parent, own: ticks(11) + ticks(12), collected: ticks(13) + ticks(14)}, true
}

// processCPU is what one process has used.
func processCPU(pid int) time.Duration {
	s, _ := readStat(pid)
	return s.own
}

// familyCPU is what a process and its children have used, those that have ended
// included.
func familyCPU(pid int) time.Duration {
	s, ok := readStat(pid)
	if !ok {
		return 0
	}
	sum := s.own + s.collected
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		if s, ok := readStat(child); ok && s.parent == pid {
			sum += s.own + s.collected
		}
	}
	return sum
}

// selfCPU is what this process has used.
func selfCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// memory is the resident memory of a process now, and at its highest, in MB.
func memory(pid int) (now, peak float64) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		kb, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
		switch name {
		case "VmRSS":
			now = kb / 1000 * 1.024
		case "VmHWM":
			peak = kb / 1000 * 1.024
		}
	}
	return now, peak
}

// loadAverage is how many threads wanted to run in the last minute, on average.
func loadAverage() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	load, _ := strconv.ParseFloat(first, 64)
	return load
}

// openFiles is how many a process may have.
func openFiles() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 256
	}
	return int(min(l.Cur, 1<<20))
}
