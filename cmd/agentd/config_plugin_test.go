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

func TestWhatIsWrongWithASettingOfAPluginIsToldWithItsPlace(t *testing.T) {
	t.Parallel()
	dir := configFiles(t, map[string]string{"agentd.yaml": `plugins:
  Policy: {}
  a: {conf: {}}
  b: {config: [x]}
  c: {config: {n: .inf}}
  d: {timeout: 31s, on_failure: maybe, shadow: 1}
  e: {disabled: "yes", agents: ["["], tools: [], tenants: x}
  f:
  g: {config: {x: "` + strings.Repeat("x", 16<<10) + `", y: "` + strings.Repeat("y", 16<<10) + `", z: "` + strings.Repeat("z", 16<<10) + `", u: "` + strings.Repeat("u", 16<<10) + `"}}
  h: {timeout: 0s}
`})
	_, err := hookConfig{path: filepath.Join(dir, "agentd.yaml")}.read()
	const want = `agentd.yaml:2:3: "Policy" is the id of no plugin; expected 1 to 64 lower-case letters, digits, dots, dashes and underscores
agentd.yaml:3:7: the plugin a has no key "conf"; expected one of agents, config, disabled, on_failure, shadow, tenants, timeout, tools
agentd.yaml:4:15: expected config as a mapping, not a list
agentd.yaml:5:15: config: JSON has no such value: .inf
agentd.yaml:6:16: timeout is "31s"; expected a time from 1ms to 30s, such as 200ms
agentd.yaml:6:33: on_failure is "maybe"; expected one of closed, open
agentd.yaml:6:48: shadow is "1"; expected true or false
agentd.yaml:7:17: disabled is "yes"; expected true or false
agentd.yaml:7:33: agents: "[" is no glob, such as memory_*
agentd.yaml:7:46: tools has 0 globs; expected 1 to 100
agentd.yaml:8:5: expected the plugin f as a mapping, not nothing
agentd.yaml:9:15: config has 65565 bytes as JSON; at most 65536 are taken
agentd.yaml:10:16: timeout is "0s"; expected a time from 1ms to 30s, such as 200ms`
	if got := strings.ReplaceAll(fmt.Sprint(err), dir+"/", ""); got != want {
		t.Errorf("it says\n%s\nwant\n%s", got, want)
	}
	var many strings.Builder
	for i := range maxEntries + 1 {
		fmt.Fprintf(&many, "  p%d: {}\n", i)
	}
	for text, want := range map[string]string{
		"plugins: [a]\n":               "1:10: expected plugins as a mapping of ids, not a list",
		"plugins:\n" + many.String():   "there are more than 500 plugins",
		"plugins:\n  a: {}\n  a: {}\n": `3:3: the key "a" stands twice`,
	} {
		dir := configFiles(t, map[string]string{"agentd.yaml": text})
		if _, err := (hookConfig{path: filepath.Join(dir, "agentd.yaml")}).read(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
}

// TestPluginsAreListedAsTheConfigSaysOfThem without being changed by it.
func TestPluginsAreListedAsTheConfigSaysOfThem(t *testing.T) {
	t.Parallel()
	dirs := newPluginDirs(t)
	dirs.put(t, "policy", "1", "nothing")
	dirs.put(t, "other", "1", "nothing")
	dir := configFiles(t, map[string]string{"agentd.yaml": "plugins:\n  policy: {config: {word: b}}\n  other: {disabled: true}\n  polcy: {shadow: true}\n"})
	o := options{dir: dir, env: dirs.env()}
	code, out, said := runAgentd(t, o, "plugins", "list")
	if code != 0 || !strings.Contains(out, "other@1   no      no: agentd.yaml:3 disables it") || said != "warning: agentd.yaml:4: there is no plugin polcy\n" {
		t.Errorf("exit code %d, said %s, printed\n%s", code, said, out)
	}
	_, d := doctor(t, o)
	d.expect(t, checkOK, "plugin other", "agentd.yaml:3 disables it")
	d.expect(t, checkWarn, "plugins", "agentd.yaml:4: there is no plugin polcy")
	code, with, said := runAgentd(t, o, "plugins", "inspect", "policy")
	if code != 0 || !strings.Contains(with, `"word": "b"`) {
		t.Errorf("exit code %d, said %s, printed\n%s", code, said, with)
	}
	_, without, _ := runAgentd(t, options{dir: t.TempDir(), env: dirs.env()}, "plugins", "inspect", "policy")
	digest := func(out string) string {
		_, rest, _ := strings.Cut(out, `"digest": "`)
		return rest[:min(len(rest), 71)]
	}
	if digest(with) != digest(without) || digest(with) == "" {
		t.Errorf("the digest is %s, and without the config %s", digest(with), digest(without))
	}
	if code, _, said := runAgentd(t, o, "plugins", "inspect", "other"); code != exitFailure || !strings.Contains(said, "agentd.yaml:3 disables it") {
		t.Errorf("exit code %d, said %s", code, said)
	}
	bad := options{dir: configFiles(t, map[string]string{"agentd.yaml": "plugins: 1\n"}), env: dirs.env()}
	for _, args := range [][]string{{"list"}, {"inspect", "policy"}} {
		if code, _, said := runAgentd(t, bad, append([]string{"plugins"}, args...)...); code != exitUsage || !strings.Contains(said, "agentd.yaml:1:10") {
			t.Errorf("%v: exit code %d, said %s", args, code, said)
		}
	}
}

// pidOf is the process of a plugin, as status tells it.
func pidOf(t *testing.T, s *server, id string) int {
	t.Helper()
	for _, p := range statusOf(t, s).Plugins {
		if p.ID == id {
			return p.PID
		}
	}
	return 0
}

// TestAChangeOfASettingReloadsWhatItIsAbout: a config starts the plugins again, how one is
// asked does not, and a config that a plugin does not take changes nothing.
func TestAChangeOfASettingReloadsWhatItIsAbout(t *testing.T) {
	t.Parallel()
	dirs, db := newPluginDirs(t), storetest.New(t)
	dirs.put(t, "policy", "1", "word")
	path := filepath.Join(t.TempDir(), "agentd.yaml")
	replaceConfig(t, path, "plugins:\n  policy: {config: {word: Alpha}}\n  polcy: {}\n")
	s := startServe(t, db, append(dirs.env(), "AGENTD_CONFIG="+path))
	s.await(t, &s.err, `(agentd.yaml:3: there is no plugin polcy)`)
	if out := remember(t, s); !strings.Contains(out, "The word is Alpha.") {
		t.Errorf("it was not handed its config: %s", out)
	}
	first := pidOf(t, s, "policy")

	replaceConfig(t, path, "plugins:\n  policy: {config: {word: Alpha}, shadow: true, timeout: 700ms, agents: [demo], tools: ['*_write']}\n")
	s.await(t, &s.err, `(cause=file)`)
	if out := remember(t, s); !strings.Contains(out, remembered) {
		t.Errorf("a shadow is obeyed: %s", out)
	}
	if pid := pidOf(t, s, "policy"); pid != first {
		t.Errorf("the process is %d and was %d", pid, first)
	}
	if row := scalar[string](t, db, `SELECT concat_ws(' ', action, failure_policy, deadline_ms) FROM agentd.hook_decisions ORDER BY at DESC LIMIT 1`); row != "block shadow 700" {
		t.Errorf("the ledger says %q", row)
	}

	replaceConfig(t, path, "plugins:\n  policy: {config: {word: Beta}}\n")
	s.await(t, &s.err, `(?s)cause=file.*(cause=file)`)
	if out := remember(t, s); !strings.Contains(out, "The word is Beta.") {
		t.Errorf("the config is not that of the file: %s", out)
	}
	second := pidOf(t, s, "policy")
	if second == first || second == 0 {
		t.Errorf("the process is %d and was %d", second, first)
	}
	// What a hook was configured with is told apart in the ledger.
	if n := scalar[int](t, db, `
		SELECT count(DISTINCT (h.hook ->> 'config')) FROM agentd.hook_sets s, LATERAL jsonb_array_elements(s.hooks::jsonb) AS h (hook) WHERE h.hook ->> 'id' = 'policy' AND h.hook ->> 'config' LIKE '%"config":"sha256:%'`); n != 2 {
		t.Errorf("%d configs are stored", n)
	}
	if n := scalar[int](t, db, `SELECT count(DISTINCT hook_digest) FROM agentd.hook_decisions`); n != 1 {
		t.Errorf("one bundle has %d digests", n)
	}

	replaceConfig(t, path, "plugins:\n  policy: {config: {word: ''}, on_failure: open}\n")
	s.await(t, &s.err, `(plugins are not loaded with what the config says.*there is no word)`)
	if out := remember(t, s); !strings.Contains(out, "The word is Beta.") || pidOf(t, s, "policy") != second {
		t.Errorf("what is wrong has changed something: %s", out)
	}
	// Once the plugin is another one, that config is taken.
	dirs.put(t, "policy", "2", "nothing")
	if code, out, stderr := here(t, "plugins", "reload", "--url", s.url); code != 0 {
		t.Errorf("reload: %d, %s%s", code, out, stderr)
	}
	if policy := scalar[string](t, db, `SELECT on_failure FROM agentd.hooks WHERE hook_id = 'policy' ORDER BY first_seen_at DESC LIMIT 1`); policy != "open" {
		t.Errorf("on failure it is %s", policy)
	}

	replaceConfig(t, path, "plugins:\n  policy: {disabled: true}\n")
	s.signal(t, syscall.SIGHUP)
	s.await(t, &s.err, `(cause=signal)`)
	if report := statusOf(t, s); len(report.Plugins) != 0 {
		t.Errorf("it is there still: %+v", report)
	}
	if out := remember(t, s); !strings.Contains(out, remembered) {
		t.Errorf("it is asked still: %s", out)
	}
	if strings.Contains(s.err.String(), "cause=plugin") != true || strings.Count(s.err.String(), "cause=signal") != 1 {
		t.Errorf("the log: %s", s.err.String())
	}
}

// TestAPluginThatMayFailOpenDoesSoInTheLedger while its process is down, for good or for
// a call, and only for the agents that it is about.
func TestAPluginThatMayFailOpenDoesSoInTheLedger(t *testing.T) {
	t.Parallel()
	for does, want := range map[string]string{"exit": "open t crash host.crash", "missing": "open t unavailable host.unavailable"} {
		t.Run(does, func(t *testing.T) {
			t.Parallel()
			dirs, db := newPluginDirs(t), storetest.New(t)
			dirs.put(t, "policy", "1", does)
			if does == "missing" {
				if err := os.Remove(filepath.Join(dirs.plugins, "policy", "run.sh")); err != nil {
					t.Fatal(err)
				}
			}
			dirs.put(t, "elsewhere", "1", "exit")
			config := filepath.Join(configFiles(t, map[string]string{"agentd.yaml": "plugins:\n  policy: {on_failure: open}\n  elsewhere: {agents: [another]}\n"}), "agentd.yaml")
			s := startServe(t, db, append(dirs.env(), "AGENTD_CONFIG="+config))
			if out := remember(t, s); !strings.Contains(out, remembered) {
				t.Errorf("the run did not go on: %s", out)
			}
			row := scalar[string](t, db, `
				SELECT concat_ws(' ', d.failure_policy, d.failed_open, d.outcome, d.reason_code) FROM agentd.hook_decisions d, agentd.fail_open f
				WHERE f.decision_id = d.decision_id AND d.hook_id = 'policy' AND d.gate = 'BeforeToolCall'`)
			if row != want {
				t.Errorf("the ledger says %q; want %q", row, want)
			}
			if n := scalar[int](t, db, `SELECT count(*) FROM agentd.hook_decisions WHERE hook_id = 'elsewhere'`); n != 0 {
				t.Errorf("a plugin for another agent has %d decisions", n)
			}
			if n := scalar[int](t, db, `SELECT count(*) FROM agentd.memories`); n != 1 {
				t.Errorf("%d memories", n)
			}
		})
	}
}
