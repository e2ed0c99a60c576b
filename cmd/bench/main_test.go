package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"node", "plugin", keeperCommand}, os.Args[1]) { // the program starts itself
		main()
	}
	storetest.Main(m, storetest.RequireToolCalls)
}

// runBench runs the program.
func runBench(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return runBenchIn(t.Context(), args...)
}

func runBenchIn(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = exitCode(run(ctx, args, &out, &err), &err)
	return code, out.String(), err.String()
}

func TestWrongFlagsAreNamed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--nonsense"}, "unknown flag --nonsense"},
		{[]string{"--only=runs,nothing"}, `no part is called "nothing"; there are inserts, runs,`},
		{[]string{"--only=("}, "BENCH_ONLY: error parsing regexp"},
		{[]string{"--rounds=0"}, "have to be positive"},
		{[]string{"--time=0s"}, "have to be positive"},
		{[]string{"--agentd=/nowhere/agentd"}, "there is no agentd at /nowhere/agentd: run `make build`"},
		{[]string{"profile", "--clients=0"}, "have to be positive"},
	} {
		if code, _, said := runBench(t, test.args...); code != 2 || !strings.Contains(said, test.want) {
			t.Errorf("%q: code %d, said %q, want 2 and %q", test.args, code, said, test.want)
		}
	}
	if code, out, _ := runBench(t, "run", "--help"); code != 0 || !strings.Contains(out, "BENCH_TIME") {
		t.Errorf("help: code %d, said %q", code, out)
	}
}

func TestExitCodeSaysHowItEnded(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		code int
		want string
	}{
		{nil, 0, ""},
		{fmt.Errorf("runs: %w", context.Canceled), 130, "stopped before the end"},
		{errors.New("the disk is full"), 1, "bench: the disk is full"},
	} {
		var said bytes.Buffer
		if code := exitCode(test.err, &said); code != test.code || !strings.Contains(said.String(), test.want) {
			t.Errorf("%v: code %d, said %q, want %d and %q", test.err, code, said.String(), test.code, test.want)
		}
	}
}

// stub is an executable that counts as an agentd until it is started.
func stub(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agentd")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAShortRunPrintsATableWritesAFileAndLeavesNothing(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "bench.json")
	code, out, said := runBench(t, "--smoke", "--only=inserts,runs,ledger", "--json="+file, "--agentd="+stub(t, "exit 1"))
	if code != 0 {
		t.Fatalf("code %d, said %q", code, said)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "bench: ") || !strings.Contains(last, "commits/run at 1 ") {
		t.Errorf("the last line is %q", last)
	}
	for _, want := range []string{"inserts", "own SQL c=1", "runs ÷ own SQL", "fsyncs per run", "÷ without hooks", "note: inserts: by a loop over pgx"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in the table:\n%s", want, out)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil || !bytes.Contains(text, []byte(`"figure": "latency p50"`)) || !bytes.Contains(text, []byte(`"at_most": true`)) {
		t.Errorf("bench.json: %s, %v", text, err)
	}
	_, dir, _ := strings.Cut(strings.SplitN(said, "\n", 2)[0], " in ")
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory %s is left: %v", dir, err)
	}
}

func TestARunThatFailsCleansUpAndSaysWhere(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		limit string
		part  string
		want  string
	}{
		{"the binary is none", "5m", "idle", "idle: start "},
		{"out of time", "1ns", "inserts", "not done after 1ns"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			args := []string{"--smoke", "--json=", "--only=" + test.part, "--limit=" + test.limit, "--agentd=" + stub(t, "echo wrong >&2; exit 1")}
			code, _, said := runBench(t, args...)
			if code != 1 || !strings.Contains(said, test.want) {
				t.Errorf("code %d, said %q, want 1 and %q", code, said, test.want)
			}
			if _, dir, ok := strings.Cut(strings.SplitN(said, "\n", 2)[0], " in "); ok {
				if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("the directory %s is left: %v", dir, err)
				}
			}
		})
	}
}

func TestASignalEndsARun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code, _, said := runBenchIn(ctx, "--smoke", "--json=", "--agentd="+stub(t, "exit 1")); code != 130 || !strings.Contains(said, "stopped before the end") {
		t.Errorf("code %d, said %q", code, said)
	}
}

func TestProfilesAreWritten(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "profile")
	if code, _, said := runBench(t, "profile", "--dir="+dir, "--time=100ms", "--clients=4", "--streams=4"); code != 0 {
		t.Fatalf("code %d, said %q", code, said)
	}
	for _, name := range []string{"cpu.pprof", "allocs.pprof", "block.pprof", "mutex.pprof", "statements.txt", "paced.pprof", "observed.pprof"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "statements.txt"))
	if err != nil || !bytes.Contains(text, []byte("INSERT INTO agentd.events")) {
		t.Errorf("statements.txt: %s, %v", text, err)
	}
}
