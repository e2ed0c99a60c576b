package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/store"
)

// keptSets remembers the sets that are stored, and what is said of it.
type keptSets struct {
	sync.Mutex
	digests []string
	loads   []store.HookSetLoad
	err     error
}

func (k *keptSets) PutHookSetLoad(_ context.Context, load store.HookSetLoad) error {
	k.Lock()
	defer k.Unlock()
	if k.err == nil {
		k.digests, k.loads = append(k.digests, load.Set.Digest), append(k.loads, load)
	}
	return k.err
}

// reloading is a reloader over a directory with agentd.yaml and r.yaml.
type reloading struct {
	*reloader
	t    *testing.T
	dir  string
	sets *keptSets
	log  bytes.Buffer
}

const twoFiles = "hooks:\n  - rules: r.yaml\n"

// newReloading is one that has loaded a rule called first.
func newReloading(t *testing.T) *reloading {
	t.Helper()
	r := &reloading{t: t, sets: &keptSets{}, dir: configFiles(t, map[string]string{"agentd.yaml": twoFiles, "r.yaml": "rules:" + shopRule("first")})}
	r.reloader = &reloader{
		config: hookConfig{path: filepath.Join(r.dir, "agentd.yaml")}, sets: r.sets, into: &loop.Switch{}, log: slog.New(slog.NewTextHandler(&r.log, nil)),
	}
	c, err := r.config.read()
	if err == nil {
		err = r.load(t.Context(), c, store.LoadStart)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.expect("first")
	return r
}

func (r *reloading) write(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *reloading) looks(n int) {
	for range n {
		r.look(r.t.Context())
	}
}

// expect checks which rules are in force, and that their set was stored before.
func (r *reloading) expect(want ...string) {
	r.t.Helper()
	now := r.into.Now()
	var got []string
	for _, h := range now.Hooks.Set().Hooks {
		got = append(got, h.ID)
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		r.t.Errorf("in force: %v, want %v", got, want)
	}
	if digest := now.Hooks.Set().Digest; now.Asker.HookSet != digest || r.sets.digests[len(r.sets.digests)-1] != digest {
		r.t.Errorf("asked by %s, stored %v, decisions name %s", digest, r.sets.digests, now.Asker.HookSet)
	}
}

// said is how often the log has a text since it was asked last.
func (r *reloading) said(text string) int {
	n := strings.Count(r.log.String(), text)
	r.log.Reset()
	return n
}

func TestAChangeIsLoadedOnceItIsTheSameTwice(t *testing.T) {
	t.Parallel()
	r := newReloading(t)
	r.looks(2)
	if n := r.said("hooks are loaded"); n != 1 {
		t.Errorf("loaded %d times without a change", n)
	}
	r.write("r.yaml", "rules:"+shopRule("half"))
	r.looks(1)
	r.expect("first")
	r.write("r.yaml", "rules:"+shopRule("a")+shopRule("b"))
	r.looks(1)
	r.expect("first")
	r.looks(1)
	r.expect("a", "b")
	r.looks(3)
	if n := r.said("cause=file"); n != 1 || len(r.sets.digests) != 2 {
		t.Errorf("loaded %d times, stored %v", n, r.sets.digests)
	}
	// A change that is taken back before it counts was none.
	r.write("r.yaml", "rules:"+shopRule("c"))
	r.looks(1)
	r.write("r.yaml", "rules:"+shopRule("a")+shopRule("b"))
	r.looks(1)
	r.write("r.yaml", "rules:"+shopRule("c"))
	r.looks(1)
	r.expect("a", "b")
	r.looks(1)
	r.expect("c")
	// A file that is named for the first time is watched as well.
	r.write("agentd.yaml", "hooks:\n  - rules: [r.yaml, s.yaml]\n")
	r.write("s.yaml", "rules:"+shopRule("d"))
	r.looks(2)
	r.expect("c", "d")
	r.write("s.yaml", "rules:"+shopRule("e"))
	r.looks(2)
	r.expect("c", "e")
}

func TestABadChangeChangesNothingAndIsToldOnce(t *testing.T) {
	t.Parallel()
	r := newReloading(t)
	asker := r.into.Now().Asker
	for name, change := range map[string]struct {
		do   func()
		says string
	}{
		"a mistake":      {func() { r.write("r.yaml", "rules: [{id: x}]\n") }, "r.yaml:1:9: the rule has no gate"},
		"another":        {func() { r.write("agentd.yaml", "hooks: 7\n") }, "agentd.yaml:1:8: expected hooks as a list"},
		"nothing in it":  {func() { r.write("agentd.yaml", "") }, "agentd.yaml: the file is empty"},
		"a deleted file": {func() { removed(t, r.dir, "r.yaml") }, "r.yaml cannot be read: no such file"},
		"no config file": {func() { removed(t, r.dir, "agentd.yaml") }, "agentd.yaml: the file cannot be read: no such file"},
		"many mistakes":  {func() { r.write("r.yaml", "rules: ["+strings.Repeat("{}, ", 30)+"]\n") }, "more=10"},
	} {
		r.said("")
		change.do()
		r.looks(5)
		r.expect("first")
		if all := r.log.String(); strings.Count(all, change.says) != 1 || r.said("hooks are not loaded: those before are still asked") != 1 {
			t.Errorf("%s: said\n%s", name, all)
		}
		r.write("agentd.yaml", twoFiles)
		r.write("r.yaml", "rules:"+shopRule("first"))
		r.looks(2)
		r.expect("first")
		if n := r.said("hooks are loaded"); n != 1 {
			t.Errorf("%s: that it is right again is said %d times", name, n)
		}
	}
	if r.into.Now().Asker != asker {
		t.Error("the same hooks are asked by somebody else, who does not know which of them hang")
	}
}

func removed(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// TestFilesThatAreReplacedAreSeen, by a rename, and as a mounted config map is: a
// link to a link to a directory, which is swapped.
func TestFilesThatAreReplacedAreSeen(t *testing.T) {
	t.Parallel()
	r := newReloading(t)
	r.write("new", "rules:"+shopRule("renamed"))
	if err := os.Rename(filepath.Join(r.dir, "new"), filepath.Join(r.dir, "r.yaml")); err != nil {
		t.Fatal(err)
	}
	r.looks(2)
	r.expect("renamed")

	version := func(name, id string) {
		if err := os.Mkdir(filepath.Join(r.dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		r.write(filepath.Join(name, "r.yaml"), "rules:"+shopRule(id))
		link := filepath.Join(r.dir, "next")
		if err := errors.Join(os.Symlink(name, link), os.Rename(link, filepath.Join(r.dir, "data"))); err != nil {
			t.Fatal(err)
		}
	}
	version("v1", "mounted")
	removed(t, r.dir, "r.yaml")
	if err := os.Symlink(filepath.Join("data", "r.yaml"), filepath.Join(r.dir, "r.yaml")); err != nil {
		t.Fatal(err)
	}
	r.looks(2)
	r.expect("mounted")
	version("v2", "swapped")
	r.looks(2)
	r.expect("swapped")
}

func TestASignalLoadsAtOnce(t *testing.T) {
	t.Parallel()
	r := newReloading(t)
	r.write("r.yaml", "rules:"+shopRule("now"))
	r.loadNow(t.Context())
	r.expect("now")
	r.write("r.yaml", "rules: 7\n")
	r.loadNow(t.Context())
	r.loadNow(t.Context())
	r.looks(3)
	r.expect("now")
	if all := r.log.String(); strings.Count(all, "cause=signal") != 1 || strings.Count(all, "r.yaml:1:8: expected rules") != 2 {
		t.Errorf("said\n%s", all)
	}
	none := &reloader{log: slog.New(slog.NewTextHandler(&r.log, nil))}
	none.loadNow(t.Context())
	if none.look(t.Context()); r.said("there is nothing to load again") != 1 {
		t.Errorf("said\n%s", &r.log)
	}
}

// TestASignalHasSecretsReadAgain, although the set has the same digest.
func TestASignalHasSecretsReadAgain(t *testing.T) {
	t.Parallel()
	r := newReloading(t)
	signatures := make(chan string, 2)
	endpoint := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		for name, secret := range map[string]string{"one": strings.Repeat("1", 32), "two": strings.Repeat("2", 32)} {
			key, _ := base64.StdEncoding.DecodeString(secret)
			mac := hmac.New(sha256.New, key)
			_, _ = fmt.Fprintf(mac, "%s.%s.%s", q.Header.Get("webhook-id"), q.Header.Get("webhook-timestamp"), body)
			if q.Header.Get("webhook-signature") == "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)) {
				signatures <- name
				return
			}
		}
		signatures <- "nobody"
	}))
	t.Cleanup(endpoint.Close)
	r.write("policy.secret", "whsec_"+strings.Repeat("1", 32))
	r.write("agentd.yaml", "hooks:\n  - webhook: {url: "+endpoint.URL+", gates: [BeforeInput], secret_file: policy.secret, allow: 127.0.0.1/32}\n    timeout: 30s\n")
	for _, want := range []string{"one", "two"} {
		r.loadNow(t.Context())
		r.expect("webhook")
		if _, err := r.into.Now().Hooks.BeforeInput(t.Context(), hooks.BeforeInput{Text: "hello"}); err != nil {
			t.Fatal(err)
		}
		if got := <-signatures; got != want {
			t.Errorf("%s has signed, want %s", got, want)
		}
		r.write("policy.secret", "whsec_"+strings.Repeat("2", 32))
	}
}

