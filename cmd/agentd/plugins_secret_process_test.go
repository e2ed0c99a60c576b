package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// What a message has the plugin do that is told of a header with the key in it. Behind
// tellAnd stands what the hook does that sets it.
const (
	tellAnd     = ", and "
	tellCrash   = "crash" + tellAnd + spendCustom
	tellPanic   = "panic" + tellAnd + spendCustom
	tellError   = "fail" + tellAnd + spendCustom
	tellTimeout = "sleep" + tellAnd + spendCustom
)

// beConfidant is a plugin that sees the headers of requests, and fails with them in hand.
func beConfidant(id, version string) int {
	var mu sync.Mutex
	wants := map[string]string{} // what each session has asked for last
	return serves(plugin.Config{
		ID: id, Version: version,
		Hooks: hooks.Hooks{
			BeforeInput: func(_ context.Context, in hooks.BeforeInput) (hooks.BeforeInputResult, error) {
				mu.Lock()
				defer mu.Unlock()
				wants[in.SessionID] = in.Text
				return hooks.BeforeInputResult{Action: hooks.ActionContinue}, nil
			},
			BeforeProviderHeaders: func(_ context.Context, in hooks.BeforeProviderHeaders) (hooks.BeforeProviderHeadersResult, error) {
				mu.Lock()
				want := wants[in.SessionID]
				mu.Unlock()
				continues := hooks.BeforeProviderHeadersResult{Action: hooks.ActionContinue}
				switch want {
				case tellCrash:
					os.Exit(3) //nolint:revive // a plugin that ends in a call
				case tellPanic:
					panic(fmt.Sprintf("%v", in.Headers))
				case tellError:
					return continues, fmt.Errorf("cannot stand %v", in.Headers)
				case tellTimeout:
					select {}
				}
				return continues, nil
			},
		},
	})
}

// TestTheKeyOfAServerIsNowhereWithPlugins: they are not given it, nor its keepers, and
// where one that was told of a header fails in any way the value is in no log, table,
// stream or answer.
func TestTheKeyOfAServerIsNowhereWithPlugins(t *testing.T) {
	t.Parallel()
	dirs, db := newPluginDirs(t), storetest.New(t)
	dirs.put(t, "confidant", "1", "told-of-a-key")
	s := startServe(t, db, append(dirs.env(),
		"OPENAI_BASE_URL="+repeating(t).URL, "OPENAI_API_KEY="+providerKey, "OPENAI_MODEL=tiny",
		"AGENTD_LOG_LEVEL=debug", "GOTRACEBACK=all", spenderVariable+"=1"))
	session := newSession(t, s)
	up := `(?s:(plugin has another state.*state=up.*){%d})`
	s.await(t, &s.err, fmt.Sprintf(up, 1))
	for i, c := range [][2]string{
		{tellCrash, "blocked The check confidant gave no usable answer (crash)"},
		{tellPanic, "blocked The check confidant gave no usable answer (panic)"},
		{tellError, "blocked The check confidant gave no usable answer (error)"},
		{tellTimeout, "blocked The check confidant gave no usable answer (timeout)"},
		{"hi", "stop "},
	} {
		run, _ := startRun(t, s, session, c[0])
		ended := awaitRow(t, db, `SELECT concat_ws(' ', reason, coalesce(error, '')) FROM agentd.runs WHERE ended_at IS NOT NULL AND id = '`+run+`'`)
		if !strings.HasPrefix(ended, c[1]) {
			t.Errorf("%s: the run ended with %q", c[0], ended)
		}
		holdsNothing(t, c[0]+": the API", apiTells(t, s.url, session, run), run, `"gate":"BeforeProviderHeaders"`)
		code, out, said := here(t, "explain", run, "--url", s.url)
		if holdsNothing(t, c[0]+": explain", out+said, "BeforeProviderHeaders"); code != 0 {
			t.Errorf("explain: %d, %s", code, said)
		}
		if i == 0 {
			s.await(t, &s.err, fmt.Sprintf(up, 2))
		}
	}
	holdsNothing(t, "the processes", environments(t, dirs.run), keeperCommand, "AGENTD_PLUGIN=agentd.plugin.v1", "GOMAXPROCS=1")
	holdsNothing(t, "the files of plugins", contents(t, dirs.run), "exec: run.sh")
	code, out, said := here(t, "plugins", "status", "--url", s.url)
	if holdsNothing(t, "the status of plugins", out+said, "confidant"); code != 0 {
		t.Errorf("status: %d, %s", code, said)
	}
	s.signal(t, syscall.SIGQUIT)
	s.wait(t)
	holdsNothing(t, "the log", s.out.String()+s.err.String(), "level=DEBUG", "panic in BeforeProviderHeaders", "it ended with exit code 3", "SIGQUIT: quit", "goroutine ")
	holdsNothing(t, "the tables", everyTable(t, db), "agentd.hook_decisions: ", `"hook_kind":"plugin"`, "/headers/X-Gateway", "river_job: ")
}

// environments are those of the processes that have to do with a directory: of plugins, and
// of their keepers, with their command lines. The address of the database, with what it
// takes to get there, is not for them.
func environments(t *testing.T, dir string) string {
	t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, p := range procs {
		environ, _ := os.ReadFile(p + "/environ")
		cmdline, _ := os.ReadFile(p + "/cmdline")
		text := strings.ReplaceAll(string(cmdline)+"\n"+string(environ), "\x00", "\n")
		if !strings.Contains(text, dir+"/") {
			continue
		}
		if strings.Contains(text, "AGENTD_DATABASE_URL") || strings.Contains(text, "OPENAI") {
			t.Errorf("process %s has %s", p, text)
		}
		all.WriteString(text)
	}
	return all.String()
}

// contents are those of all files in a directory.
func contents(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && !entry.Type().IsRegular() {
			return nil
		}
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
