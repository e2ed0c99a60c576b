package agentd_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/seed-2ca4966b/agentd"

// importRule refuses imports. The same rules are in .golangci.yml, where an
// editor shows them; here they hold for files behind build tags as well.
//
// Patterns name a package below the module's root; "x/..." is x with all below
// it. In deny and allow, "ext:p" is another module's package p with all below
// it, and "ext:*" is every package that is not in the standard library.
type importRule struct {
	name   string
	from   []string
	except []string // packages, or files where the last element ends in .go
	tests  bool     // holds for _test.go files too
	deny   []string
	allow  []string
}

var importRules = []importRule{
	{
		name: "hooks imports only the standard library",
		from: []string{"hooks"}, deny: []string{"...", "ext:*"},
	},
	{
		name: "hooks/stream and hooks/webhook import only hooks and the standard library",
		from: []string{"hooks/stream", "hooks/webhook/..."}, deny: []string{"...", "ext:*"}, allow: []string{"hooks"},
	},
	{
		name: "hooks/stream/builtin imports only hooks, hooks/stream, hooks/pattern, hooks/setting and the standard library",
		from: []string{"hooks/stream/builtin/..."}, deny: []string{"...", "ext:*"}, allow: []string{"hooks", "hooks/stream", "hooks/pattern", "hooks/setting"},
	},
	{
		name: "hooks/pattern imports only the standard library",
		from: []string{"hooks/pattern/..."}, deny: []string{"...", "ext:*"},
	},
	{
		name: "hooks/setting imports only hooks/pattern and the standard library",
		from: []string{"hooks/setting/..."}, deny: []string{"...", "ext:*"}, allow: []string{"hooks/pattern"},
	},
	{
		name: "hooks/guard imports only hooks, hooks/pattern, hooks/setting and the standard library",
		from: []string{"hooks/guard/..."}, deny: []string{"...", "ext:*"}, allow: []string{"hooks", "hooks/pattern", "hooks/setting"},
	},
	{
		name: "hooks/observe imports only hooks and the standard library",
		from: []string{"hooks/observe"}, deny: []string{"...", "ext:*"}, allow: []string{"hooks"},
	},
	{
		name: "the plugins below hooks/observe import only hooks and hooks/observe",
		from: []string{"hooks/observe/..."}, deny: []string{"..."}, allow: []string{"hooks", "hooks/observe"},
	},
	{
		name: "Prometheus only in hooks/observe/providermetrics and cmd",
		from: []string{"..."}, except: []string{"hooks/observe/providermetrics/...", "cmd/..."}, tests: true,
		deny: []string{"ext:github.com/prometheus"},
	},
	{
		name: "hooks/rules imports only hooks, hooks/pattern and hooks/yamlfile",
		from: []string{"hooks/rules/..."}, deny: []string{"..."}, allow: []string{"hooks", "hooks/pattern", "hooks/yamlfile"},
	},
	{
		name: "hooks/yamlfile imports nothing of this module",
		from: []string{"hooks/yamlfile/..."}, deny: []string{"..."},
	},
	{
		// Events name lanes and finish reasons, whose vocabulary is hooks/stream.
		name: "loop/event imports only hooks and hooks/stream",
		from: []string{"loop/event/..."}, deny: []string{"..."}, allow: []string{"hooks", "hooks/stream"},
	},
	{
		name: "hooks/plugin imports only hooks, since plugin authors import it",
		from: []string{"hooks/plugin/..."}, deny: []string{"..."}, allow: []string{"hooks", "hooks/plugin/..."},
	},
	{
		// Manifests are strict as every file that people write is, and stream rules are
		// carried out by the observers that agentd brings along.
		name: "hooks/pluginhost imports only hooks, hooks/plugin, hooks/setting, hooks/stream and hooks/yamlfile",
		from: []string{"hooks/pluginhost/..."}, deny: []string{"..."},
		allow: []string{"hooks", "hooks/plugin/...", "hooks/setting", "hooks/stream/...", "hooks/yamlfile"},
	},
	{
		name: "loop imports only hooks, hooks/stream and loop/event",
		from: []string{"loop"}, deny: []string{"..."}, allow: []string{"hooks", "hooks/stream", "loop/event"},
	},
	{
		name: "loop/audit imports only hooks, hooks/stream, loop and loop/event",
		from: []string{"loop/audit/..."}, deny: []string{"..."}, allow: []string{"hooks", "hooks/stream", "loop", "loop/event"},
	},
	{
		name: "loop's own tests do without store, api and workers",
		from: []string{"loop", "loop/event/...", "loop/looptest/..."}, tests: true,
		deny: []string{"store/...", "api/...", "loop/worker/..."},
	},
	{
		name: "the loop's adapters never import api",
		from: []string{"loop/model/...", "loop/tool/...", "loop/worker/..."}, deny: []string{"api/..."},
	},
	{
		name: "loop/model/wire imports no model and no tool",
		from: []string{"loop/model/wire/..."}, deny: []string{"loop/model/...", "loop/tool/...", "loop/worker/..."},
	},
	{
		name: "models and tools never import store",
		from: []string{"loop/model/...", "loop/tool/..."}, deny: []string{"store/..."},
	},
	{
		name: "store and api never import each other",
		from: []string{"store/..."}, tests: true, deny: []string{"api/..."},
	},
	{
		name: "store and api never import each other",
		from: []string{"api/..."}, tests: true, deny: []string{"store/..."},
	},
	{
		name: "store and api never import the loop's adapters",
		from: []string{"store/...", "api/..."}, deny: []string{"loop/model/...", "loop/tool/...", "loop/worker/..."},
	},
	{
		name: "store/pgembed and migrations import nothing of this module",
		from: []string{"store/pgembed/...", "migrations/..."}, deny: []string{"..."},
	},
	{
		name: "only cmd, store/storetest and tests start a Postgres",
		from: []string{"..."}, except: []string{"cmd/...", "store/storetest/...", "store/pgembed/..."},
		deny: []string{"store/pgembed/..."},
	},
	{
		name: "pgx and database/sql only in store and below, loop/worker, cmd and examples",
		from: []string{"..."}, except: []string{"store/...", "loop/worker/...", "cmd/...", "examples/..."}, tests: true,
		deny: []string{"ext:github.com/jackc/pgx", "ext:github.com/lib/pq", "ext:database/sql"},
	},
	{
		name: "River only in loop/worker, store's migration and cmd",
		from: []string{"..."}, except: []string{"loop/worker/...", "store/*migrat*.go", "cmd/..."}, tests: true,
		deny: []string{"ext:github.com/riverqueue/river"},
	},
	{
		name: "connect only in api and cmd",
		from: []string{"..."}, except: []string{"api/...", "cmd/..."}, tests: true,
		deny: []string{"ext:connectrpc.com"},
	},
	{
		name: "embedded-postgres only in store/pgembed",
		from: []string{"..."}, except: []string{"store/pgembed/..."}, tests: true,
		deny: []string{"ext:github.com/fergusstrange/embedded-postgres"},
	},
	{
		name: "nothing imports cmd",
		from: []string{"..."}, except: []string{"cmd/..."}, tests: true, deny: []string{"cmd/..."},
	},
}

