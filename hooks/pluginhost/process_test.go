package pluginhost_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/pluginhost"
)

// fullSize is what a test that is made smaller for every day may take.
func fullSize(every, full int) int {
	if os.Getenv("AGENTD_FULL_SIZE") != "" {
		return full
	}
	return every
}

func TestAPluginIsStartedAskedAndEnded(t *testing.T) {
	t.Parallel()
	w := setup(t)
	dir := install(t, w.root, "a", serves("a"), "config: {limit: 10.50, words: [x, ~, true]}")
	p := w.up(t)
	digest, err := pluginhost.Bundle{Root: w.root, Path: dir}.Digest()
	if s := p.Status(); s.State != pluginhost.StateUp || s.PID == 0 || s.Starts != 1 || s.Reason != "" {
		t.Errorf("it is %+v", s)
	}
	if err != nil || p.Digest() != digest || p.Version() != "1" || p.Answer().GetId() != "a" {
		t.Errorf("digest %s, want %s, %v; version %s; it says %v", p.Digest(), digest, err, p.Version(), p.Answer())
	}
	if _, said, err := call(t, p, "say", `"hello"`); err != nil || said != `"hello"` {
		t.Errorf("it says %q, %v", said, err)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(w.dir, "h*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := p.Process(); err == nil || p.Status().State != pluginhost.StateDown {
		t.Errorf("behind its end: %v, %+v", err, p.Status())
	}
	if err := w.Reload(t.Context(), nil); !errors.Is(err, pluginhost.ErrClosed) {
		t.Errorf("loaded behind the end: %v", err)
	}
}

func TestAPluginGetsNothingThatItDoesNotAskFor(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *pluginhost.Config) {
		c.LookupEnv = func(name string) (string, bool) {
			v, ok := map[string]string{"PATH": os.Getenv("PATH"), "ASKED": "yes", "SECRET": "sk-test", "HOME": "/root", "BROKEN": "a\x00b"}[name]
			return v, ok
		}
	})
	install(t, w.root, "a", "ls -l /proc/$$/fd | sed 's/.* //' | grep -v pipe; readlink /proc/$$/fd/0; "+serves("a"), "env: [ASKED, ABSENT, BROKEN]")
	p := w.up(t)
	process, env, err := call(t, p, "env", "1")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(env) {
		name, _, ok := strings.Cut(line, "=")
		if ok && !strings.Contains(name, " ") && !strings.HasPrefix(name, "PLUGIN_") {
			names = append(names, name)
		}
	}
	for _, want := range []string{"PATH", "ASKED", "AGENTD_PLUGIN", "PYTHONDONTWRITEBYTECODE"} {
		if !strings.Contains("\n"+env, "\n"+want+"=") {
			t.Errorf("it has no %s: %v", want, names)
		}
	}
	for _, secret := range []string{"sk-test", "/root\n", "BROKEN"} {
		if strings.Contains(env+"\n", secret) {
			t.Errorf("it has %q: %v", secret, names)
		}
	}
	group, err := syscall.Getpgid(process.PID())
	if err != nil || group != process.PID() {
		t.Errorf("its group is %d, %v", group, err)
	}
	// Besides its standard ones it has no files but the script's own.
	within(t, func() bool { return strings.Count(w.log.String(), "/dev/null") == 2 })
	for line := range strings.Lines(w.log.String()) {
		if _, file, ok := strings.Cut(line, "stream=stdout line="); ok && strings.Contains(file, "/") &&
			!strings.Contains(file, "/dev/null") && !strings.Contains(file, "/run") && !strings.Contains(file, "/proc") {
			t.Errorf("it has the file %s", file)
		}
	}
}

