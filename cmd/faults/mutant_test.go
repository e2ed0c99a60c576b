package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mutant is agentd with one line that is wrong.
type mutant struct {
	file, right, wrong string
	// figures are those of which at least one has to show it.
	figures []string
}

var mutants = map[string]mutant{
	"tools are repeated that must not be": {
		file: "loop/gates_tools.go", figures: []string{duplicates},
		right: "if tool, ok := agent.tool(c.Name); ok && tool.Spec().Idempotent {",
		wrong: "if tool, ok := agent.tool(c.Name); ok {",
	},
	"a request that is made again is another one": {
		file: "loop/start.go", figures: []string{repeatedMessage, wrongAnswers},
		right: `if s.cmd.IdempotencyKey == "" {`,
		wrong: `if true {`,
	},
}

// TestABuildThatIsBrokenIsCaught shows that the figures can be other than zero.
func TestABuildThatIsBrokenIsCaught(t *testing.T) {
	if os.Getenv("AGENTD_FULL_SIZE") == "" {
		t.Skip("takes minutes: make test-mutants")
	}
	t.Parallel()
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) {
			binary := m.build(t)
			// Not one of t's own, which Postgres may not enter.
			keep, err := os.MkdirTemp("", "agentd-mutant-")
			if err == nil {
				t.Cleanup(func() { _ = os.RemoveAll(keep) })
				err = os.Chmod(keep, 0o755)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, seed := range []string{"1", "2", "3", "4", "5", "6"} {
				var out bytes.Buffer
				err := run(t.Context(), []string{"--duration=30s", "--users=8", "--kill-every=700ms", "--seed=" + seed, "--agentd=" + binary, "--keep=" + keep}, &out, t.Output())
				if err == nil {
					continue
				}
				if !errors.Is(err, errBroken) {
					t.Fatalf("%v\n%s", err, &out)
				}
				lines := strings.Split(out.String(), "\n")
				for _, f := range m.figures {
					if n := number(t, lines, f); n > 0 {
						t.Logf("%s: %d %s with seed %s", name, n, f, seed)
						return
					}
				}
				t.Errorf("it shows elsewhere:\n%s", &out)
				return
			}
			t.Error("nothing shows it")
		})
	}
}

// build makes the mutant; the sources stay as they are.
func (m mutant) build(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(root, filepath.FromSlash(m.file))
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), m.right); n != 1 {
		t.Fatalf("%s has %q %d times: the mutant is out of date", m.file, m.right, n)
	}
	dir := t.TempDir()
	wrong, overlay, binary := filepath.Join(dir, "wrong.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "agentd")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {source: wrong}})
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{wrong: []byte(strings.Replace(string(text), m.right, m.wrong, 1)), overlay: list} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-tags", "faults", "-overlay", overlay, "-o", binary, "../agentd")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return binary
}
