package pluginhost_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/pluginhost"
	"github.com/seed-2ca4966b/agentd/hooks/yamlfile"
)

// roots makes directories of plugins.
func roots(t testing.TB, names ...string) []string {
	t.Helper()
	base := temp(t)
	var out []string
	for _, name := range names {
		dir := filepath.Join(base, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		out = append(out, dir)
	}
	return out
}

func ids(bundles []pluginhost.Bundle) []string {
	var out []string
	for _, b := range bundles {
		out = append(out, b.ID)
	}
	return out
}

func TestPluginsAreFoundInOrderAndReplaceEarlierOnes(t *testing.T) {
	t.Parallel()
	dirs := roots(t, "1", "2")
	for i, names := range [][]string{{"c", "a", "b", ".hidden"}, {"z", "a"}} {
		for _, name := range names {
			install(t, dirs[i], name, "")
		}
	}
	write(t, filepath.Join(dirs[0], "README"), "", 0o644)
	if err := os.Mkdir(filepath.Join(dirs[0], "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	bundles, problems := pluginhost.Discover([]string{dirs[0], filepath.Join(dirs[0], "absent"), dirs[1], dirs[0]})
	if got := ids(bundles); !slices.Equal(got, []string{"b", "c", "a", "z"}) {
		t.Errorf("found %v", got)
	}
	if b := bundles[2]; b.Root != dirs[1] || b.Path != filepath.Join(dirs[1], "a") || b.Version != "1" || b.Exec != "run" || string(b.Config) != "{}" {
		t.Errorf("found %+v", b)
	}
	var said []string
	for _, p := range problems {
		said = append(said, strings.ReplaceAll(p.String(), filepath.Dir(dirs[0]), ""))
	}
	want := []string{
		"/1/data: it has no plugin.yaml, so it is no plugin", "/2/a: it replaces /1/a",
	}
	if !slices.Equal(said, want) || problems[1].ID != "a" {
		t.Errorf("problems %q", said)
	}
}

// TestPluginsWhoseToolsHaveTheSameNamesAreTold since models take no dots.
func TestPluginsWhoseToolsHaveTheSameNamesAreTold(t *testing.T) {
	t.Parallel()
	dir := roots(t, "p")[0]
	for _, id := range []string{"desk.a", "desk-a", "desk-b", "other-a"} {
		install(t, dir, id, "")
	}
	write(t, filepath.Join(install(t, dir, "other.a", ""), pluginhost.ManifestName), "id: [", 0o644)
	bundles, problems := pluginhost.Discover([]string{dir})
	problems = slices.DeleteFunc(problems, func(p pluginhost.Problem) bool { return p.ID == "other.a" && !strings.Contains(p.Text, "called") })
	if len(bundles) != 5 || len(problems) != 1 || problems[0].ID != "desk.a" || !strings.HasSuffix(problems[0].Text, "called as those of desk-a: of two with the same name that one's is taken") {
		t.Errorf("found %v, problems %v", ids(bundles), problems)
	}
}

func TestWhatIsThereAndCannotBeUsedIsNotForgotten(t *testing.T) {
	t.Parallel()
	dir := roots(t, "p")[0]
	install(t, dir, "policy", "")
	install(t, dir, "other", "")
	write(t, filepath.Join(install(t, dir, "policy.bak", ""), pluginhost.ManifestName), "id: policy\nversion: x\nexec: run\nprotocol: 1\n", 0o644)
	write(t, filepath.Join(install(t, dir, "torn", ""), pluginhost.ManifestName), "id: [", 0o644)
	if err := pluginhost.WriteLock(dir, map[string]string{"gone": "sha256:" + strings.Repeat("0", 64)}); err != nil {
		t.Fatal(err)
	}
	bundles, problems := pluginhost.Discover([]string{dir})
	if got := ids(bundles); !slices.Equal(got, []string{"other", "policy", "torn", "gone"}) || len(problems) != 3 {
		t.Errorf("found %v, %v", got, problems)
	}
	for i, want := range []string{"", "policy and .*policy.bak have the same id policy", "not YAML that is read here", "plugins.lock, and there is no such plugin"} {
		err := bundles[i].Broken
		first, _, _ := strings.Cut(want, ".*")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), first) {
			t.Errorf("%s is broken: %v, want %s", bundles[i].ID, err, want)
		}
		if check := bundles[i].Check(false); want != "" && check == nil {
			t.Errorf("%s passes", bundles[i].ID)
		}
	}
	write(t, filepath.Join(dir, pluginhost.LockName), "nonsense", 0o644)
	if _, problems := pluginhost.Discover([]string{dir}); len(problems) != 3 || !strings.Contains(fmt.Sprint(problems), "plugins.lock:1: expected") {
		t.Errorf("problems %v", problems)
	}
}

func TestPluginsThatCannotBeSeenAreNotForgotten(t *testing.T) {
	t.Parallel()
	dirs := roots(t, "p", "q")
	install(t, dirs[0], "other", "")
	if err := os.Symlink("gone", filepath.Join(dirs[0], "policy")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dirs[1], "file")
	write(t, file, "no directory", 0o644)
	bundles, problems := pluginhost.Discover([]string{dirs[0], file})
	if got := ids(bundles); !slices.Equal(got, []string{"other", "policy", "file"}) || len(problems) != 2 {
		t.Fatalf("found %v, %v", got, problems)
	}
	for i, want := range []string{"", "no such file", "not a directory"} {
		if err := bundles[i].Broken; (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s is broken: %v, want %q", bundles[i].ID, err, want)
		}
	}
}

func TestAManifestSaysWhatIsWrongWithIt(t *testing.T) {
	t.Parallel()
	dir := roots(t, "p")[0]
	at := filepath.Join(install(t, dir, "a", ""), pluginhost.ManifestName)
	long := strings.Repeat("x", 65)
	for text, want := range map[string]string{
		"id: A b":                   `id is "A b"; expected`,
		"version: \"a\\u0007\"":     "version is no text of at most 64 printable bytes",
		"version: " + long:          "version is no text",
		"exec: ../run":              `exec is "../run"; expected a path within`,
		"exec: /bin/sh":             `exec is "/bin/sh"; expected a path within`,
		"exec: .":                   `exec is "."; expected a path within`,
		"exec: \"a\\0\"":            "cannot have a NUL",
		"args: [\"\\0\"]":           "cannot have a NUL",
		"protocol: 2":               "protocol is 2; this agentd speaks 1",
		"env: [AGENTD_DATABASE]":    "env: AGENTD_DATABASE is not for plugins",
		"env: [plugin_client_cert]": "env: plugin_client_cert is not for plugins",
		"env: [a=b]":                `env: "a=b" is not the name of a variable`,
		"memory: 1MiB":              "expected a size from 8MiB",
		"memory: 99999999999999GiB": "expected a size from 8MiB",
		"memory: -1GiB":             "expected a size from 8MiB",
		"memory: xMiB":              "expected a size from 8MiB",
		"memory: 1TB":               "expected a size from 8MiB",
		"config: [a]":               "expected config as a mapping, not a list",
		"config: {a: [.inf]}":       "config: JSON has no such value: .inf",
		"nonsense: 1":               `has no key "nonsense"`,
	} {
		key, _, _ := strings.Cut(text, ":")
		manifest := ""
		for line := range strings.Lines("id: a\nversion: \"1\"\nexec: run\nprotocol: 1\n") {
			if !strings.HasPrefix(line, key+":") {
				manifest += line
			}
		}
		write(t, at, manifest+text+"\n", 0o644)
		bundles, _ := pluginhost.Discover([]string{dir})
		if err := bundles[0].Broken; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), at+":") || bundles[0].ID != "a" {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if err := os.Remove(at); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if bundles, _ := pluginhost.Discover([]string{dir}); bundles[0].Broken == nil {
		t.Error("a directory is a manifest")
	}
}

func TestAManifestIsReadWithWhatItSays(t *testing.T) {
	t.Parallel()
	dir := roots(t, "p")[0]
	install(t, dir, "a", "", "args: [-v, \"2\"]", "env: [HTTP_PROXY]", "memory: 2GiB", `config: {n: 1.50, "k": [yes, 2026-01-01, null, False], o: {}}`)
	bundles, problems := pluginhost.Discover([]string{dir})
	if len(problems) != 0 {
		t.Fatal(problems)
	}
	m := bundles[0].Manifest
	if !slices.Equal(m.Args, []string{"-v", "2"}) || !slices.Equal(m.Env, []string{"HTTP_PROXY"}) || m.Memory != 2<<30 || m.Protocol != 1 ||
		string(m.Config) != `{"n":1.50,"k":["yes","2026-01-01",null,false],"o":{}}` {
		t.Errorf("read %+v, %s", m, m.Config)
	}
}

// TestAnOtherConfigLeavesTheBundleWhatItIs: only what the plugin is handed is another one.
func TestAnOtherConfigLeavesTheBundleWhatItIs(t *testing.T) {
	t.Parallel()
	w := setup(t)
	install(t, w.root, "a", serves("a"), "config: {limit: 10.50, words: [x]}")
	bundles, _ := pluginhost.Discover([]string{w.root})
	digest, err := bundles[0].Digest()
	if err != nil {
		t.Fatal(err)
	}
	problems := &yamlfile.Problems{}
	var over yamlfile.Object
	f := yamlfile.Parse("f", []byte("{words: [], n: 1}"), "a mapping", problems)
	if f == nil || !f.Decode(f.Root, "config", &over) {
		t.Fatal(problems.Err())
	}
	b := bundles[0].Configured(over)
	const want = `{"limit":10.50,"words":[],"n":1}`
	if err := w.Start(t.Context(), []pluginhost.Bundle{b}); err != nil || string(b.Config) != want {
		t.Fatalf("%v, %s", err, b.Config)
	}
	g := w.Acquire()
	t.Cleanup(g.Release)
	p := g.Plugins()[0]
	process, err := p.Process()
	if err != nil || p.Digest() != digest || string(process.Manifest().Config) != want || string(p.Bundle().Config) != want {
		t.Errorf("%v, digest %s and %s, it is handed %s", err, p.Digest(), digest, process.Manifest().Config)
	}
	if again := b.Configured(yamlfile.Object{}); string(again.Config) != `{"limit":10.50,"words":["x"]}` {
		t.Errorf("under nothing it is %s", again.Config)
	}
}
