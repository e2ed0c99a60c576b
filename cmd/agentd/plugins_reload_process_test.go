package main

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// TestPluginsAreReplacedUnderRuns: nothing fails, and no lease is decided by two
// generations, however often plugins are loaded again while runs go on.
func TestPluginsAreReplacedUnderRuns(t *testing.T) {
	t.Parallel()
	reloads, each := rounds(4, 100), rounds(4, 30)
	dirs, db := newPluginDirs(t), storetest.New(t)
	dirs.put(t, "policy", "1", "nothing")
	call := `{"delay": "` + rounded("200ms", "1s") + `"}, {"tool": {"name": "memory_write", "arguments": {"key": "k", "content": "c"}}}`
	s := startServe(t, db, append(dirs.env(), "AGENTD_SCRIPT="+script(t, call, call, call, `{"text": "done"}`)))
	var runs []string
	for i := range reloads {
		reloaded := make(chan string)
		dirs.put(t, "policy", fmt.Sprint(i+2), "nothing")
		go func() {
			code, out, stderr := here(t, "plugins", "reload", "--url", s.url)
			reloaded <- fmt.Sprint(code, out, stderr)
		}()
		for range each {
			run, _ := startRun(t, s, newSession(t, s), "hi")
			runs = append(runs, run)
		}
		if said := <-reloaded; !strings.HasPrefix(said, "0") {
			t.Errorf("reload %d: %s", i+1, said)
		}
	}
	for _, run := range runs {
		if status := awaitRow(t, db, `SELECT status FROM agentd.runs WHERE id = '`+run+`' AND status IN ('completed', 'failed', 'cancelled')`); status != "completed" {
			t.Errorf("run %s is %s", run, status)
		}
	}
	for what, query := range map[string]string{
		"leases that were decided by two generations": `SELECT count(*) FROM (SELECT FROM agentd.hook_decisions GROUP BY run_id, epoch HAVING count(DISTINCT (hook_set_digest, hook_version)) > 1) AS mixed`,
		"decisions of another version than their set's": `
			SELECT count(*) FROM agentd.hook_decisions d WHERE NOT EXISTS (SELECT FROM agentd.hook_sets s WHERE s.digest = d.hook_set_digest
				AND s.hooks::jsonb @> jsonb_build_array(jsonb_build_object('id', d.hook_id, 'gate', d.gate, 'version', d.hook_version, 'digest', d.hook_digest)))`,
		"failed calls":            `SELECT count(*) FROM agentd.hook_decisions WHERE outcome <> 'ok'`,
		"calls without an answer": `SELECT count(*) FROM agentd.tool_calls k WHERE NOT EXISTS (SELECT FROM agentd.hook_decisions d WHERE d.subject = k.id::text)`,
	} {
		if n := scalar[int](t, db, query); n != 0 {
			t.Errorf("%d %s", n, what)
		}
	}
	if n := scalar[int](t, db, `
		SELECT max(n) FROM (SELECT count(*) AS n FROM agentd.runs a JOIN agentd.runs b ON b.started_at <= a.started_at AND b.ended_at > a.started_at GROUP BY a.id) AS beside`); n < rounds(2, 100) {
		t.Errorf("%d runs at once", n)
	}
	if n := scalar[int](t, db, `SELECT count(DISTINCT hook_version) FROM agentd.hook_decisions`); n < 2 {
		t.Errorf("%d generations were asked", n)
	}
	s.signal(t, syscall.SIGTERM)
	if code := s.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestAToolOfAPluginIsCalled through the same gates as any, and is gone with its plugin.
func TestAToolOfAPluginIsCalled(t *testing.T) {
	t.Parallel()
	dirs, db := newPluginDirs(t), storetest.New(t)
	dirs.put(t, "desk", "1", "tool")
	s := startServe(t, db, append(dirs.env(), "AGENTD_TOOL_PERMISSIONS=", "AGENTD_SCRIPT="+script(t,
		`{"tool": {"name": "desk__open", "arguments": {"title": "x"}}}`, `{"tool": {"name": "desk__open", "arguments": {"title": 1}}}`,
		`{"tool": {"name": "desk__open", "arguments": {"title": "exit"}}}`, `{"text": "done"}`)))
	session := newSession(t, s)
	run, _ := startRun(t, s, session, "hi")
	awaitRow(t, db, `SELECT status FROM agentd.runs WHERE id = '`+run+`' AND status = 'completed'`)
	said := scalar[string](t, db, `SELECT string_agg(payload ->> 'content', '|' ORDER BY seq) FROM agentd.events WHERE type = 'tool.result'`)
	want := []string{"Ticket: x of demo, it is active: true", "arguments: ", "ended before the tool answered"}
	for i, got := range strings.Split(said, "|") {
		if i >= len(want) || !strings.Contains(got, want[i]) {
			t.Errorf("result %d: %q", i+1, got)
		}
	}
	if code, out, _ := here(t, "plugins", "status", "--url", s.url); code != 0 || !strings.Contains(out, "desk__open") {
		t.Errorf("status: %d, %s", code, out)
	}
}

func TestPluginsAreNobodysWithoutTheKey(t *testing.T) {
	t.Parallel()
	dirs, db := newPluginDirs(t), storetest.New(t)
	s := startServe(t, db, append(dirs.env(), "AGENTD_API_KEY=sesame"))
	for given, want := range map[string]int{"": 401, "Bearer": 401, "Bearer nonsense": 401, "Bearer sesame": 200} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			r, err := http.NewRequestWithContext(t.Context(), method, s.url+pluginsPath, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", given)
			r.Header.Set("Content-Type", jsonType)
			res, err := freshClient().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			wanted := want
			if want == 200 && method == http.MethodDelete {
				wanted = 405
			}
			if res.StatusCode != wanted {
				t.Errorf("%s with %q: %s", method, given, res.Status)
			}
		}
	}
	// One that comes later than the process.
	dirs.put(t, "policy", "1", "block")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+pluginsPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer sesame")
	if res, err := freshClient().Do(r.Clone(t.Context())); err != nil || res.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("as a page in a browser sends it: %v, %v", res, err)
	} else {
		_ = res.Body.Close()
	}
	r.Header.Set("Content-Type", jsonType)
	res, err := freshClient().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if s.await(t, &s.err, `(cause=plugin)`); res.StatusCode != http.StatusOK {
		t.Errorf("the first plugin: %s", res.Status)
	}
}
