package hooks_test

import (
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
)

func TestNamesThatStandInLogsAndLabels(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"a": true, "a-b_c.9": true, strings.Repeat("a", 64): true,
		"": false, strings.Repeat("a", 65): false, "-a": false, "a.": false, "_": false, "A": false, "ä": false, "a b": false, "a\n": false,
	} {
		if hooks.ValidName(name) != want {
			t.Errorf("%q: %t; want %t", name, !want, want)
		}
	}
}
