package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// goEnv is what building a plugin takes.
func goEnv(t *testing.T) []string {
	t.Helper()
	env := []string{"GOTOOLCHAIN=local", "GOFLAGS=-mod=mod", "CGO_ENABLED=0"}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPROXY"} {
		out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, name+"="+strings.TrimSpace(string(out)))
	}
	return env
}

// TestTheDocumentedPluginIsInstalledAndReplaced with the commands of docs/plugins.md.
func TestTheDocumentedPluginIsInstalledAndReplaced(t *testing.T) {
	t.Parallel()
	text, db := document(t, "docs/plugins.md"), storetest.New(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	env := append(goEnv(t), "AGENTD_DATABASE_URL="+db.URL, "AGENTD_PLUGIN_RUN_DIR="+filepath.Join(openDir(t), "p"))
	s := newBashDir(t, env...)
	// As in a checkout, which is not written to.
	if err := os.Symlink(filepath.Join(root, "examples"), filepath.Join(s.dir, "examples")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if name == "go.mod" {
			content = []byte(strings.Replace(string(content), "module github.com/seed-2ca4966b/agentd\n", "module example.com/newcomer\n\nrequire github.com/seed-2ca4966b/agentd v0.0.0\n\nreplace github.com/seed-2ca4966b/agentd => "+root+"\n", 1))
		}
		if err := os.WriteFile(filepath.Join(s.dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.typed(t, tour(t, text, "plugin-install"), `policy@1 +no +yes`, `plugins\.lock: 1 plugin`)
	p := start(t, options{dir: s.dir, env: append(env, "AGENTD_LISTEN=127.0.0.1:0")}, "serve")
	s.env = append(s.env, "AGENTD_URL="+p.await(t, &p.err, `msg=serving url=(\S+)`))
	s.typed(t, tour(t, text, "plugin-try"),
		`policy@1 +up +\d+ +1 +BeforeToolCall`, `remembered under the key "name"`,
		`This call was blocked and not run: Nothing may be remembered under the key city\.`,
		`policy +\| memory_write +\| forbidden_key +\| Nothing may be remembered under the key city\.`)
	s.typed(t, tour(t, text, "plugin-reload"),
		`policy@1 +yes +no: not as locked: .* has changed since it was locked`, `policy@1 +up`, `remembered under the key "city"`)
}