const (
	siblingRule     = "siblings never import each other"
	testPackageRule = "test packages only from _test.go files, other test packages and cmd/faults"

	// testProgram tests agentd from outside, and is no part of what is shipped.
	testProgram = "cmd/faults"
)

// families are the packages whose direct children are siblings.
var families = []string{"hooks", "loop", "loop/model", "loop/tool", "store", "api"}

// sharedSibling reports what siblings may import: vocabularies, patterns, what configs
// have in common, what all models over HTTP do alike, how files are read, and the SDK
// that the plugin host serves with the observers that carry out rules of plugins.
func sharedSibling(family, from, to string) bool {
	switch family + "/" + to {
	case "loop/event", "api/gen", "loop/model/wire", "hooks/pattern", "hooks/setting", "hooks/yamlfile":
		return true
	case "hooks/plugin", "hooks/stream":
		return from == "pluginhost"
	}
	return false
}

// violations names the rules that file, a slash path below the module's root,
// breaks by importing importPath.
func violations(file, importPath string) []string {
	pkg, isTest := path.Dir(file), strings.HasSuffix(file, "_test.go")
	var broken []string
	for _, r := range importRules {
		if isTest && !r.tests || !matchAny(r.from, pkg) || excepted(r.except, file) {
			continue
		}
		if deniedBy(r.deny, importPath) && !deniedBy(r.allow, importPath) {
			broken = append(broken, r.name)
		}
	}
	target, local := strings.CutPrefix(importPath, module+"/")
	if !local || isTest || isTestPackage(pkg) {
		return broken
	}
	if isTestPackage(target) && pkg != testProgram {
		broken = append(broken, testPackageRule)
	}
	for _, family := range families {
		from, to := childOf(family, pkg), childOf(family, target)
		if from != "" && to != "" && from != to && !sharedSibling(family, from, to) {
			broken = append(broken, siblingRule)
			break
		}
	}
	return broken
}

func matchAny(patterns []string, pkg string) bool {
	for _, p := range patterns {
		root, below := strings.CutSuffix(p, "...")
		root = strings.TrimSuffix(root, "/")
		if pkg == root || below && (root == "" || strings.HasPrefix(pkg, root+"/")) {
			return true
		}
	}
	return false
}