// What does not start says why, with the plugin's name and what it has printed.
func TestAPluginThatDoesNotStartSaysWhy(t *testing.T) {
	t.Parallel()
	flood := fullSize(1<<20, 10<<20)
	for name, test := range map[string]struct {
		script string
		start  time.Duration
		change func(t *testing.T, dir string)
		want   []string
	}{
		"ends at once":            {script: "echo hello >&2; exit 4", want: []string{"plugin a: before it was ready it ended with exit code 4", "has printed: hello"}},
		"is killed":               {script: "kill -9 $$", want: []string{"before it was ready it was ended by a signal: killed"}},
		"prints garbage and ends": {script: `printf 'a\033[31m\0b\r\n\377'; exit 1`, want: []string{`has printed: a\x1b[31m\x00b\r\n\xff`}},
		"says nothing":            {script: "sleep 1000", start: 300 * time.Millisecond, want: []string{"it was not ready within 300ms"}},
		"closes its output":       {script: "exec 1>&-; sleep 1000", want: []string{"it has closed its standard output without saying where it listens"}},
		"prints no end of line": {
			script: fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x; exit 1", flood), want: []string{"exit code 1", "has printed: xxxxxxxxxx"},
		},
		"floods and says nothing": {script: "yes garbage", start: 3 * time.Second, want: []string{"it was not ready within 3s", `garbage\ngarbage`}},
		"speaks another version":  {script: "echo '1|99|unix|/x|grpc'; sleep 1000", want: []string{"incompatible API version", "99"}},
		"speaks another protocol": {script: `echo "1|1|unix|$PLUGIN_UNIX_SOCKET_DIR/x|netrpc"; sleep 1000`, want: []string{"netrpc"}},
		"listens elsewhere":       {script: "echo '1|1|tcp|10.0.0.1:80|grpc'; sleep 1000", want: []string{"it listens at tcp 10.0.0.1:80, and not at a socket in PLUGIN_UNIX_SOCKET_DIR"}},
		"has no certificate":      {script: `echo "1|1|unix|$PLUGIN_UNIX_SOCKET_DIR/x|grpc"; sleep 1000`, want: []string{"its handshake has no certificate"}},
		"is another":              {script: serves("b"), want: []string{"it says that it is b"}},
		"has no program": {script: "", change: func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "run")); err != nil {
				t.Fatal(err)
			}
		}, want: []string{"plugin a: run: no such file or directory"}},
		"cannot be executed": {script: "", change: func(t *testing.T, dir string) {
			if err := os.Chmod(filepath.Join(dir, "run"), 0o644); err != nil {
				t.Fatal(err)
			}
		}, want: []string{"plugin a: run: permission denied"}},
		"is no program": {script: "", change: func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "run"), "\x7fELF nonsense", 0o755)
		}, want: []string{"plugin a: run: exec format error"}},
		"forks and ends": {script: "setsid sleep 1000 & sleep 1000 & exit 0", want: []string{"before it was ready it ended with exit code 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t, func(c *pluginhost.Config) {
				c.Limits.Deaths = 1
				if test.start > 0 {
					c.Limits.Start = test.start
				}
			})
			dir := install(t, w.root, "a", test.script)
			if test.change != nil {
				test.change(t, dir)
			}
			err := w.Start(t.Context(), w.found(t))
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("the error is %v; want %q", err, want)
				}
			}
			if err != nil && (strings.ContainsAny(err.Error(), "\x1b\x00\n") || !utf8.ValidString(err.Error()) || len(err.Error()) > 4<<10) {
				t.Errorf("the error is %.8000q", err)
			}
			var start *pluginhost.StartError
			if !errors.As(err, &start) || start.Plugin != "a" {
				t.Errorf("the error is %T", err)
			}
			g := w.Acquire()
			defer g.Release()
			p := g.Plugins()[0]
			_, err = p.Process()
			var f *hooks.Failure
			if !errors.As(err, &f) || f.Outcome != hooks.OutcomeUnavailable || p.Answer() != nil {
				t.Errorf("asked: %v; it says %v", err, p.Answer())
			}
		})
	}
}

