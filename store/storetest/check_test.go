package storetest

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/store"
)

func TestRequireToolCalls(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		seen seen
		want string
	}{
		{seen{}, "no test of this package had a database"},
		{seen{databases: 3}, "none of the 3 databases"},
		{seen{databases: 3, toolCalls: 1}, ""},
	} {
		err := RequireToolCalls(test.seen)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("RequireToolCalls(%+v) = %v, want %q", test.seen, err, test.want)
		}
	}
}

func TestRunFailsWhenAnythingIsWrong(t *testing.T) {
	t.Parallel()
	if partial() {
		t.Skip("checks are for runs of all tests, and this one is not")
	}
	refuse := func(seen) error { return errors.New("refused") }
	for name, test := range map[string]struct {
		tests tests
		check []Check
		code  int
		said  string
	}{
		"tests failed":  {func() int { return 3 }, []Check{refuse}, 3, ""},
		"check refuses": {func() int { return 0 }, []Check{refuse}, 1, "refused"},
	} {
		var said bytes.Buffer
		if code := finish(test.tests(), &said, seen{}, test.check); code != test.code || !strings.Contains(said.String(), test.said) {
			t.Errorf("%s: code %d, want %d; said %q", name, code, test.code, said.String())
		}
	}
}

func TestWhatATestWroteByHandBreaksNoRule(t *testing.T) {
	t.Parallel()
	d := func(row, column, want string) store.Difference {
		return store.Difference{Table: "events", Row: row, Column: column, Want: want}
	}
	all := []store.Difference{
		d("a/1", "lease", store.WantRule), d("a/2", "answer", store.WantRule), d("a/3", "seq", "3"),
		d("b/2", "answer", store.WantRule),
	}
	got := honest(slices.Clone(all))
	if !slices.Equal(got, all[2:]) {
		t.Errorf("%v; want what the tables say of a, and what breaks a rule in b", got)
	}
}