// TestASetThatCannotBeStoredIsNotAsked, and is tried again for as long as it takes.
func TestASetThatCannotBeStoredIsNotAsked(t *testing.T) {
	t.Parallel()
	r := newReloading(t)
	r.sets.err = errors.New("no database")
	r.write("r.yaml", "rules:"+shopRule("second"))
	r.looks(5)
	r.expect("first")
	if n := r.said("no database"); n != 1 {
		t.Errorf("said %d times", n)
	}
	r.sets.err = nil
	r.looks(1)
	r.expect("second")
	r.sets.err = errors.New("no database")
	c, err := r.config.read()
	if err != nil || (&reloader{sets: r.sets}).load(t.Context(), c, store.LoadStart) == nil {
		t.Errorf("a process starts with a set that is not stored (%v)", err)
	}
}

// TestEachLoadSaysWhatItCameFrom: the cause, the set before and the files.
func TestEachLoadSaysWhatItCameFrom(t *testing.T) {
	t.Parallel()
	r := newReloading(t)
	r.process = newProcess()
	r.write("r.yaml", "rules:"+shopRule("second"))
	r.looks(2)
	r.loadNow(t.Context())
	if len(r.sets.loads) != 3 {
		t.Fatalf("%d loads; want 3", len(r.sets.loads))
	}
	for i, want := range []struct {
		cause          store.LoadCause
		previous, file string
	}{{store.LoadStart, "", "first"}, {store.LoadFile, r.sets.digests[0], "second"}, {store.LoadSignal, r.sets.digests[1], "second"}} {
		l := r.sets.loads[i]
		if l.Cause != want.cause || l.Previous != want.previous || len(l.Files) != 2 || i > 0 && l.Process != r.process {
			t.Fatalf("load %d: %+v", i, l)
		}
		sum := sha256.Sum256([]byte("rules:" + shopRule(want.file)))
		if f := l.Files[1]; filepath.Base(f.Path) != "r.yaml" || f.SHA256 != hex.EncodeToString(sum[:]) || f.Modified.IsZero() {
			t.Errorf("load %d read %+v", i, f)
		}
	}
}