// What happens in a call is known as what it was, and nothing stays.
func TestAPluginThatDiesIsStartedAgain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		tool string
		want string
	}{
		"exits":          {"exit", "it ended with exit code 3"},
		"panics":         {"panic", "it ended with exit code 2"},
		"forks and dies": {"fork", "it was ended by a signal: killed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			install(t, w.root, "a", serves("a"))
			p := w.up(t)
			process, _, err := call(t, p, test.tool, "1")
			if test.tool == "fork" {
				if err != nil {
					t.Fatal(err)
				}
				within(t, func() bool { return len(users(t, w.dir)) >= 2+4 })
				if err := syscall.Kill(process.PID(), syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				err = status.Error(codes.Unavailable, "the connection is gone")
			}
			if f := process.Failure(err); f == nil || f.Outcome != hooks.OutcomeCrash || f.Code != "host.crash" || f.Err.Error() != test.want {
				t.Errorf("the failure is %v, of %v; want %s", f, err, test.want)
			}
			s := w.await(t, p, func(s pluginhost.Status) bool { return s.State == pluginhost.StateUp && s.Starts == 2 })
			if s.Deaths != 1 || s.PID == process.PID() {
				t.Errorf("it is %+v", s)
			}
			next, said, err := call(t, p, "say", "1")
			if err != nil || said != "1" || next.Number() <= process.Number() || process.Cause() == nil || next.Cause() != nil {
				t.Errorf("it says %q, %v", said, err)
			}
			within(t, func() bool { return len(users(t, w.dir)) == 2 })
			if !strings.Contains(w.log.String(), test.want) {
				t.Errorf("the log does not say %q", test.want)
			}
		})
	}
}

func TestAPluginThatIsKilledDuringACallIsACrash(t *testing.T) {
	t.Parallel()
	w := setup(t)
	install(t, w.root, "a", serves("a"))
	p := w.up(t)
	process, err := p.Process()
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, _, err := call(t, p, "hang", "1")
		failed <- err
	}()
	within(t, func() bool {
		_, said, err := call(t, p, "say", "1")
		return err == nil && said == "1"
	})
	if err := syscall.Kill(process.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if f := process.Failure(<-failed); f.Outcome != hooks.OutcomeCrash || !strings.Contains(f.Err.Error(), "killed") {
		t.Errorf("the failure is %v", f)
	}
}

func TestAPluginThatIsStoppedIsMissedAndStartedAgain(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *pluginhost.Config) {
		c.Limits.HealthEvery, c.Limits.Health, c.Limits.HealthMisses = 20*time.Millisecond, 500*time.Millisecond, 4
	})
	install(t, w.root, "a", serves("a"))
	p := w.up(t)
	_, _, _ = call(t, p, "stop", "1") // the answer may still have got out
	w.await(t, p, func(s pluginhost.Status) bool { return s.State == pluginhost.StateUp && s.Starts == 2 })
	if !strings.Contains(w.log.String(), "it has not answered Health 4 times in a row") {
		t.Error("the log does not say why")
	}
}

func TestHowMuchAPluginPrintsIsNoMatter(t *testing.T) {
	t.Parallel()
	w := setup(t)
	install(t, w.root, "a", "echo a line; printf 'and no end'; "+serves("a"))
	p := w.up(t)
	flood := fullSize(1<<20, 10<<20)
	for _, n := range []int{flood, 1 << 20} {
		if _, _, err := call(t, p, "print", fmt.Sprint(n)); err != nil {
			t.Fatal(err)
		}
	}
	if _, said, err := call(t, p, "say", "1"); err != nil || said != "1" {
		t.Errorf("it says %q, %v", said, err)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	log := w.log.String()
	for _, want := range []string{`line="a line"`, "line=\"and no end", "cut_bytes="} {
		if !strings.Contains(log, want) {
			t.Errorf("the log has no %s", want)
		}
	}
	if len(log) > 64<<10 {
		t.Errorf("the log has %d bytes", len(log))
	}
}

func TestWhatAPluginWithoutTheSDKPrintsIsLogged(t *testing.T) {
	t.Parallel()
	w := setup(t)
	install(t, w.root, "a", strings.Replace(serves("a"), " plugin ", " foreign ", 1))
	w.up(t)
	for _, want := range []string{`stream=stdout line="out of another program"`, `stream=stderr line="what is wrong with it"`} {
		within(t, func() bool { return strings.Contains(w.log.String(), want) })
	}
}

// TestTheLastThatAPluginPrintsIsLogged also of one that ends at once.
func TestTheLastThatAPluginPrintsIsLogged(t *testing.T) {
	t.Parallel()
	w := setup(t)
	install(t, w.root, "a", serves("a"))
	p := w.up(t)
	if _, _, err := call(t, p, "exit", `"good bye"`); err == nil {
		t.Error("it is still there")
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := `line="the last words: \"good bye\""`; !strings.Contains(w.log.String(), want) {
		t.Errorf("the log has no %s:\n%s", want, w.log)
	}
}

func TestAnAnswerThatIsTooLongIsNotRead(t *testing.T) {
	t.Parallel()
	w := setup(t)
	install(t, w.root, "a", serves("a"))
	p := w.up(t)
	process, _, err := call(t, p, "big", "9000000")
	if f := process.Failure(err); f == nil || f.Outcome != hooks.OutcomeOversize {
		t.Errorf("the failure is %v", f)
	}
	if _, said, err := call(t, p, "say", "1"); err != nil || said != "1" {
		t.Errorf("it says %q, %v", said, err)
	}
	if f := process.Failure(nil); f != nil {
		t.Errorf("no error is %v", f)
	}
	if f := process.Failure(status.Error(codes.DeadlineExceeded, "")); f.Outcome != hooks.OutcomeTimeout {
		t.Errorf("a late answer is %v", f)
	}
	if f := process.Failure(status.Error(codes.Unavailable, "")); f.Outcome != hooks.OutcomeUnavailable {
		t.Errorf("no answer of one that lives is %v", f)
	}
	if f := process.Failure(status.Error(codes.Canceled, "")); f.Outcome != hooks.OutcomeError {
		t.Errorf("a call that was given up is %v", f)
	}
	if f := process.Failure(errors.New("x")); f.Outcome != hooks.OutcomeError {
		t.Errorf("an error is %v", f)
	}
}

func TestAPluginHasTheMemoryThatItsManifestSays(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *pluginhost.Config) { c.Limits.Deaths = 1 })
	install(t, w.root, "a", "dd if=/dev/zero of=/dev/null bs=256M count=1", "memory: 64MiB")
	if err := w.Start(t.Context(), w.found(t)); err == nil || !strings.Contains(err.Error(), "memory exhausted") {
		t.Errorf("the error is %v", err)
	}
}