func excepted(patterns []string, file string) bool {
	for _, p := range patterns {
		if ok, err := path.Match(p, file); err == nil && ok {
			return true
		}
	}
	return matchAny(patterns, path.Dir(file))
}

func deniedBy(patterns []string, importPath string) bool {
	target, local := strings.CutPrefix(importPath, module+"/")
	if local {
		return matchAny(patterns, target)
	}
	first, _, _ := strings.Cut(importPath, "/")
	for _, p := range patterns {
		ext, ok := strings.CutPrefix(p, "ext:")
		if ok && (ext == "*" && strings.Contains(first, ".") || importPath == ext || strings.HasPrefix(importPath, ext+"/")) {
			return true
		}
	}
	return false
}

// childOf is the name of family's direct child that holds pkg, or "".
func childOf(family, pkg string) string {
	rest, ok := strings.CutPrefix(pkg, family+"/")
	if !ok {
		return ""
	}
	child, _, _ := strings.Cut(rest, "/")
	return child
}

func isTestPackage(pkg string) bool {
	for element := range strings.SplitSeq(pkg, "/") {
		if strings.HasSuffix(element, "test") {
			return true
		}
	}
	return false
}

// TestImports reads every file, whatever its build tags are.
func TestImports(t *testing.T) {
	t.Parallel()
	packages := map[string]bool{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skipDir(name)
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		file := filepath.ToSlash(name)
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		packages[path.Dir(file)] = true
		for _, spec := range f.Imports {
			importPath, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			for _, rule := range violations(file, importPath) {
				t.Errorf("%s imports %s: %s", file, importPath, rule)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// Without these the walk looked at the wrong place, and passed.
	for _, pkg := range []string{"hooks", "loop"} {
		if !packages[pkg] {
			t.Errorf("saw no package %s among %d", pkg, len(packages))
		}
	}
}

// skipDir leaves out what go build leaves out, and modules of their own.
func skipDir(dir string) error {
	if dir == "." {
		return nil
	}
	base := filepath.Base(dir)
	if base == "testdata" || base == "bin" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return filepath.SkipDir
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
		return filepath.SkipDir
	}
	return nil
}

func TestImportRules(t *testing.T) {
	t.Parallel()
	const pgx, river, connect = "github.com/jackc/pgx/v5", "github.com/riverqueue/river", "connectrpc.com/connect"
	const prometheus = "github.com/prometheus/client_golang/prometheus"
	local := func(pkg string) string { return module + "/" + pkg }
	tests := []struct {
		file, importPath string
		refused          bool
	}{
		{"hooks/a.go", "strings", false},
		{"hooks/a.go", "github.com/google/uuid", true},
		{"hooks/a.go", local("hooks/stream"), true},
		{"hooks/a_test.go", "pgregory.net/rapid", false},
		{"hooks/stream/a.go", local("hooks"), false},
		{"hooks/stream/a.go", "github.com/google/uuid", true},
		{"hooks/stream/a.go", local("loop"), true},
		{"hooks/guard/a.go", local("hooks"), false},
		{"hooks/guard/a.go", local("hooks/rules"), true},
		{"hooks/guard/a.go", local("hooks/pattern"), false},
		{"hooks/guard/a.go", local("hooks/setting"), false},
		{"hooks/pattern/a.go", local("hooks"), true},
		{"hooks/setting/a.go", local("hooks"), true},
		{"hooks/stream/builtin/a.go", local("hooks/setting"), false},
		{"hooks/guard/a.go", "github.com/google/uuid", true},
		{"hooks/guard/a_test.go", local("hooks/rules"), false},
		{"hooks/observe/a.go", local("hooks/stream"), true},
		{"hooks/observe/a.go", prometheus, true},
		{"hooks/observe/a.go", "github.com/google/uuid", true},
		{"hooks/observe/providermetrics/a.go", prometheus, false},
		{"hooks/observe/providermetrics/a.go", local("hooks/observe"), false},
		{"hooks/observe/providermetrics/a.go", local("hooks/stream"), true},
		{"loop/model/observed/a.go", local("hooks/observe"), false},
		{"loop/a.go", local("hooks/observe"), true},
		{"store/a.go", prometheus, true},
		{"hooks/webhook/a.go", local("hooks"), false},
		{"hooks/webhook/a.go", local("hooks/rules"), true},
		{"hooks/webhook/a.go", river, true},
		{"hooks/rules/a.go", local("hooks"), false},
		{"hooks/rules/a.go", local("hooks/yamlfile"), false},
		{"hooks/yamlfile/a.go", local("hooks"), true},
		{"hooks/rules/a.go", local("loop"), true},
		{"hooks/plugin/a.go", local("hooks/plugin/pluginv1"), false},
		{"hooks/plugin/a.go", local("hooks/pluginhost"), true},
		{"hooks/pluginhost/a.go", local("hooks/plugin"), false},
		{"hooks/pluginhost/a.go", local("hooks/yamlfile"), false},
		{"hooks/pluginhost/a.go", local("hooks/stream/builtin"), false},
		{"hooks/pluginhost/a.go", local("hooks/guard"), true},
		{"hooks/pluginhost/a.go", local("hooks/rules"), true},
		{"loop/event/a.go", local("hooks"), false},
		{"loop/event/a.go", local("hooks/stream"), false},
		{"loop/event/a.go", local("loop"), true},
		{"loop/a.go", local("loop/event"), false},
		{"loop/a.go", local("hooks/stream"), false},
		{"loop/a.go", local("hooks/rules"), true},
		{"loop/a.go", local("loop/model/openai"), true},
		{"loop/a.go", local("loop/tool/mcp"), true},
		{"loop/a.go", local("loop/worker"), true},
		{"loop/a.go", local("loop/looptest"), true},
		{"loop/a.go", local("store"), true},
		{"loop/a.go", local("api"), true},
		{"loop/a_test.go", local("loop/looptest"), false},
		{"cmd/faults/a.go", local("loop/looptest"), false},
		{"cmd/bench/a.go", local("loop/looptest"), true},
		{"loop/a_test.go", local("store"), true},
		{"loop/model/openai/a.go", local("loop"), false},
		{"loop/model/openai/a.go", local("loop/event"), false},
		{"loop/model/openai/a.go", local("loop/model/anthropic"), true},
		{"loop/model/openai/a.go", local("loop/model/wire"), false},
		{"loop/model/wire/a.go", local("loop"), false},
		{"loop/model/wire/a.go", local("loop/model/openai"), true},
		{"loop/tool/mcp/a.go", local("loop/model/wire"), true},
		{"loop/model/openai/a.go", local("loop/tool/mcp"), true},
		{"loop/model/openai/a.go", local("loop/model/openai/openaitest"), true},
		{"loop/model/openai/a_test.go", local("loop/model/openai/openaitest"), false},
		{"loop/tool/mcp/a.go", local("store"), true},
		{"loop/worker/a.go", river, false},
		{"loop/worker/a.go", pgx, false},
		{"loop/worker/a.go", local("store"), false},
		{"loop/worker/a.go", local("api"), true},
		{"loop/worker/a.go", local("loop/model/openai"), true},
		{"loop/looptest/a.go", local("loop/model/scripted"), false},
		{"loop/looptest/a.go", local("store"), true},
		{"loop/looptest/a.go", pgx, true},
		{"store/a.go", pgx + "/pgxpool", false},
		{"store/a.go", river, true},
		{"store/migrate.go", river + "/rivermigrate", false},
		{"store/a.go", local("api"), true},
		{"store/a_test.go", local("api"), true},
		{"store/a.go", local("loop/worker"), true},
		{"store/a.go", local("store/pgembed"), true},
		{"store/a.go", local("store/storetest"), true},
		{"store/a_test.go", local("store/storetest"), false},
		{"store/storetest/a.go", local("store/pgembed"), false},
		{"store/storetest/a.go", local("loop/looptest"), false},
		{"store/pgembed/a.go", "github.com/fergusstrange/embedded-postgres", false},
		{"store/pgembed/a.go", local("store"), true},
		{"migrations/a.go", local("store"), true},
		{"api/a.go", connect, false},
		{"api/a.go", local("loop"), false},
		{"api/a.go", local("store"), true},
		{"api/a_test.go", local("store"), true},
		{"api/a.go", local("loop/worker"), true},
		{"api/a.go", pgx, true},
		{"api/a.go", "database/sql", true},
		{"api/sse/a.go", local("api"), false},
		{"api/sse/a.go", local("api/gen/agentd/v1"), false},
		{"api/sse/a.go", local("api/aisdk"), true},
		{"api/client/a.go", local("api/gen/agentd/v1"), false},
		{"cmd/agentd/a.go", connect, false},
		{"cmd/agentd/a.go", local("store/pgembed"), false},
		{"cmd/agentd/a.go", local("store/storetest"), true},
		{"cmd/agentd/a_test.go", local("store/storetest"), false},
		{"cmd/agentd/a.go", "github.com/fergusstrange/embedded-postgres", true},
		{"loop/a.go", connect, true},
		{"loop/a.go", local("cmd/agentd"), true},
	}
	for _, tt := range tests {
		if got := violations(tt.file, tt.importPath); (len(got) > 0) != tt.refused {
			t.Errorf("violations(%q, %q) = %q, want refused %t", tt.file, tt.importPath, got, tt.refused)
		}
	}
}
