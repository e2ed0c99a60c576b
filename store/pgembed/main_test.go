package pgembed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-2ca4966b/agentd/proctest"
)

// helperEnv makes the test binary a process that starts a Postgres and waits
// to be killed. Its value is a helperConfig.
const helperEnv = "PGEMBED_TEST_HELPER"

type helperConfig struct {
	DataDir, BinDir string
	Throwaway       bool
	Outlive         bool // leave the postmaster behind when killed
	ChooseOnly      bool // print the data directory that would be used
}

// suiteDir holds everything that the tests make. Postgres's user can enter it,
// which is not so for t.TempDir when the tests run as root.
var suiteDir string

func TestMain(m *testing.M) {
	if value := os.Getenv(helperEnv); value != "" {
		proctest.DieWithParent()
		os.Exit(helper(value))
	}
	os.Exit(suite(m))
}

func suite(m *testing.M) int {
	dir, err := os.MkdirTemp("", "pgembed-test-")
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), os.Setenv("TMPDIR", dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	suiteDir = dir
	unwatch := proctest.WatchParent(func(why string) {
		fmt.Fprintln(os.Stderr, why)
		for _, pid := range postgresUnder(dir) {
			_ = exec.Command("kill", "-QUIT", pid).Run()
		}
		_ = os.RemoveAll(dir)
		os.Exit(1) //nolint:revive // nobody is left to return to
	})
	code := m.Run()
	unwatch()
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if left := postgresUnder(dir); len(left) > 0 {
		fmt.Fprintln(os.Stderr, "processes left behind:", left)
		code = 1
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

func helper(value string) int {
	var hc helperConfig
	err := json.Unmarshal([]byte(value), &hc)
	if err == nil && hc.ChooseOnly {
		return helperChoose()
	}
	h := thisHost()
	h.outlive = hc.Outlive
	var s *Server
	if err == nil {
		s, err = start(context.Background(), Config{DataDir: hc.DataDir, BinDir: hc.BinDir, Throwaway: hc.Throwaway}, h)
	}
	if err != nil {
		fmt.Fprintln(os.Stdout, "error", err)
		return 1
	}
	fmt.Fprintln(os.Stdout, "ready", s.PID(), s.SocketURL(""))
	<-s.Done() // until the test kills us
	fmt.Fprintln(os.Stdout, "error", s.Err())
	return 1
}

// startHelper runs a helper and returns the command, to be killed and waited for.
func startHelper(t *testing.T, hc helperConfig) (*exec.Cmd, *strings.Builder) {
	t.Helper()
	value, err := json.Marshal(hc)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), helperEnv+"="+string(value))
	errOut := &strings.Builder{}
	cmd.Stderr = errOut
	return cmd, errOut
}

// readyHelper starts a helper and returns once its Postgres accepts connections.
func readyHelper(t *testing.T, hc helperConfig) (cmd *exec.Cmd, postmaster int, url string) {
	t.Helper()
	cmd, errOut := startHelper(t, hc)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := fmt.Fscanln(out, new(string), &postmaster, &url); err != nil {
		t.Fatalf("helper: %v %s", err, errOut)
	}
	return cmd, postmaster, url
}

// newDir is a directory that Postgres's user can enter; it is gone after the test.
func newDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(suiteDir, "d-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// setup starts a server that is stopped after the test.
func setup(t *testing.T, cfg Config) *Server {
	t.Helper()
	if cfg.DataDir == "" && !cfg.Throwaway {
		cfg.DataDir = filepath.Join(newDir(t), "pg")
	}
	s, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t *testing.T, s *Server) {
	t.Helper()
	if err := s.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

func psqlPath(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("psql")
	if err != nil {
		t.Skip("needs psql")
	}
	return path
}

// query returns what psql prints for one statement, without headers.
func query(t *testing.T, url, sql string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), psqlPath(t), "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", sql, url).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", sql, err, out)
	}
	return strings.TrimSpace(string(out))
}

// patience is for what has no bound of its own, on a machine that does other
// things too.
const patience = time.Minute

// eventually polls for what other processes do, which nobody signals to us.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// postgresUnder lists the live processes whose working directory is at or
// below dir: every process of Postgres stays in its data directory.
func postgresUnder(dir string) []string {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	var found []string
	for _, link := range links {
		cwd, err := os.Readlink(link)
		if err != nil || (cwd != dir && !strings.HasPrefix(cwd, dir+"/")) {
			continue
		}
		status, _ := os.ReadFile(filepath.Join(filepath.Dir(link), "comm"))
		if strings.Contains(string(status), "postgres") {
			found = append(found, filepath.Base(filepath.Dir(link)))
		}
	}
	return found
}

func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