// Whoever kills a keeper kills the plugin.
func TestAPluginDoesNotOutliveItsKeeper(t *testing.T) {
	t.Parallel()
	w := setup(t)
	install(t, w.root, "a", serves("a"))
	p := w.up(t)
	process, err := p.Process()
	if err != nil {
		t.Fatal(err)
	}
	parent := parentOf(t, process.PID())
	// What is typed at a terminal, or sent to all processes of a service, is no reason.
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		if err := syscall.Kill(parent, s); err != nil {
			t.Fatal(err)
		}
	}
	if _, said, err := call(t, p, "say", "1"); err != nil || said != "1" {
		t.Errorf("it says %q, %v", said, err)
	}
	if err := syscall.Kill(parent, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-process.Exited()
	if err := process.Cause(); err == nil || err.Error() != "its keeper was ended" {
		t.Errorf("it ended: %v", err)
	}
	w.await(t, p, func(s pluginhost.Status) bool { return s.State == pluginhost.StateUp && s.Starts == 2 })
}

// parentOf is the keeper of a plugin.
func parentOf(t *testing.T, pid int) (parent int) {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err == nil {
		_, err = fmt.Sscan(strings.Fields(string(stat))[3], &parent)
	}
	if err != nil {
		t.Fatal(err)
	}
	return parent
}

func TestAKeeperThatDoesNothingIsKilled(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *pluginhost.Config) { c.Limits.Kill, c.Limits.Term = 10*time.Millisecond, 10*time.Millisecond })
	install(t, w.root, "a", serves("a"))
	p := w.up(t)
	if err := syscall.Kill(parentOf(t, p.Status().PID), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestWithoutAKeeperNothingStarts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		keeper []string
		want   string
	}{
		"none":           {[]string{"/nonexistent"}, "its keeper: "},
		"another thing":  {[]string{"/bin/true"}, "its keeper did not start it"},
		"one that hangs": {[]string{"/bin/sh", "-c", "exec sleep 1000"}, "it was not ready within 300ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t, func(c *pluginhost.Config) {
				c.Keeper, c.Limits.Deaths = test.keeper, 1
				if name == "one that hangs" {
					c.Limits.Start, c.Limits.Kill = 300*time.Millisecond, 10*time.Millisecond
				}
			})
			install(t, w.root, "a", serves("a"))
			if err := w.Start(t.Context(), w.found(t)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want %s", err, test.want)
			}
		})
	}
}
