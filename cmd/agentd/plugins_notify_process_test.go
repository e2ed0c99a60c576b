package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/plugin"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// everyNotification are the names of those that there are.
var everyNotification = []string{"OnRunStart", "OnTurnStart", "OnToolExecutionStart", "OnTurnEnd", "OnRunEnd"}

// beListener is a plugin that writes down in a file what it is told. Beside it a file
// .fail has it take no end of a turn, and a file .down does not let it start.
func beListener(id, version, notes string) int {
	there := func(what string) bool {
		_, err := os.Stat(notes + what)
		return err == nil
	}
	if there(".down") {
		return 1
	}
	err := plugin.Serve(plugin.Config{
		ID: id, Version: version, Events: everyNotification,
		OnEvent: func(_ context.Context, e plugin.PluginEvent) (plugin.EventResult, error) {
			if e.Type == "OnTurnEnd" && there(".fail") {
				return plugin.EventResult{}, errors.New("the disk is full")
			}
			f, err := os.OpenFile(notes, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				return plugin.EventResult{}, err
			}
			_, err = fmt.Fprintln(f, e.Session, e.Type, e.Turn, string(e.Payload))
			return plugin.EventResult{}, errors.Join(err, f.Close())
		},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// listener is such a plugin, seen from outside.
type listener struct {
	notes string
	db    *storetest.DB
	// sessions are those with one run each, which is the scripted one.
	sessions []string
}

func listening(t *testing.T, dirs pluginDirs, db *storetest.DB) *listener {
	t.Helper()
	l := &listener{notes: filepath.Join(t.TempDir(), "notes"), db: db}
	dirs.put(t, "audit", "1", "listen="+l.notes)
	return l
}

// heardOfARun is what there is to be told of a scripted run.
var heardOfARun = []string{
	"OnRunStart 0 {}",
	`OnTurnStart 1 {"turn":1,"attempt":1,"resumed":false}`, "OnToolExecutionStart 1 memory_write", `OnTurnEnd 1 {"turn":1,"tool_calls":1}`,
	`OnTurnStart 2 {"turn":2,"attempt":1,"resumed":false}`, `OnTurnEnd 2 {"turn":2,"tool_calls":0}`,
	`OnRunEnd 0 {"status":"completed","reason":"stop"}`,
}

// toolScript is the environment of a process whose runs are like that.
func toolScript(t *testing.T, dirs pluginDirs) []string {
	t.Helper()
	return append(dirs.env(), "AGENTD_SCRIPT="+script(t, `{"tool": {"name": "memory_write", "arguments": {"key": "k", "content": "c"}}}`, `{"text": "d"}, {"text": "one"}`))
}

// runs has a process work on so many runs at once, each in a session of its own.
func (l *listener) runs(t *testing.T, n int, at ...*server) {
	t.Helper()
	for i := range n {
		s := at[i%len(at)]
		session := newSession(t, s)
		startRun(t, s, session, "hi")
		l.sessions = append(l.sessions, session)
	}
}

// heard is what the plugin was told, by session.
func (l *listener) heard(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(l.notes)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		session, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		if call, ok := strings.CutPrefix(what, `OnToolExecutionStart 1 {"turn":1,"attempt":1,"call":{`); ok && strings.Contains(call, `"name":"memory_write"`) && strings.Contains(call, `"arguments":"{`) {
			what = heardOfARun[2]
		}
		out[session] = append(out[session], what)
	}
	return out
}

// awaitAll waits until the plugin was told everything, for the first time in order.
// What it was told again may stand anywhere behind, and so may what another worker has
// begun again after the death of one.
func (l *listener) awaitAll(t *testing.T) {
	t.Helper()
	awaitRow(t, l.db, fmt.Sprintf(`
		SELECT 'yes' FROM agentd.plugin_notifications
		WHERE waiting = 0 AND failures = 0 AND (SELECT count(*) FROM agentd.runs WHERE status = 'completed') = %d`, len(l.sessions)))
	heard, events := l.heard(t), 0
	for _, session := range l.sessions {
		var first, again []string
		for _, what := range heard[session] {
			switch {
			case slices.Contains(first, what), slices.Contains(again, what):
			case slices.Contains(heardOfARun, what):
				first = append(first, what)
			case !strings.Contains(what, `"attempt":1,"resumed":true`): // that is no event of its own
				again = append(again, what)
			}
		}
		if !slices.Equal(first, heardOfARun) {
			t.Errorf("of session %s the plugin was told %q", session, heard[session])
		}
		events += len(first) + len(again)
	}
	if len(heard) != len(l.sessions) {
		t.Errorf("the plugin was told of %d sessions, want %d", len(heard), len(l.sessions))
	}
	want := scalar[int](t, l.db, `SELECT count(*) FROM agentd.events WHERE type IN ('run.started', 'model.requested', 'tool.started', 'turn.completed', 'run.completed')`)
	if events != want {
		t.Errorf("the plugin was told of %d events, want %d", events, want)
	}
}

// TestAPluginIsToldWhatHappens in order and, as long as nothing goes wrong, once; also
// what has happened while it did not take it, and while it was down.
func TestAPluginIsToldWhatHappens(t *testing.T) {
	t.Parallel()
	dirs, db := newPluginDirs(t), storetest.New(t)
	l := listening(t, dirs, db)
	s := startServe(t, db, toolScript(t, dirs))
	awaitRow(t, db, `SELECT cursor FROM agentd.plugin_notifications WHERE held`)
	l.runs(t, rounds(6, 200), s)
	l.awaitAll(t)
	for session, heard := range l.heard(t) {
		if len(heard) != len(heardOfARun) {
			t.Errorf("of session %s the plugin was told %q", session, heard)
		}
	}

	toggle := func(what string, on bool) {
		t.Helper()
		var err error
		if on {
			err = os.WriteFile(l.notes+what, nil, 0o600)
		} else {
			err = os.Remove(l.notes + what)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	toggle(".fail", true)
	l.runs(t, rounds(3, 100), s)
	if said := awaitRow(t, db, `SELECT last_error FROM agentd.plugin_notifications WHERE failures > 1 AND waiting > 0`); said != "error: Internal: the disk is full" {
		t.Errorf("the last error is %q", said)
	}
	toggle(".fail", false)
	l.awaitAll(t)

	toggle(".down", true)
	var pid int
	status := func() (string, int) {
		_, out, _ := here(t, "plugins", "status", "--url", s.url)
		var id, state string
		for line := range strings.Lines(out) {
			if _, err := fmt.Sscan(line, new(int), &id, &state, &pid); err == nil {
				return state, pid
			}
		}
		return "", 0
	}
	_, pid = status()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	l.runs(t, rounds(3, 100), s)
	awaitRow(t, db, `SELECT last_error FROM agentd.plugin_notifications WHERE last_error LIKE 'host.%' AND failures > 0 AND NOT held`)
	toggle(".down", false)
	if code, out, stderr := here(t, "plugins", "reload", "--url", s.url); code != 0 {
		t.Fatalf("reload: %d, %s%s", code, out, stderr)
	}
	l.awaitAll(t)

	s.signal(t, syscall.SIGTERM)
	if code := s.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if held := scalar[bool](t, db, `SELECT held FROM agentd.plugin_notifications`); held {
		t.Error("a process that has ended holds the plugin")
	}
}

// TestAnotherProcessGoesOnTellingAPlugin when the one that did is killed, again and
// again: nothing is missing.
func TestAnotherProcessGoesOnTellingAPlugin(t *testing.T) {
	t.Parallel()
	kills := rounds(1, 5)
	db := storetest.New(t)
	dirs := []pluginDirs{newPluginDirs(t), newPluginDirs(t)}
	l := listening(t, dirs[0], db)
	dirs[1].put(t, "audit", "1", "listen="+l.notes)
	servers := []*server{startServe(t, db, toolScript(t, dirs[0])), startServe(t, db, toolScript(t, dirs[1]))}
	for range kills {
		holder := awaitRow(t, db, `SELECT pid::text FROM agentd.plugin_notifications WHERE held`)
		l.runs(t, rounds(6, 60), servers...)
		i := slices.IndexFunc(servers, func(s *server) bool { return fmt.Sprint(s.cmd.Process.Pid) == holder })
		if i < 0 {
			t.Fatalf("process %s holds the plugin", holder)
		}
		servers[i].signal(t, syscall.SIGKILL)
		killed := time.Now()
		l.runs(t, rounds(2, 20), servers[1-i])
		awaitRow(t, db, `SELECT pid::text FROM agentd.plugin_notifications WHERE held AND pid <> `+holder)
		t.Logf("another process tells the plugin after %s", time.Since(killed).Round(time.Millisecond))
		l.awaitAll(t)
		servers[i] = startServe(t, db, toolScript(t, dirs[i]))
	}
}

// TestWhereNoPluginListensNothingIsWrittenForOne: also where there are plugins.
func TestWhereNoPluginListensNothingIsWrittenForOne(t *testing.T) {
	t.Parallel()
	dirs, db := newPluginDirs(t), storetest.New(t)
	dirs.put(t, "policy", "1", "block")
	s := startServe(t, db, dirs.env())
	remember(t, s)
	if n := scalar[int](t, db, `SELECT (SELECT count(*) FROM agentd.plugin_cursors) + (SELECT count(*) FROM agentd.events WHERE xid IS NOT NULL)`); n != 0 {
		t.Errorf("%d rows", n)
	}
}
