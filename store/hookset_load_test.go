package store_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// policy is a set of hooks at BeforeToolCall, each as id=config, a shadow if it
// begins with ~.
func policy(hookList ...string) hooks.HookSet {
	var all []hooks.BeforeToolCallFunc
	for _, h := range hookList {
		var opts []hooks.Option
		if h, opts = strings.TrimPrefix(h, "~"), nil; len(h) < len(hookList[len(all)]) {
			opts = append(opts, hooks.Shadow())
		}
		id, config, _ := strings.Cut(h, "=")
		all = append(all, hooks.Named(id, "", guard, append(opts, hooks.WithConfig(config), hooks.OfKind(hooks.KindRule))...))
	}
	return hooks.Hooks{BeforeToolCall: hooks.Compose(all...)}.Set()
}

// machine is a process of its own on a host.
func machine(host string) store.Process {
	return store.Process{ID: looptest.NewID(), Host: host, User: "ops", PID: 17, Version: "1.2"}
}

// puts stores that a process goes from one set to another, "" for its start.
func puts(t *testing.T, s *store.Store, p store.Process, before string, set hooks.HookSet, files ...store.HookFile) {
	t.Helper()
	load := store.HookSetLoad{Set: set, Previous: before, Cause: store.LoadFile, Process: p, Files: files}
	if before == "" {
		load.Cause = store.LoadStart
	}
	if err := s.PutHookSetLoad(limit(t), load); err != nil {
		t.Fatal(err)
	}
}

const changes = `
	SELECT host, cause, change, hook_id, coalesce(array_to_string(fields, ','), '-'), coalesce(old_text, '-'), coalesce(new_text, '-'),
		coalesce(old_position, 0), coalesce(new_position, 0)
	FROM agentd.hook_changes ORDER BY load_id, hook_id, change`

func TestHookChangesSayWhatWasAddedRemovedChangedAndMoved(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{})
	first, second := policy("a=1", "b=1", "c=1"), policy("d=1", "a=2", "b=1")
	third, fourth := policy("d=1", "b=1", "a=2"), policy("d=1", "b=1", "~a=2")
	p := machine("one")
	puts(t, s, p, "", first)
	puts(t, s, p, first.Digest, first) // other files that say the same
	puts(t, s, p, first.Digest, second)
	puts(t, s, p, second.Digest, third)
	puts(t, s, p, third.Digest, fourth)
	wantLines(t, "changes", lines(t, db, changes), []string{
		"one|start|added|a|-|-|1|0|1", "one|start|added|b|-|-|1|0|2", "one|start|added|c|-|-|1|0|3",
		"one|file|changed|a|config|1|2|1|2", "one|file|removed|c|-|1|-|3|0", "one|file|added|d|-|-|1|0|1",
		"one|file|moved|a|-|2|2|2|3", "one|file|moved|b|-|1|1|3|2",
		"one|file|changed|a|shadow|2|2|3|3",
	})
	if n := lines(t, db, `SELECT count(*), count(DISTINCT process_id), max(pid), max(version), max(os_user), bool_and(db_user = session_user) FROM agentd.hook_set_loads`); n[0] != "5|1|17|1.2|ops|true" {
		t.Errorf("loads: %s", n)
	}
}

// TestStartIsComparedWithTheProcessBeforeIt on its host, and on a new host with
// the one before it anywhere.
func TestStartIsComparedWithTheProcessBeforeIt(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{})
	before, since := policy("a=1"), policy("a=2")
	for _, start := range []struct {
		host string
		set  hooks.HookSet
	}{{"one", before}, {"two", before}, {"one", since}, {"two", before}, {"two", since}, {"three", since}, {"three", since}} {
		puts(t, s, machine(start.host), "", start.set)
	}
	wantLines(t, "changes", lines(t, db, changes), []string{
		"one|start|added|a|-|-|1|0|1", "one|start|changed|a|config|1|2|1|1", "two|start|changed|a|config|1|2|1|1",
	})
}

func TestHooksOfOneNameAreComparedInTheirOrder(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{})
	p, first := machine("one"), policy("a=1", "a=2")
	puts(t, s, p, "", first)
	puts(t, s, p, first.Digest, policy("a=1", "a=3", "a=4"))
	got := lines(t, db, changes)
	wantLines(t, "changes", got[len(got)-2:], []string{"one|file|added|a|-|-|4|0|3", "one|file|changed|a|config|2|3|2|2"})
}

