package pluginhost_test

import (
	"bufio"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/pluginhost"
)

// leaving is the beginning of a script: it starts what is in another session, has
// another parent than the plugin, and ends on no signal that can be ignored.
const leaving = "trap '' TERM HUP INT; setsid sleep 1000 & (setsid sh -c 'sleep 1000 & sleep 1000' &) ; "

// What a plugin has left to others goes with its keeper, too, which nobody but the
// host can see to then. What has hidden from it holds nobody up.
func TestWhatAPluginHasLeftGoesWithItsKeeper(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *pluginhost.Config) { c.Limits.Deaths = 1 })
	hidden := filepath.Join(w.root, "hidden")
	install(t, w.root, "a", leaving+"setsid sh -c 'echo $$ > "+hidden+".new; mv "+hidden+".new "+hidden+"; exec env -i sleep 1000' & "+serves("a"))
	p := w.up(t)
	within(t, func() bool { return len(users(t, w.dir)) >= 2+4 })
	var pid []byte
	within(t, func() bool {
		var err error
		pid, err = os.ReadFile(hidden)
		return err == nil
	})
	t.Cleanup(func() { signal(t, syscall.SIGKILL, number(t, strings.TrimSpace(string(pid)))) })
	if err := syscall.Kill(parentOf(t, p.Status().PID), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.await(t, p, func(s pluginhost.Status) bool {
		return s.State == pluginhost.StateDown && strings.Contains(s.Reason, "not started again")
	})
	if left := users(t, w.dir); len(left) > 0 {
		t.Errorf("still there: %v", left)
	}
}

// Whoever ignores SIGTERM is killed a while later, with all that he has started.
func TestAPluginThatIgnoresSIGTERMIsKilled(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *pluginhost.Config) { c.Limits.Term = 50 * time.Millisecond })
	install(t, w.root, "a", leaving+strings.Replace(serves("a"), "exec ", "", 1)+" & wait; wait; sleep 1000")
	process, err := w.up(t).Process()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if cause := process.Cause(); cause == nil || cause.Error() != "it was ended by a signal: killed" {
		t.Errorf("it ended: %v", cause)
	}
	if left := users(t, w.dir); len(left) > 0 {
		t.Errorf("still there: %v", left)
	}
}

// How a host is killed: alone, with all of its keepers, or after them.
var deathsOfHosts = map[string]func(t *testing.T, host *os.Process, keepers []int){
	"the host": func(t *testing.T, host *os.Process, _ []int) {
		t.Helper()
		signal(t, syscall.SIGKILL, host.Pid)
	},
	"both at once": func(t *testing.T, host *os.Process, keepers []int) {
		t.Helper()
		signal(t, syscall.SIGSTOP, host.Pid) // so that it does nothing in between
		signal(t, syscall.SIGKILL, append(keepers, host.Pid)...)
	},
	"its keepers, and then the host": func(t *testing.T, host *os.Process, keepers []int) {
		t.Helper()
		signal(t, syscall.SIGKILL, keepers...)
		signal(t, syscall.SIGKILL, host.Pid)
	},
}

func signal(t *testing.T, s syscall.Signal, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if err := syscall.Kill(pid, s); err != nil {
			t.Fatal(err)
		}
	}
}

// A host that is killed leaves nothing that runs, and nothing that the next one does
// not clean up.
func TestNothingOutlivesAHostThatIsKilled(t *testing.T) {
	t.Parallel()
	for name, kill := range deathsOfHosts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := temp(t)
			root, dir := filepath.Join(base, "p"), filepath.Join(base, "r")
			if err := os.Mkdir(root, 0o755); err != nil {
				t.Fatal(err)
			}
			install(t, root, "a", leaving+serves("a"))
			install(t, root, "b", "(sleep 1000 &) ; "+strings.Replace(serves("b"), "exec ", "", 1))
			rounds := fullSize(1, 50)
			if name == "the host" {
				rounds = fullSize(2, 50)
			}
			for range rounds {
				killed(t, base, root, dir, kill)
			}
		})
	}
}

// killed starts a host with two plugins, kills it, and starts another one.
func killed(t *testing.T, base, root, dir string, kill func(*testing.T, *os.Process, []int)) {
	t.Helper()
	host := exec.Command("/proc/self/exe", "host", dir, root)
	host.Stderr = t.Output()
	out, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var keepers []int
	for range 2 {
		if !lines.Scan() {
			t.Fatal("the host has not started", lines.Err(), host.Wait())
		}
		keepers = append(keepers, parentOf(t, number(t, lines.Text())))
	}
	within(t, func() bool { return len(users(t, base)) >= 1+2*2+4+1 })
	kill(t, host.Process, keepers)
	_ = host.Wait() // it was killed
	next, err := pluginhost.New(pluginhost.Config{Dir: dir, Keeper: keeper, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Greet: greet, Limits: pluginhost.Limits{Kill: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 || filepath.Join(dir, entries[0].Name()) != filepath.Dir(next.SocketDir()) {
		t.Errorf("left: %v, %v", entries, err)
	}
	if sockets, err := os.ReadDir(next.SocketDir()); err != nil || len(sockets) > 0 {
		t.Errorf("left: %v, %v", sockets, err)
	}
	if left := users(t, base); len(left) > 0 {
		t.Errorf("still there: %v", left)
	}
	if err := next.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestWhatAPluginSendsTakesLittleMemory: much of it, at any time and by any way.
//
//nolint:paralleltest // it looks at the memory of the process
func TestWhatAPluginSendsTakesLittleMemory(t *testing.T) {
	const most, long = 6 << 20, "10000000"
	flood := strconv.Itoa(fullSize(3_000_000, 10_000_000))
	w := setup(t)
	install(t, w.root, "a", "head -c "+flood+" /dev/zero | tr '\\0' x; head -c "+flood+" /dev/zero >&2; "+serves("a"))
	before := held()
	p := w.up(t)
	for what, does := range map[string]func() error{
		"prints":             func() error { _, _, err := call(t, p, "print", flood); return err },
		"answers much":       func() error { _, _, err := call(t, p, "big", long); return refused(err) },
		"is wrong at length": func() error { _, _, err := call(t, p, "fail", long); return refused(err) },
	} {
		done := make(chan error, 1)
		go func() { done <- does() }()
		top := int64(0)
		for going := true; going; {
			select {
			case err := <-done:
				going = false
				if err != nil {
					t.Errorf("%s: %v", what, err)
				}
			default:
			}
			top = max(top, held()-before)
		}
		t.Logf("while it %s: %d KiB", what, top>>10)
		if top > most {
			t.Errorf("while it %s the host has %d bytes more than before", what, top)
		}
	}
	if _, said, err := call(t, p, "say", "1"); err != nil || said != "1" {
		t.Errorf("it says %q, %v", said, err)
	}
}

// refused wants an error.
func refused(err error) error {
	if err == nil {
		return errors.New("it was taken")
	}
	return nil
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// held is how much the process has that is not garbage, in bytes.
func held() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
