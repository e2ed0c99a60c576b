package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// denying is a config of which each version denies the tool charge in another way:
// by a guard, by a rule, or by an endpoint.
func denying(i int, url string) string {
	id := fmt.Sprint("deny", i)
	all := fmt.Sprintf("rules:\n  - {id: all%d, gate: TransformContext, when: 'false', block: x}\n", i)
	switch i % 3 {
	case 0:
		return all + "hooks:\n  - {deny_tools: {tools: charge}, id: " + id + "}\n"
	case 1:
		return all + "  - {id: " + id + ", gate: BeforeToolCall, tools: charge, block: no}\n"
	}
	return all + "hooks:\n  - webhook: {url: '" + url + "', gates: [BeforeToolCall], secret_env: POLICY_SECRET, allow: 127.0.0.0/8}\n    id: " + id + "\n    timeout: 30s\n"
}

// spoil leaves something in the place of the config that must not be in force.
func spoil(t *testing.T, i int, path, next string) {
	t.Helper()
	var err error
	switch i % 4 {
	case 0: // as by an editor that was stopped
		err = os.WriteFile(path, []byte(next[:len(next)-8]), 0o600)
	case 1:
		err = os.Remove(path)
	case 2:
		replaceConfig(t, path, "hooks: [{deny_tools: {tols: charge}}]\n")
	case 3:
		if err = os.Remove(path); err == nil {
			err = syscall.Mkfifo(path, 0o600)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestNoGateIsOpenWhileItsConfigIsReplaced, spoilt and deleted, and processes are
// killed meanwhile: every version of the config denies the call, so it never runs;
// and every decision is by a hook of the set that it names.
func TestNoGateIsOpenWhileItsConfigIsReplaced(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	url := receive(t, func(in hooks.BeforeToolCall) any {
		if in.Call.Name == toolCharge {
			return map[string]any{"action": "block", "reason": map[string]any{"text": "no"}}
		}
		return map[string]any{"action": "continue"}
	})
	path := filepath.Join(f.dir, "agentd.yaml")
	f.env = append(f.env, "AGENTD_CONFIG="+path, "POLICY_SECRET="+policySecret)
	replaceConfig(t, path, denying(0, url))
	f.spawn(t)
	f.spawn(t)
	f.ready(t)
	const killEvery = 4
	runs := map[string]string{}
	begin := func(i int) {
		session := newSession(t, f.alive[i%len(f.alive)])
		run, _ := startRun(t, f.alive[i%len(f.alive)], session, fmt.Sprint(toolCharge+" "+holdNever+" r", i))
		runs[run] = session
	}
	load := func() {
		for _, s := range f.alive {
			s.signal(t, syscall.SIGHUP)
		}
	}
	for i := 1; i <= rounds(8, 50); i++ {
		next := denying(i, url)
		begin(i)
		spoil(t, i, path, next)
		load()
		begin(i + 1)
		if i%killEvery == 0 {
			f.kill(t, f.alive[i/killEvery%2])
		}
		replaceConfig(t, path, next)
		load()
		if i%killEvery == 0 {
			f.add(t)
		}
	}
	for run, session := range runs {
		if status := f.awaitEnd(t, run); status != "completed" {
			t.Errorf("run %s is %s", run, status)
		}
		facts := ofRun(checkSession(t, f, session), run)
		if ran := effects(t, f.effects, run); len(ran) != 0 || only[event.ToolResult](t, facts).Reason != hooks.ReasonBlocked {
			t.Errorf("the call of run %s took effect %d times, and %+v", run, len(ran), only[event.ToolResult](t, facts))
		}
	}
	f.verify(t)
	for what, query := range map[string]string{
		"decisions by hooks that are not of their set": `
			SELECT count(*) FROM agentd.hook_decisions d WHERE NOT EXISTS (SELECT FROM agentd.hook_sets s WHERE s.digest = d.hook_set_digest
				AND s.hooks::jsonb @> jsonb_build_array(jsonb_build_object('id', d.hook_id, 'gate', d.gate, 'version', d.hook_version)))`,
		"leases that were asked by two sets": `
			SELECT count(*) FROM (SELECT FROM agentd.hook_decisions GROUP BY run_id, epoch HAVING count(DISTINCT hook_set_digest) > 1) AS mixed`,
		"calls that nobody has judged": `
			SELECT count(*) FROM agentd.tool_calls k WHERE NOT EXISTS (SELECT FROM agentd.hook_decisions d WHERE d.subject = k.id::text AND d.action = 'block' AND d.outcome = 'ok')`,
		"gates that were open": `SELECT count(*) FROM agentd.fail_open`,
	} {
		if n := scalar[int](t, f.db, query); n != 0 {
			t.Errorf("%d %s", n, what)
		}
	}
	if kinds := scalar[string](t, f.db, `SELECT string_agg(DISTINCT hook_kind, ' ' ORDER BY hook_kind) FROM agentd.hook_decisions WHERE gate = 'BeforeToolCall'`); len(strings.Fields(kinds)) < 2 {
		t.Errorf("the policies that were asked are all of the kind %s", kinds)
	}
}
