package rules

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/pattern"
)

// TestDocsSayWhatThereIs: the tables of gates, and examples that hold.
func TestDocsSayWhatThereIs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	code := func(words []string) string { return "`" + strings.Join(words, "` `") + "`" }
	for _, g := range gates {
		var own []string
		for _, v := range g.vars[len(always):] {
			own = append(own, v.name)
		}
		changes := "–"
		if len(g.changes) > 0 {
			changes = code(g.changes)
		}
		row := fmt.Sprintf("| %s | %s | %s | %s |", code([]string{string(g.name)}), code(own), code(g.actions), changes)
		if !strings.Contains(string(text), "\n"+row+"\n") {
			t.Errorf("docs/rules.md does not say: %s", row)
		}
	}
	examples := 0
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		set, err := Parse([]File{{Name: "docs/rules.md", Text: []byte(block[1])}})
		if err != nil {
			t.Errorf("%v\n%s", err, block[1])
			continue
		}
		rep, err := set.Test(t.Context())
		if err != nil || len(rep.Failures) > 0 {
			t.Errorf("%+v, %v\n%s", rep, err, block[1])
		}
		examples += rep.Examples
	}
	if examples < 10 {
		t.Errorf("docs/rules.md has %d examples", examples)
	}
	for what, n := range map[string]int{
		"files": MaxFiles, "KiB in a file": MaxFileBytes >> 10, "rules": MaxRules, "bytes in an expression": MaxExpressionBytes,
		"expressions in a rule": maxExpressions, "levels of nesting in an expression": maxExpressionNesting, "loops inside each other": maxComprehensions,
		"instructions of a regular expression": pattern.MaxInstructions, "MiB of text": maxInputBytes >> 20, "values in JSON": maxJSONValues, "units of cost": maxCost,
	} {
		if !strings.Contains(string(text), fmt.Sprintf("%d %s", n, what)) {
			t.Errorf("docs/rules.md does not say: %d %s", n, what)
		}
	}
}
