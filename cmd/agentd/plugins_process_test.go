package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// testPluginRole is the first argument of this test binary where it is a plugin; behind
// it are the plugin's id and version, and what it does.
const testPluginRole = "test-plugin"

// bePlugin is a plugin that is asked about calls of memory_write, or one of those that
// are odd.
func bePlugin(id, version, does string) int {
	if notes, listens := strings.CutPrefix(does, "listen="); listens {
		return beListener(id, version, notes)
	}
	if be, ok := oddPlugins[does]; ok {
		return be(id, version)
	}
	var handed struct{ Word *string }
	config := plugin.Config{
		ID: id, Version: version,
		Configure: func(config json.RawMessage) error {
			if err := json.Unmarshal(config, &handed); err == nil && does == "word" && (handed.Word == nil || *handed.Word == "") {
				return errors.New("there is no word")
			}
			return nil
		},
		On: map[hooks.Gate]plugin.On{hooks.GateBeforeToolCall: {Tools: []string{"memory_write"}}},
		Hooks: hooks.Hooks{BeforeToolCall: func(ctx context.Context, _ hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
			switch does {
			case "narrow":
				return hooks.BeforeToolCallResult{Action: hooks.ActionContinue}, narrow(ctx, plugin.HostFrom(ctx))
			case "exit":
				os.Exit(3) //nolint:revive // a plugin that ends in a call
			case "stop":
				_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
				<-ctx.Done() // this thread may go on for a moment
				return hooks.BeforeToolCallResult{}, ctx.Err()
			case "word":
				return hooks.BeforeToolCallResult{Action: hooks.ActionBlock, Reason: hooks.Reason{Code: "no", Text: "The word is " + *handed.Word + "."}}, nil
			case "block":
				return hooks.BeforeToolCallResult{Action: hooks.ActionBlock, Reason: hooks.Reason{Code: "no", Text: "Not by version " + version + "."}}, nil
			}
			return hooks.BeforeToolCallResult{Action: hooks.ActionContinue}, nil
		}},
	}
	if does == "tool" {
		config.Hooks, config.On = hooks.Hooks{}, nil
		config.Tools = []plugin.Tool{{
			Name: "open", Description: "Opens a ticket.",
			Schema: []byte(`{"type": "object", "required": ["title"], "properties": {"title": {"type": "string"}}}`),
			Run: func(ctx context.Context, in plugin.ToolInput, progress func(string)) (plugin.ToolOutput, error) {
				var arguments struct{ Title string }
				if err := json.Unmarshal(in.Arguments, &arguments); err != nil || arguments.Title == "exit" {
					os.Exit(3) //nolint:revive // a plugin that ends in a call
				}
				progress("half")
				names, err := plugin.HostFrom(ctx).ActiveTools(ctx)
				return plugin.ToolOutput{Content: fmt.Sprintf("Ticket: %s of %s, it is active: %t", arguments.Title, in.Run.Agent, slices.Contains(names, "desk__open"))}, err
			},
		}}
	}
	if rules := testRules(does); rules != nil {
		config.Hooks, config.On, config.StreamRules = hooks.Hooks{}, nil, rules
	}
	if err := plugin.Serve(config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// narrow takes all tools away that can be taken, and looks at what it is told of that.
func narrow(ctx context.Context, host *plugin.Host) error {
	_, unknown := host.SetActiveTools(ctx, []string{"ping", "nobody"})
	left, err := host.SetActiveTools(ctx, []string{"ping"})
	active, err2 := host.ActiveTools(ctx)
	if status.Code(unknown) != codes.InvalidArgument || !strings.Contains(unknown.Error(), `"nobody"`) || !slices.Equal(left, active) ||
		!slices.Contains(left, "memory_write") || slices.Contains(left, "desk__open") {
		return fmt.Errorf("of an unknown tool %q, left are %q, active are %q", fmt.Sprint(unknown), left, active)
	}
	return errors.Join(err, err2)
}

// pluginDirs are the directories of a process that has plugins.
type pluginDirs struct{ plugins, run string }

func newPluginDirs(t *testing.T) pluginDirs {
	t.Helper()
	return pluginDirs{t.TempDir(), filepath.Join(openDir(t), "p")}
}

func (d pluginDirs) env() []string {
	return []string{"AGENTD_PLUGIN_DIR=" + d.plugins, "AGENTD_PLUGIN_RUN_DIR=" + d.run}
}

// put installs a plugin that is this binary, or replaces it. More are lines of its
// manifest.
func (d pluginDirs) put(t *testing.T, id, version, does string, more ...string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(d.plugins, id)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"plugin.yaml": fmt.Sprintf("id: %s\nversion: '%s'\nexec: run.sh\nprotocol: 1\n%s\n", id, version, strings.Join(more, "\n")),
		"run.sh":      fmt.Sprintf("#!/bin/sh\nexport GORACE=atexit_sleep_ms=0\nexec '%s' %s %s %s %s\n", self, testPluginRole, id, version, does),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// remember has the demo agent write something down, and returns what it says.
func remember(t *testing.T, s *server) string {
	t.Helper()
	p := chat(t, s.url, strings.NewReader("remember that my name is Ada\n"))
	p.wait(t)
	return p.out.String()
}

// statusOf is what a process says of its plugins.
func statusOf(t *testing.T, s *server) (report pluginReport) {
	t.Helper()
	code, out, said := here(t, "plugins", "status", "--json", "--url", s.url)
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 {
		t.Fatalf("status: %d, %s%s, %v", code, out, said, err)
	}
	return report
}

const remembered = `remembered under the key "name"`

// TestAPluginDecidesAndIsReplaced from end to end: what is dropped into a directory is
// obeyed, what is loaded again is obeyed then, and what does not start changes nothing.
func TestAPluginDecidesAndIsReplaced(t *testing.T) {
	t.Parallel()
	dirs, db := newPluginDirs(t), storetest.New(t)
	dirs.put(t, "policy", "1", "block")
	s := startServe(t, db, dirs.env())
	if out := remember(t, s); !strings.Contains(out, "Not by version 1.") {
		t.Errorf("the call is not blocked: %s", out)
	}
	row := scalar[string](t, db, `
		SELECT concat_ws(' ', b.hook_id, d.hook_kind, d.hook_version, d.outcome, b.reason_code, d.failure_policy, d.deadline_ms)
		FROM agentd.blocked b, agentd.hook_decisions d WHERE d.action = 'block' AND d.hook_digest LIKE 'sha256:%'`)
	if row != "policy plugin 1 ok no closed 2000" {
		t.Errorf("the ledger says %q", row)
	}
	reload := func() (code int, stdout, stderr string) { return here(t, "plugins", "reload", "--url", s.url) }

	dirs.put(t, "policy", "2", "nothing")
	if code, out, stderr := reload(); code != 0 || !strings.Contains(out, "policy@2  up") {
		t.Fatalf("reload: %d, %s%s", code, out, stderr)
	}
	if out := remember(t, s); !strings.Contains(out, remembered) {
		t.Errorf("version 2 is not asked: %s", out)
	}

	dirs.put(t, "policy", "3", "nothing")
	if err := os.Remove(filepath.Join(dirs.plugins, "policy", "run.sh")); err != nil {
		t.Fatal(err)
	}
	if code, out, stderr := reload(); code != exitFailure || !strings.Contains(out, "policy@2  up") || !strings.Contains(stderr, "run.sh") {
		t.Errorf("reload of what does not start: %d, %s%s", code, out, stderr)
	}
	if out := remember(t, s); !strings.Contains(out, remembered) {
		t.Errorf("version 2 is not asked any more: %s", out)
	}

	// The signal that has the config read again does so for plugins, too.
	dirs.put(t, "policy", "4", "block")
	s.signal(t, syscall.SIGHUP)
	s.await(t, &s.err, `cause=plugin[^\n]*\n(?s:.*)cause=plugin`)
	if out := remember(t, s); !strings.Contains(out, "Not by version 4.") {
		t.Errorf("version 4 is not asked: %s", out)
	}
	if causes := scalar[string](t, db, `SELECT string_agg(cause, ' ' ORDER BY load_id) FROM agentd.hook_set_loads`); causes != "start plugin plugin" {
		t.Errorf("loads %q", causes)
	}
	if mixed := scalar[int](t, db, `
		SELECT count(*) FROM (SELECT FROM agentd.hook_decisions GROUP BY run_id, epoch HAVING count(DISTINCT hook_set_digest) > 1) AS mixed`); mixed != 0 {
		t.Errorf("%d leases were decided by two generations", mixed)
	}
	s.signal(t, syscall.SIGTERM)
	if code := s.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if left, err := filepath.Glob(filepath.Join(dirs.run, "h*")); err != nil || len(left) != 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// TestAPluginThatFailsLetsNothingThrough while it exits, stops or does not start; and
// others are not asked about what it is asked about.
func TestAPluginThatFailsLetsNothingThrough(t *testing.T) {
	t.Parallel()
	for does, want := range map[string]string{
		"exit": "block crash host.crash", "stop": "block timeout host.timeout", "missing": "block unavailable host.unavailable",
	} {
		t.Run(does, func(t *testing.T) {
			t.Parallel()
			dirs, db := newPluginDirs(t), storetest.New(t)
			dirs.put(t, "policy", "1", does)
			if does == "missing" {
				if err := os.Remove(filepath.Join(dirs.plugins, "policy", "run.sh")); err != nil {
					t.Fatal(err)
				}
			}
			s := startServe(t, db, dirs.env())
			if out := remember(t, s); strings.Contains(out, remembered) {
				t.Errorf("the call went through: %s", out)
			}
			if row := scalar[string](t, db, `SELECT concat_ws(' ', action, outcome, reason_code) FROM agentd.hook_decisions WHERE hook_id = 'policy' ORDER BY at LIMIT 1`); row != want {
				t.Errorf("the ledger says %q; want %q", row, want)
			}
			if n := scalar[int](t, db, `SELECT count(*) FROM agentd.memories`); n != 0 {
				t.Errorf("%d memories", n)
			}
			s.signal(t, syscall.SIGTERM)
			if code := s.wait(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}
