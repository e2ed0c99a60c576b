package pluginhost_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/pluginhost"
)

func TestAReloadReplacesPluginsUnderNobody(t *testing.T) {
	t.Parallel()
	gone := make(chan *pluginhost.Process, 10)
	w := setup(t, func(c *pluginhost.Config) { c.Gone = func(p *pluginhost.Process) { gone <- p } })
	if g := w.Acquire(); g != nil {
		t.Errorf("before anything is loaded there is generation %d", g.Number())
	}
	install(t, w.root, "a", serves("a"))
	old := w.up(t)
	first := w.Acquire()
	process, _, err := call(t, old, "say", "1")
	if err != nil {
		t.Fatal(err)
	}
	install(t, w.root, "a", "# another\n"+serves("a"))
	install(t, w.root, "b", serves("b"))
	if err := w.Reload(t.Context(), w.found(t)); err != nil {
		t.Fatal(err)
	}
	second := w.Acquire()
	if second.Number() != 2 || len(second.Plugins()) != 2 || second.Plugins()[0].Digest() == old.Digest() {
		t.Errorf("generation %d has %d plugins", second.Number(), len(second.Plugins()))
	}
	if again, said, err := call(t, old, "say", "2"); err != nil || said != "2" || again != process {
		t.Errorf("whoever has the old one hears %q, %v", said, err)
	}
	first.Release()
	if p := <-gone; p != process || p.Cause() == nil || p.Cause().Error() != "it ended with exit code 0" {
		t.Errorf("process %d has ended: %v", p.Number(), p.Cause())
	}
	w.await(t, old, func(s pluginhost.Status) bool { return s.State == pluginhost.StateDown && s.Reason == "it was ended" })
	second.Release()
	if _, said, err := call(t, second.Plugins()[1], "say", "3"); err != nil || said != "3" {
		t.Errorf("the new one says %q, %v", said, err)
	}
	within(t, func() bool {
		left, err := filepath.Glob(filepath.Join(w.dir, "h*", "g*"))
		return err == nil && len(left) == 1
	})
	if strings.Contains(w.log.String(), "level=ERROR") {
		t.Errorf("an error was logged: %s", w.log)
	}
}