func TestHooksAreALinePerSetAndHook(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{})
	set := hooks.Hooks{
		BeforeToolCall: hooks.Compose(
			hooks.Named("late", "2", guard, hooks.InPhase(hooks.PhaseValidate), hooks.Pure(), hooks.Redacting(), hooks.OnFailureOpen(),
				hooks.Only(hooks.Scope{Tools: []string{"rm", "b*"}, Agents: []string{"x"}})),
			hooks.Named("early", "", guard, hooks.OfKind(hooks.KindRule), hooks.WithDigest("dd"), hooks.WithConfig(`{"id":"<early>"}`), hooks.Shadow(), hooks.TimeLimit(250*time.Microsecond))),
		BeforeInput: hooks.Named("in", "1", func() hooks.BeforeInputFunc { return nil }()),
	}.Set()
	if err := s.PutHookSet(limit(t), set); err != nil {
		t.Fatal(err)
	}
	wantLines(t, "hooks", lines(t, db, `
		SELECT hook_set_digest = $1, place, gate, position, phase, hook_id, hook_kind, coalesce(hook_version, '-'), coalesce(hook_digest, '-'), coalesce(text, '-'), shadow,
			on_failure, trim_scale(time_limit_ms)::text, reply_limit, coalesce(tools::text, '-'), coalesce(agents::text, '-'), coalesce(tenants::text, '-'), pure, redacting
		FROM agentd.hooks ORDER BY place`, set.Digest), []string{
		`true|1|BeforeToolCall|1|mutate|early|rule|-|dd|{"id":"<early>"}|true|closed|0.25|1048576|-|-|-|false|false`,
		`true|2|BeforeToolCall|2|validate|late|go|2|-|-|false|open|2000|1048576|["rm","b*"]|["x"]|-|true|true`,
	})
}

func TestLoadsNameTheirFilesAndAreNeverChanged(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{})
	set := policy("a=1")
	puts(t, s, machine("one"), "", set,
		store.HookFile{Path: "/etc/agentd.yaml", SHA256: strings.Repeat("ab", 32), Modified: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}, store.HookFile{Path: "b.yaml"})
	wantLines(t, "files", lines(t, db, `
		SELECT f ->> 'path', f ->> 'sha256', (f ->> 'modified')::timestamptz = '2026-01-02T03:04:05Z'
		FROM agentd.hook_set_loads, json_array_elements(files) AS f LIMIT 1`), []string{"/etc/agentd.yaml|" + strings.Repeat("ab", 32) + "|true"})
	for _, statement := range []string{`UPDATE agentd.hook_set_loads SET host = 'x'`, `DELETE FROM agentd.hook_set_loads`, `TRUNCATE agentd.hook_set_loads`} {
		if _, err := db.Pool.Exec(limit(t), statement); err == nil || !strings.Contains(err.Error(), "append-only") {
			t.Errorf("%s: %v", statement, err)
		}
	}
	for name, wrong := range map[string]store.HookSetLoad{
		"a start that follows something": {Set: set, Cause: store.LoadStart, Previous: set.Digest},
		"a change of nothing":            {Set: set, Cause: store.LoadSignal},
		"a cause that there is not":      {Set: set, Cause: "boredom", Previous: set.Digest},
		"a set that nobody had":          {Set: set, Cause: store.LoadFile, Previous: strings.Repeat("0", 64)},
		"a set that is none":             {Set: hooks.HookSet{Digest: "short"}, Cause: store.LoadStart},
		"a time that cannot be written":  {Set: set, Cause: store.LoadStart, Files: []store.HookFile{{Modified: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}}},
	} {
		wrong.Process = machine("one")
		if err := s.PutHookSetLoad(limit(t), wrong); err == nil || !strings.Contains(err.Error(), "put hook set load") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := lines(t, db, `SELECT count(*) FROM agentd.hook_set_loads`); !slices.Equal(n, []string{"1"}) {
		t.Errorf("%s loads; want 1", n)
	}
}
