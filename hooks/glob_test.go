package hooks_test

import (
	"path"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
)

func TestNamesAreNoPaths(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		glob, name string
		hit        bool
	}{
		{"*", "crm/delete", true},
		{"crm*", "crm/delete/all", true},
		{"crm/*", "crm/delete/all", true},
		{"crm?delete", "crm/delete", true},
		{"crm[^a]delete", "crm/delete", true},
		{"*/delete", "crm/x/delete", true},
		{`crm\/delete`, "crm/delete", true},
		{"crm", "crm/delete", false},
		{"crm/delete", "crm/deleted", false},
		{"CRM/*", "crm/delete", false},
		{"", "/", false},
	} {
		if hit, err := hooks.MatchName(c.glob, c.name); hit != c.hit || err != nil {
			t.Errorf("%q of %q: %t, %v", c.glob, c.name, hit, err)
		}
	}
	if _, err := hooks.MatchName("a[", "a/"); err == nil {
		t.Error("a glob that is none is taken for one")
	}
}

func TestNamesWithoutASlashMatchAsPaths(t *testing.T) {
	t.Parallel()
	for _, glob := range []string{"memory_*", "a[b-d]?", `\*`, "[^x]*", "[", "a"} {
		for _, name := range []string{"memory_clear", "abc", "*", "x", "", "a"} {
			hit, err := hooks.MatchName(glob, name)
			if want, wrong := path.Match(glob, name); hit != want || (err != nil) != (wrong != nil) {
				t.Errorf("%q of %q: %t, %v; want %t, %v", glob, name, hit, err, want, wrong)
			}
		}
	}
}