// TestLoadsWhileHooksAreAskedAreWhole: whoever looks sees one set, with the asker
// that names it, and never a part of another.
func TestLoadsWhileHooksAreAskedAreWhole(t *testing.T) {
	t.Parallel()
	r := newReloading(t)
	var asking sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		asking.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				now := r.into.Now()
				_, ds, err := hooks.Ask(t.Context(), now.Asker, now.Hooks.BeforeToolCall, hooks.Position{}, hooks.BeforeToolCall{Call: hooks.ToolCall{Arguments: "{}"}}, nil)
				if set := now.Hooks.Set(); err != nil || ds[0].HookSetDigest != set.Digest || ds[0].HookID != set.Hooks[0].ID {
					t.Errorf("decision %+v of set %+v, %v", ds, set, err)
					return
				}
			}
		})
	}
	for i := range 20 {
		r.write("r.yaml", "rules:"+shopRule(fmt.Sprint("n", i)))
		r.looks(2)
		r.expect(fmt.Sprint("n", i))
	}
	close(done)
	asking.Wait()
}

// TestPluginsThatWereLoadedForAConfigAreAskedByIt also where the database was away when
// that was to be in force.
func TestPluginsThatWereLoadedForAConfigAreAskedByIt(t *testing.T) {
	t.Parallel()
	r := newReloading(t)
	r.plugins = newPlugins(pluginRunFlags{}, nil, nil, nil, r.reloader.log)
	r.write("agentd.yaml", twoFiles+"plugins:\n  a: {disabled: true}\n")
	r.write("r.yaml", "rules:"+shopRule("second"))
	c, err := r.config.read()
	if err != nil {
		t.Fatal(err)
	}
	r.wanted = c
	r.rejoin(t.Context()) // they were not
	r.expect("first")
	r.plugins.started = c.plugins.started()
	r.sets.err = errors.New("away")
	r.rejoin(t.Context())
	r.expect("first")
	select {
	case <-r.plugins.changed:
	default:
		t.Error("it is not tried again")
	}
	r.sets.err = nil
	r.rejoin(t.Context())
	r.expect("second")
	if n := r.said("there is no plugin a"); n != 1 {
		t.Errorf("a setting of no plugin is told %d times", n)
	}
}
