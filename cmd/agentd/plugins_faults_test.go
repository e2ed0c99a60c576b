package main

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/pluginhost"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/loop/tool/builtin"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// pluginWorld is a host of plugins in the process of the test. The plugins are processes of
// their own.
type pluginWorld struct {
	pluginDirs
	t       *testing.T
	host    *pluginhost.Host
	service *pluginhost.Service
	// runs are those that plugins may ask about.
	runs    *pluginRuns
	changes chan struct{}
	log     *output

	mu   sync.Mutex
	seen map[string]bool
}

// newPluginWorld makes one over some directories. Nothing in it is in a hurry but what change
// asks for. At the end nothing may be left of it.
func newPluginWorld(t *testing.T, dirs pluginDirs, change ...func(*pluginhost.Limits)) *pluginWorld {
	t.Helper()
	w := &pluginWorld{pluginDirs: dirs, t: t, runs: &pluginRuns{}, changes: make(chan struct{}, 1), log: &output{}, seen: map[string]bool{}}
	log := slog.New(slog.NewTextHandler(w.log, nil))
	w.service = pluginhost.NewService(pluginhost.ServiceConfig{
		Runs: w.runs, Version: "test", Reserved: reservedTools(nil), CompileSchema: builtin.CompileSchema, Log: log,
	})
	command, err := keeper()
	if err != nil {
		t.Fatal(err)
	}
	limits := pluginhost.Limits{
		Start: time.Minute, HealthEvery: time.Hour, Deaths: math.MaxInt, Backoff: time.Millisecond, MaxBackoff: time.Millisecond,
		Drain: time.Minute, Term: time.Minute, Kill: time.Minute,
	}
	for _, f := range change {
		f(&limits)
	}
	w.host, err = pluginhost.New(pluginhost.Config{
		Dir: dirs.run, Keeper: command, Log: log, Greet: w.service.Greet, Gone: w.service.Gone, Limits: limits,
		Changed: func(*pluginhost.Plugin) {
			select {
			case w.changes <- struct{}{}:
			default:
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.service.Start(w.host.SocketDir()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	return w
}

// close ends the host, and looks for what is left. It may be called twice.
func (w *pluginWorld) close() {
	w.look()
	if err := w.host.Close(context.Background()); err != nil {
		w.t.Error(err)
	}
	w.service.Stop()
	if left := w.processes(); len(left) > 0 {
		w.t.Errorf("processes are left: %v", left)
	}
	for process := range w.seen {
		pid, _, _ := strings.Cut(process, "@")
		if name, state := identity(pid); name == process {
			w.t.Errorf("process %s is left: %s", pid, state)
		}
	}
	if left, err := filepath.Glob(filepath.Join(w.run, "h*")); err != nil || len(left) > 0 {
		w.t.Errorf("left: %q, %v", left, err)
	}
	if w.t.Failed() {
		w.t.Logf("the host's log: %.20000s", w.log)
	}
}

// look remembers which processes there are, of whose ends close wants to know: one
// that has ended and that nobody has waited for has no name.
func (w *pluginWorld) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for process := range w.processes() {
		w.seen[process] = true
	}
}

// processes are those that have been told of the directory, with their command lines.
func (w *pluginWorld) processes() map[string]string {
	w.t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[string]string{}
	for _, p := range procs {
		environ, _ := os.ReadFile(p + "/environ")
		cmdline, _ := os.ReadFile(p + "/cmdline")
		if !strings.Contains(string(environ)+string(cmdline), w.run+"/") {
			continue
		}
		if name, _ := identity(filepath.Base(p)); name != "" {
			out[name] = strings.ReplaceAll(string(cmdline), "\x00", " ")
		}
	}
	return out
}

// identity is a process by its number and when it has begun, and its state; "" is
// nothing. One that has ended and that nobody has waited for is there.
func identity(pid string) (name, state string) {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return "", ""
	}
	fields := strings.Fields(string(stat)[strings.LastIndexByte(string(stat), ')')+1:])
	const started = 19 // behind the name
	return pid + "@" + fields[started], fields[0]
}

// load starts what is in the directory.
func (w *pluginWorld) load() (*pluginhost.Caller, []*pluginhost.Plugin, error) {
	w.t.Helper()
	bundles, _ := pluginhost.Discover([]string{w.plugins})
	err := w.host.Start(w.t.Context(), bundles)
	g := w.host.Acquire()
	g.Release() // it is there until the next load
	w.look()
	return w.service.Caller(g), g.Plugins(), err
}

// await waits until a plugin has a status as it should be.
func (w *pluginWorld) await(t *testing.T, p *pluginhost.Plugin, is func(pluginhost.Status) bool) {
	t.Helper()
	late := time.After(patience)
	for !is(p.Status()) {
		select {
		case <-w.changes:
		case <-late:
			t.Fatalf("plugin %s is %+v", p.ID(), p.Status())
		}
	}
}

// inFlight is what a plugin says of how much it is at.
func inFlight(t *testing.T, p *pluginhost.Plugin) int {
	t.Helper()
	process, err := p.Process()
	if err != nil {
		t.Fatal(err)
	}
	h, err := pluginv1.NewPluginServiceClient(process.Conn()).Health(t.Context(), &pluginv1.HealthRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return int(h.GetInFlight())
}

// faultsOf is what is done to whom, and what the ledger has to say of it, in this order.
var faultsOf = map[string][][3]string{
	// What leaves the process as it is.
	"faulty": {
		{"error", "error", "hook.error"},
		{"panic", "panic", "hook.panic"},
		{"sleep", "timeout", ""}, // whoever is first says it
	},
	// Without the SDK.
	"raw": {
		{"no verdict", "malformed", "hook.malformed"},
		{"another gate's result", "malformed", pluginhost.CodeMalformed},
		{"unknown action", "malformed", "hook.malformed"},
		{"illegal action", "illegal_action", "hook.illegal_action"},
		{"no message", "malformed", pluginhost.CodeMalformed},
		{"five megabytes", "oversize", pluginhost.CodeOversize},
		{"an error of five megabytes", "error", "hook.error"},
		{"unavailable", "unavailable", pluginhost.CodeUnavailable},
		{"sleep", "timeout", pluginhost.CodeTimeout},
	},
	// What ends it.
	"mortal": {
		{"exit", "crash", pluginhost.CodeCrash},
		{"panic of the process", "crash", pluginhost.CodeCrash},
		{"kill -9", "crash", pluginhost.CodeCrash},
		{"memory", "crash", pluginhost.CodeCrash},
		{"fork and exec", "crash", pluginhost.CodeCrash},
		{"stop", "timeout", pluginhost.CodeTimeout}, // and it never goes on
	},
}

// TestAPluginThatFailsInAnyWayOpensNothing: real processes, and whatever they do while
// they are asked. The tool does not run, there is one row that says what has happened, and
// the model is told that the check failed. Runs beside, about which the plugin is not
// asked, do not notice, and in the end nothing is left.
func TestAPluginThatFailsInAnyWayOpensNothing(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := newStack(t, db)
	w := newPluginWorld(t, newPluginDirs(t), func(l *pluginhost.Limits) { l.Drain, l.Term = time.Second, time.Second })
	w.put(t, "faulty", "1", "faults")
	w.put(t, "raw", "1", "raw")
	w.put(t, "mortal", "1", "faults", "memory: "+fewMemory(t))
	caller, plugins, err := w.load()
	if err != nil {
		t.Fatal(err)
	}
	h := caller.Hooks()
	for _, p := range plugins {
		t.Run(p.ID(), func(t *testing.T) {
			t.Parallel()
			faults := faultsOf[p.ID()]
			for i, f := range faults {
				s.failsClosed(t, h, p.ID(), f)
				if last := i+1 == len(faults); p.ID() == "mortal" && !last {
					w.await(t, p, func(s pluginhost.Status) bool { return s.State == pluginhost.StateUp && s.Starts == i+2 })
				}
				w.look()
			}
			if p.ID() != "raw" {
				return
			}
			if n := inFlight(t, p); n != len(faults) {
				t.Errorf("it was asked %d times, about %d calls of its tools", n, len(faults))
			}
		})
	}
}

// failsClosed has a call of a tool about which the plugin is asked, with one beside it
// about which no plugin is.
func (s *stack) failsClosed(t *testing.T, h hooks.Hooks, id string, f [3]string) {
	t.Helper()
	beside := s.newPoliced(t, h, [2]string{toolBook, `{"zone":"CET"}`})
	beside.job = beside.Start(t, beside.Session(t), "go")
	ended := make(chan error, 1)
	go func() { ended <- beside.Engine.Advance(t.Context(), beside.job, loop.Holder{WorkerID: newID()}) }()
	p := s.newPoliced(t, h, [2]string{id + "_charge", fmt.Sprintf(`{"fault":%q}`, f[0])})
	if run := p.goes(); run.Status != loop.RunCompleted {
		t.Errorf("%s: the run is %s", f[0], run.Status)
	}
	p.wantClosed(s, id, f[0], hooks.KindPlugin, hooks.Outcome(f[1]))
	if code := rowsAt(t, s.db, p.job.SessionID, "reason_code"); f[2] != "" && !slices.Equal(code, f[2:]) {
		t.Errorf("%s: the code is %q; want %q", f[0], code, f[2])
	}
	if err := <-ended; err != nil {
		t.Errorf("%s: beside it: %v", f[0], err)
	}
	if run, ran := beside.Run(t, beside.job), beside.all(); run.Status != loop.RunCompleted || len(ran) != 1 {
		t.Errorf("%s: a run beside it is %s, its tool ran with %q", f[0], run.Status, ran)
	}
	if rows := rowsAt(t, s.db, beside.job.SessionID, "hook_id, gate"); len(rows) != 0 {
		t.Errorf("%s: about a run beside it there are the rows %q", f[0], rows)
	}
}

// fewMemory is a bit more than this program has at its start. The race detector has much
// that it does not use.
func fewMemory(t *testing.T) string {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmData:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%dGiB", kib>>20+2)
}

// TestAPluginThatPrintsMuchIsObeyed: how much it prints, and when, is no matter.
func TestAPluginThatPrintsMuchIsObeyed(t *testing.T) {
	t.Parallel()
	s := newStack(t, storetest.New(t))
	w := newPluginWorld(t, newPluginDirs(t))
	w.put(t, "faulty", "1", "faults")
	run := filepath.Join(w.plugins, "faulty", "run.sh")
	script, err := os.ReadFile(run)
	if err != nil {
		t.Fatal(err)
	}
	flooding := rounds(1<<20, 10<<20)
	loud := strings.Replace(string(script), "exec ", "echo a line; printf 'and no end'; head -c "+strconv.Itoa(flooding)+" /dev/zero; exec ", 1)
	if err := os.WriteFile(run, []byte(loud), 0o755); err != nil {
		t.Fatal(err)
	}
	caller, plugins, err := w.load()
	if err != nil {
		t.Fatal(err)
	}
	h := caller.Hooks()
	for _, does := range []string{"flood of stdout", "flood of stderr"} {
		done := filepath.Join(t.TempDir(), "done")
		p := s.newPoliced(t, h, [2]string{"faulty_charge", fmt.Sprintf(`{"fault":%q,"bytes":%d,"done":%q}`, does, flooding, done)})
		if run := p.goes(); run.Status != loop.RunCompleted || len(p.all()) != 0 || p.toldAt(1)[0].Content != "This call was blocked and not run: it prints" {
			t.Errorf("%s: the run is %s, the tool ran with %q, the model is told %+v", does, run.Status, p.all(), p.toldAt(1))
		}
		if rows := rowsAt(t, s.db, p.job.SessionID, "hook_id, action, outcome"); !slices.Equal(rows, []string{"faulty block ok"}) {
			t.Errorf("%s: ledger %q", does, rows)
		}
		if err := awaitFile(patient(t), done); err != nil {
			t.Fatal(err)
		}
	}
	p := s.newPoliced(t, h, [2]string{"faulty_charge", `{}`})
	if run := p.goes(); run.Status != loop.RunCompleted || len(p.all()) != 1 || plugins[0].Status().Starts != 1 {
		t.Errorf("the run is %s, the tool ran with %q, the plugin is %+v", run.Status, p.all(), plugins[0].Status())
	}
	if said := w.log.String(); !strings.Contains(said, `line="a line"`) || len(said) > 64<<10 {
		t.Errorf("the log has %d bytes: %.300s", len(said), said)
	}
}

// TestMoreQuestionsThanAPluginTakesAreNotAnswered: those that wait in vain close their
// gates, too.
func TestMoreQuestionsThanAPluginTakesAreNotAnswered(t *testing.T) {
	t.Parallel()
	s := newStack(t, storetest.New(t))
	w := newPluginWorld(t, newPluginDirs(t), func(l *pluginhost.Limits) { l.Drain, l.Term = time.Second, time.Second })
	w.put(t, "faulty", "1", "faults")
	caller, plugins, err := w.load()
	if err != nil {
		t.Fatal(err)
	}
	h := caller.Hooks()
	ctx, cancel := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		busy.Wait()
	})
	const many = 64
	for range 2 * many {
		busy.Go(func() {
			in := hooks.BeforeToolCall{Turn: 1, Revision: 1, Call: hooks.ToolCall{ID: newID(), Name: "faulty_charge", Arguments: `{"fault":"sleep"}`}}
			for ctx.Err() == nil { // each has its time limit, and so has who waits
				_, _, _ = hooks.Ask(ctx, &hooks.Asker{}, h.BeforeToolCall, hooks.Position{Subject: in.Call.ID}, in, nil)
			}
		})
	}
	tick := time.NewTicker(10 * time.Millisecond)
	t.Cleanup(tick.Stop)
	for inFlight(t, plugins[0]) < many {
		<-tick.C
	}
	// Whoever comes when others are given up gets his turn, in vain.
	const tries = 20
	for try := 1; ; try++ {
		if try > tries {
			t.Fatal("nobody is one too many")
		}
		p := s.newPoliced(t, h, [2]string{"faulty_charge", `{"fault":"sleep"}`})
		p.goes()
		outcome, code, _ := strings.Cut(strings.Join(rowsAt(t, s.db, p.job.SessionID, "outcome, reason_code"), "|"), " ")
		p.wantClosed(s, "faulty", "one too many", hooks.KindPlugin, hooks.Outcome(outcome))
		if outcome == string(hooks.OutcomeUnavailable) {
			if code != pluginhost.CodeQueueFull {
				t.Errorf("the code is %q", code)
			}
			break
		}
		if outcome != string(hooks.OutcomeTimeout) {
			t.Fatalf("the outcome is %q", outcome)
		}
	}
}

// badStart is a plugin that never is one.
type badStart struct {
	script, manifest string
	// says is what the error says behind its name.
	says string
}

// badStarts are they. Those that are hasty are given a second.
var (
	badStarts = map[string]badStart{
		"at-once":   {script: "printf 'no \\033[31mred\\007\\377'; exit 4", says: `before it was ready it ended with exit code 4; it has printed: no \x1b[31mred\a\xff`},
		"old":       {script: "echo '1|99|unix|/x|grpc'; exec sleep 1000", says: "99"},
		"memory":    {script: "exec dd if=/dev/zero of=/dev/null bs=256M count=1", manifest: "memory: 64MiB", says: "dd: memory exhausted"},
		"daemon":    {script: "setsid sleep 1000 & (setsid sh -c 'sleep 1000 & sleep 1000' &) ; exit 0", says: "before it was ready it ended with exit code 0"},
		"absent":    {says: "run.sh: no such file or directory"},
		"forbidden": {says: "run.sh: permission denied"},
	}
	hastyStarts = map[string]badStart{
		"silent": {script: "exec sleep 1000", says: "it was not ready within 1s"},
		"floods": {script: "head -c 10485760 /dev/zero | tr '\\0' x; exec sleep 1000", says: "it was not ready within 1s"},
	}
)

// TestAPluginThatIsNeverUpOpensNothing: of one nobody knows where it would have been asked,
// so it closes every gate. The error names it, and what it has printed first.
func TestAPluginThatIsNeverUpOpensNothing(t *testing.T) {
	t.Parallel()
	s := newStack(t, storetest.New(t))
	s.neverUp(t, badStarts, time.Minute)
	s.neverUp(t, hastyStarts, time.Second)
}

func (s *stack) neverUp(t *testing.T, bad map[string]badStart, limit time.Duration) {
	t.Helper()
	w := newPluginWorld(t, newPluginDirs(t), func(l *pluginhost.Limits) { l.Start, l.Deaths = limit, 1 })
	for id, b := range bad {
		w.put(t, id, "1", "nothing", b.manifest)
		run := filepath.Join(w.plugins, id, "run.sh")
		err := os.WriteFile(run, []byte("#!/bin/sh\n"+b.script+"\n"), 0o755)
		switch {
		case err == nil && id == "absent":
			err = os.Remove(run)
		case err == nil && id == "forbidden":
			err = os.Chmod(run, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	caller, plugins, err := w.load()
	if err == nil || strings.ContainsAny(err.Error(), "\x1b\a\x00") {
		t.Fatalf("the error is %.9000q", err)
	}
	said := map[string]string{}
	for line := range strings.Lines(err.Error()) {
		id, text, _ := strings.Cut(strings.TrimPrefix(line, "plugin "), ": ")
		said[id] = text
	}
	for _, p := range plugins {
		id := p.ID()
		if !strings.Contains(said[id], bad[id].says) || len(said[id]) > 4<<10 {
			t.Errorf("%s: the error is %q", id, said[id])
		}
		h := caller.Only(p)
		before := s.newPoliced(t, h)
		session := before.Session(t)
		started, err := before.Commands.StartRun(t.Context(), loop.StartRun{TenantID: looptest.Tenant, SessionID: session, Text: "go", Actor: looptest.Tester})
		if err == nil && started.RunID != "" {
			t.Errorf("%s: there is a run %s", id, started.RunID)
		}
		rows := rowsAt(t, s.db, session, "hook_id, gate, action, outcome, reason_code, failure_policy")
		if want := id + " BeforeInput block unavailable host.unavailable closed"; !slices.Equal(rows, []string{want}) {
			t.Errorf("%s: ledger %q; want %q", id, rows, want)
		}
		// And where a run had begun before.
		q := s.newPoliced(t, hooks.Hooks{BeforeToolCall: h.BeforeToolCall}, [2]string{"charge", `{}`})
		if run := q.goes(); run.Status != loop.RunCompleted {
			t.Errorf("%s: the run is %s", id, run.Status)
		}
		q.wantClosed(s, id, id, hooks.KindPlugin, hooks.OutcomeUnavailable)
	}
	if len(plugins) != len(bad) {
		t.Errorf("there are %d plugins", len(plugins))
	}
}
