package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// replaceConfig puts a file in the place of another at once, as an editor does.
func replaceConfig(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+"~", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+"~", path); err != nil {
		t.Fatal(err)
	}
}

// blocking is a config with one rule.
func blocking(id, gate, tool string) string {
	return fmt.Sprintf("rules:\n  - {id: %s, gate: %s, tools: %s, block: Not now.}\n", id, gate, tool)
}

// TestServeAsksNewRulesWithoutARestart: a changed file is seen, a bad one is not
// in force, SIGHUP does not wait, and a run that waits for a person goes on under
// the rules that hold then, and says so.
func TestServeAsksNewRulesWithoutARestart(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	path := filepath.Join(t.TempDir(), "agentd.yaml")
	replaceConfig(t, path, blocking("none", "BeforeToolCall", "none"))
	s := startServe(t, db, []string{"AGENTD_CONFIG=" + path})
	first := s.await(t, &s.err, `hooks are loaded".*cause=start.*hook_set=(\w+)`)
	if code := chat(t, s.url, strings.NewReader("remember that my name is Ada\nforget my name\n"), "--session", "mine").wait(t); code != exitUndecided {
		t.Fatalf("chat: exit code %d", code)
	}

	replaceConfig(t, path, blocking("no-ping", "BeforeToolCall", "ping"))
	s.await(t, &s.err, `hooks are loaded".*cause=file.*before=(`+first+`)`)
	c := chat(t, s.url, strings.NewReader("ping\n"))
	if code := c.wait(t); code != 0 || !strings.Contains(c.out.String(), "Not now.") {
		t.Errorf("exit code %d, printed %s", code, c.out.String())
	}
	if rule := awaitRow(t, db, `SELECT rule_id || ' ' || tool_name FROM agentd.blocked`); rule != "no-ping ping" {
		t.Errorf("blocked by %s", rule)
	}

	replaceConfig(t, path, "rules: [{id: x}]\n")
	s.await(t, &s.err, `(agentd.yaml:1:9: the rule has no gate)`)
	if c := chat(t, s.url, strings.NewReader("ping\n")); c.wait(t) != 0 || !strings.Contains(c.out.String(), "Not now.") {
		t.Errorf("with a bad file it printed %s", c.out.String())
	}

	replaceConfig(t, path, blocking("keep", "BeforeExecute", "memory_delete"))
	s.signal(t, syscall.SIGHUP)
	last := s.await(t, &s.err, `hooks are loaded".*cause=signal.*hook_set=(\w+)`)
	approval := awaitRow(t, db, `SELECT id::text FROM agentd.approvals`)
	if code, _, said := runAgentd(t, options{env: []string{"AGENTD_URL=" + s.url}}, "approvals", "approve", approval); code != 0 {
		t.Fatalf("approve: %s", said)
	}
	run := awaitRow(t, db, `SELECT id::text FROM agentd.runs WHERE status = 'completed' AND hook_set = '`+last+`'`)
	for query, want := range map[string]string{
		`SELECT string_agg(type || ' ' || (payload ->> 'hook_set'), ' ' ORDER BY seq) FROM agentd.events WHERE run_id = '` + run + `' AND type IN ('run.started', 'run.resumed')`: "run.started " + first + " run.resumed " + last,
		`SELECT hook_id || ' ' || hook_set_digest FROM agentd.hook_decisions WHERE run_id = '` + run + `'`:                                                                        "keep " + last,
		`SELECT count(*)::text FROM agentd.hook_sets`: "3",
	} {
		if got := awaitRow(t, db, query); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

// TestKillWhileHooksAreLoadedLeavesNothingUnread: processes load one set after the
// other and are killed meanwhile; every run and every decision names a set that is
// stored.
func TestKillWhileHooksAreLoadedLeavesNothingUnread(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	path := filepath.Join(f.dir, "agentd.yaml")
	f.env = append(f.env, "AGENTD_CONFIG="+path)
	set := func(i int) {
		replaceConfig(t, path, blocking(fmt.Sprint("n", i), "BeforeToolCall", "none")+fmt.Sprintf("  - {id: all%d, gate: BeforeInput, when: 'text == \"x\"', block: x}\n", i))
	}
	set(0)
	f.spawn(t)
	f.spawn(t)
	f.ready(t)
	session := newSession(t, f.alive[0])
	for i := 1; i <= 3*gateKills(); i++ {
		victim := f.alive[0]
		run, _ := startRun(t, victim, session, "charge "+holdNever+" r"+fmt.Sprint(i))
		set(i)
		for _, s := range f.alive {
			s.signal(t, syscall.SIGHUP)
		}
		f.kill(t, victim)
		f.add(t)
		if status := f.awaitEnd(t, run); status != "completed" {
			t.Errorf("run %d is %s", i, status)
		}
	}
	f.verify(t)
	if n := scalar[int](t, f.db, `
		SELECT count(*) FROM (
			SELECT hook_set FROM agentd.runs UNION SELECT hook_set_digest FROM agentd.hook_decisions
			UNION SELECT payload ->> 'hook_set' FROM agentd.events WHERE type IN ('run.started', 'run.resumed')) AS named (digest)
		WHERE digest IS NULL OR digest NOT IN (SELECT digest FROM agentd.hook_sets)`); n != 0 {
		t.Errorf("%d sets are named and not stored", n)
	}
}
