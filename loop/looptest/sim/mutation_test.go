package sim_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/loop/looptest/sim"
)

// rules says what each rule of the world is about.
var rules = map[string]string{
	"zombie":      "nobody writes without the lease",
	"entry":       "a tool is entered only for a start that is in the log",
	"push":        "what a client is shown is in the log",
	"decision":    "what follows from a decision is written with it",
	"idempotency": "a key stands for one run",
	"accepted":    "who was accepted is there once",
	"effect":      "a tool that is not idempotent takes effect once",
	"append":      "no append is refused for what is in it",
	"error":       "the engine plans nothing that the tables refuse",
	"liveness":    "every run ends once nothing goes wrong any more",
	"cancel":      "a run that was cancelled does not complete",
}

// found tells a rule.
func found(rule string) string {
	if of, ok := strings.CutPrefix(rule, "log: "); ok {
		return "the rule `" + of + "` of `agentd verify --strict`"
	}
	if rules[rule] == "" {
		return "`" + rule + "`"
	}
	return rules[rule]
}

// TestRecordMutations plays schedules with each mutation until it is found. What
// finds it is the table in docs/durability.md: `make record` writes it, and
// otherwise it has to be the same.
func TestRecordMutations(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("| the bug | what finds it | in which schedule |\n|---|---|---|\n")
	for _, m := range sim.Mutations() {
		row := ""
		for seed := uint64(1); seed <= 500 && row == ""; seed++ {
			if r := sim.Play(t, seed, m.Mutation); r.Found != nil {
				row = fmt.Sprintf("| %s | %s | %s |\n", m.Like, found(r.Found.Rule), within(seed))
			}
		}
		if row == "" {
			t.Errorf("500 schedules do not find the mutation %q", m.Mutation)
		}
		b.WriteString(row)
	}
	if t.Failed() {
		return
	}
	const begin, end = "<!-- mutations:begin -->\n", "<!-- mutations:end -->"
	path := filepath.Join("..", "..", "..", "docs", "durability.md")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(content), begin)
	inside, after, there := strings.Cut(rest, end)
	switch {
	case !ok || !there:
		t.Fatal("docs/durability.md has no place for the table")
	case os.Getenv("AGENTD_RECORD") != "":
		if err := os.WriteFile(path, []byte(before+begin+b.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	case inside != b.String():
		t.Errorf("docs/durability.md says something else than what happens: make record\n%s", b.String())
	}
}

// within is a bound that changes less often than the number.
func within(n uint64) string {
	for _, bound := range []uint64{10, 50, 200} {
		if n <= bound {
			return fmt.Sprintf("one of the first %d", bound)
		}
	}
	return "one of the first 500"
}