func TestAReloadThatFailsChangesNothing(t *testing.T) {
	t.Parallel()
	w := setup(t)
	install(t, w.root, "a", serves("a"))
	old := w.up(t)
	for name, change := range map[string]func(){
		"one does not start": func() { install(t, w.root, "b", "exit 1") },
		"one cannot be read": func() { install(t, w.root, "b", "", "nonsense: 1") },
		"one is not its own": func() {
			if err := os.Symlink("/etc/passwd", filepath.Join(install(t, w.root, "b", ""), "x")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		change()
		if err := w.Reload(t.Context(), w.found(t)); err == nil || !strings.Contains(err.Error(), "b") {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.RemoveAll(filepath.Join(w.root, "b")); err != nil {
			t.Fatal(err)
		}
		g := w.Acquire()
		g.Release()
		if _, said, err := call(t, old, "say", "1"); g.Plugins()[0] != old || err != nil || said != "1" {
			t.Errorf("%s: the old one says %q, %v", name, said, err)
		}
	}
	bundles := w.found(t)
	install(t, w.root, "a", "", "protocol: 1")
	if err := w.Reload(t.Context(), bundles); err == nil || !strings.Contains(err.Error(), "stands twice") {
		t.Errorf("a manifest that has changed in the meantime: %v", err)
	}
	write(t, filepath.Join(w.root, "a", pluginhost.ManifestName), "id: b\nversion: x\nexec: run\nprotocol: 1\n", 0o644)
	if err := w.Reload(t.Context(), bundles); err == nil || !strings.Contains(err.Error(), "its manifest says now that it is b") {
		t.Errorf("an id that has changed in the meantime: %v", err)
	}
	within(t, func() bool {
		left, err := filepath.Glob(filepath.Join(w.dir, "h*", "g*"))
		return err == nil && len(left) == 1 && len(users(t, w.dir)) == 2
	})
}

func TestALoadThatIsGivenUpLeavesNothing(t *testing.T) {
	t.Parallel()
	w := setup(t)
	install(t, w.root, "a", "echo started; sleep 1000")
	ctx, cancel := context.WithCancel(t.Context())
	loaded := make(chan error, 1)
	go func() { loaded <- w.Start(ctx, w.found(t)) }()
	within(t, func() bool { return len(users(t, w.dir)) > 2 })
	cancel()
	if err := <-loaded; !errors.Is(err, context.Canceled) {
		t.Errorf("the load: %v", err)
	}
	if g, left := w.Acquire(), users(t, w.dir); g != nil || len(left) > 0 {
		t.Errorf("generation %v, processes %v", g, left)
	}
}

func TestPluginsThatDoNotStartAreDownAndTriedAgain(t *testing.T) {
	t.Parallel()
	w := setup(t)
	install(t, w.root, "a", "[ -e "+w.root+"/ready ] || exit 1; "+serves("a"))
	install(t, w.root, "b", serves("b"))
	install(t, w.root, "c", "", "nonsense: 1")
	err := w.Start(t.Context(), w.found(t))
	if err == nil || !strings.Contains(err.Error(), "plugin a: before it was ready it ended") || !strings.Contains(err.Error(), "plugin c: ") {
		t.Errorf("the error is %v", err)
	}
	g := w.Acquire()
	g.Release()
	if _, said, err := call(t, g.Plugins()[1], "say", "1"); err != nil || said != "1" {
		t.Errorf("the other one says %q, %v", said, err)
	}
	write(t, filepath.Join(w.root, "ready"), "", 0o644)
	w.await(t, g.Plugins()[0], func(s pluginhost.Status) bool { return s.State == pluginhost.StateUp || s.Deaths == 5 })
}

func TestAPluginThatAlwaysDiesIsLeftDown(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *pluginhost.Config) { c.Limits.Deaths = 3 })
	install(t, w.root, "a", serves("a"))
	p := w.up(t)
	for range 3 {
		w.await(t, p, func(s pluginhost.Status) bool { return s.State == pluginhost.StateUp })
		process, err := p.Process()
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(process.PID(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-process.Exited()
		w.await(t, p, func(s pluginhost.Status) bool { return s.PID != process.PID() })
	}
	s := w.await(t, p, func(s pluginhost.Status) bool {
		return strings.Contains(s.Reason, "not started again before the next load")
	})
	if s.Deaths != 3 || s.Starts != 3 || !strings.Contains(s.Reason, "killed") {
		t.Errorf("it is %+v", s)
	}
	if err := w.Reload(t.Context(), w.found(t)); err != nil {
		t.Errorf("loaded again: %v", err)
	}
}

// A process that comes back as something else decides nothing for those who know the
// first one.
func TestAPluginThatComesBackAsAnotherIsNotTaken(t *testing.T) {
	t.Parallel()
	version := 0
	for name, test := range map[string]struct {
		change func(t *testing.T, w *world)
		want   string
	}{
		"it says otherwise": {func(*testing.T, *world) { version++ }, "it says other things of itself"},
		"its copy has changed": {func(t *testing.T, w *world) {
			copies, err := filepath.Glob(filepath.Join(w.dir, "h*", "g1", "0"))
			if err != nil || len(copies) != 1 {
				t.Fatal(copies, err)
			}
			if err := os.Chmod(copies[0], 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(copies[0], "more"), "", 0o600)
		}, "its private copy has changed since it was made"},
		"its copy is gone": {func(t *testing.T, w *world) {
			copies, err := filepath.Glob(filepath.Join(w.dir, "h*", "g1", "0"))
			if err != nil || len(copies) != 1 {
				t.Fatal(copies, err)
			}
			if err := os.Rename(copies[0], copies[0]+".away"); err != nil {
				t.Fatal(err)
			}
		}, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t, func(c *pluginhost.Config) {
				c.Limits.Deaths = 2
				c.Greet = func(ctx context.Context, p *pluginhost.Process) (*pluginv1.BootstrapResponse, error) {
					answer, err := greet(ctx, p)
					if err == nil && name == "it says otherwise" {
						answer.Version = fmt.Sprint(version)
					}
					return answer, err
				}
			})
			install(t, w.root, "a", serves("a"))
			p := w.up(t)
			test.change(t, w)
			process, err := p.Process()
			if err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(process.PID(), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			w.await(t, p, func(s pluginhost.Status) bool {
				return s.State == pluginhost.StateDown && strings.Contains(s.Reason, test.want)
			})
		})
	}
}

func TestAPluginThatDoesNotEndIsKilled(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *pluginhost.Config) {
		c.Limits.Drain, c.Limits.Term, c.Limits.Hold = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	})
	install(t, w.root, "a", serves("a"))
	p := w.up(t)
	g := w.Acquire() // and never released
	process, err := p.Process()
	if err != nil {
		t.Fatal(err)
	}
	hanging := make(chan error, 1)
	go func() {
		_, _, err := call(t, p, "hang", "1")
		hanging <- err
	}()
	within(t, func() bool {
		h, err := pluginv1.NewPluginServiceClient(process.Conn()).Health(t.Context(), &pluginv1.HealthRequest{})
		return err == nil && h.GetInFlight() > 0
	})
	if err := w.Reload(t.Context(), w.found(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-hanging; err == nil {
		t.Error("it has answered")
	}
	w.await(t, p, func(s pluginhost.Status) bool { return s.State == pluginhost.StateDown })
	if err := process.Cause(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("it ended: %v", err)
	}
	if !strings.Contains(w.log.String(), "plugins are ended under runs that still have them") {
		t.Error("the log does not say that a run had it")
	}
	g.Release()
}

func TestTheEndOfAHostHasALimit(t *testing.T) {
	t.Parallel()
	w := setup(t)
	install(t, w.root, "a", "trap '' TERM; "+strings.Replace(serves("a"), "exec ", "", 1)+" & wait; wait; sleep 1000")
	p := w.up(t)
	w.Acquire() // and never released
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if s := p.Status(); s.State != pluginhost.StateDown {
		t.Errorf("it is %+v", s)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Errorf("closed twice: %v", err)
	}
}

func TestAPluginSaysHowItIs(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *pluginhost.Config) { c.Limits.HealthEvery = 10 * time.Millisecond })
	install(t, w.root, "sick", serves("sick"))
	p := w.up(t)
	w.await(t, p, func(s pluginhost.Status) bool { return s.State == pluginhost.StateUp })
	within(t, func() bool { return strings.HasPrefix(p.Status().Health, `it is not ready: bad \x1b[31m`) })
}

func TestManyReloadsUnderManyUsersBreakNoCall(t *testing.T) {
	t.Parallel()
	w := setup(t)
	install(t, w.root, "a", serves("a"))
	w.up(t)
	reloads, usersOf := fullSize(3, 100), fullSize(4, 100)
	done := make(chan struct{})
	var using sync.WaitGroup
	for range usersOf {
		using.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				g := w.Acquire()
				p := g.Plugins()[0]
				first, _, err := call(t, p, "say", "1")
				second, _, again := call(t, p, "say", "2")
				if err != nil || again != nil || first != second {
					t.Errorf("generation %d: %v, %v", g.Number(), err, again)
				}
				g.Release()
			}
		})
	}
	for range reloads {
		if err := w.Reload(t.Context(), w.found(t)); err != nil {
			t.Error(err)
		}
	}
	close(done)
	using.Wait()
}
