package rules_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-2ca4966b/agentd/hooks/rules"
)

// TestPlacesInsideExpressionsAreThoseOfTheFile, in whatever way YAML lets the
// expression be written: the only unknown name is where the error says.
func TestPlacesInsideExpressionsAreThoseOfTheFile(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		terms := rapid.SliceOfN(rapid.SampledFrom([]string{`turn > 1`, `tenant == "ü"`, `agent != 'it\'s'`, `"\\" == run`, `tenant  in ["a"]`}), 0, 4).Draw(t, "terms")
		at := rapid.IntRange(0, len(terms)).Draw(t, "at")
		terms = append(terms[:at:at], append([]string{"zzz"}, terms[at:]...)...)
		broken := strings.Join(terms, " &&\n")
		line := strings.Join(terms, " && ")
		indented := strings.ReplaceAll(broken, "\n", "\n      ")
		doubled := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "ü", `\xfc`, "\n", `\n`).Replace(broken)
		written := map[string]string{
			"plain":    indented,
			"single":   "'" + strings.ReplaceAll(indented, "'", "''") + "'",
			"double":   `"` + doubled + `"`,
			"unicode":  `"` + strings.NewReplacer(`\xfc`, `\u00fc`).Replace(doubled) + `"`,
			"long":     `"` + strings.NewReplacer(`\xfc`, `\U000000fc`, ` &&\n`, " &&\\\n       \\ ").Replace(doubled) + `"`,
			"literal":  "|\n      " + indented,
			"stripped": "|-\n      " + indented,
			"folded":   ">\n      " + strings.ReplaceAll(indented, "\n", "\n\n"),
		}
		style := rapid.SampledFrom([]string{"plain", "single", "double", "unicode", "long", "literal", "stripped", "folded"}).Draw(t, "style")
		if strings.HasPrefix(terms[0], `"`) && style == "plain" {
			style = "single"
		}
		key, text := "when", written[style]
		if rapid.Bool().Draw(t, "in a text") && style != "plain" {
			key, text = "block", "'ü {{ "+strings.ReplaceAll(line, "'", "''")+" }}'"
		}
		file := "rules:\n  - id: a\n    gate: BeforeToolCall\n    " + key + ": " + text + "\n"
		if key == "when" {
			file += "    block: x\n"
		}
		_, err := parse(file)
		var told *rules.Error
		if !errors.As(err, &told) || !strings.Contains(told.Text, "'zzz'") {
			t.Fatalf("%v\n%s", err, file)
		}
		lines := strings.Split(file, "\n")
		if found := []rune(lines[told.Line-1]); told.Column > len(found) || !strings.HasPrefix(string(found[told.Column-1:]), "zzz") {
			t.Fatalf("%s, %s: the name is not at %d:%d\n%s", style, strconv.Quote(text), told.Line, told.Column, file)
		}
	})
}
