package setting_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/pattern"
	"github.com/seed-2ca4966b/agentd/hooks/setting"
	"github.com/seed-2ca4966b/agentd/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }

// refused checks that err is about a field of a config of the kind k.
func refused(t *testing.T, err error, field string) {
	t.Helper()
	var bad *setting.Error
	if !errors.As(err, &bad) || bad.Kind != "k" || bad.Field != field || bad.Problem == "" {
		t.Errorf("%v; want an Error about %q", err, field)
		return
	}
	if at := "k: " + field + ": "; field != "" && !strings.HasPrefix(err.Error(), at) {
		t.Errorf("%v; want it to begin with %q", err, at)
	}
}

func TestGlobsThatAreNoneAreRefused(t *testing.T) {
	t.Parallel()
	for _, last := range []string{"b[", "", strings.Repeat("x", 1_025)} {
		refused(t, setting.CheckGlobs("k", "tools", []string{"a", last}), "tools[1]")
	}
	refused(t, setting.CheckGlobs("k", "tools", make([]string, 101)), "tools")
	if err := setting.CheckGlobs("k", "tools", slices.Repeat([]string{"memory_*"}, 100)); err != nil {
		t.Error(err)
	}
	if got := setting.Errorf("k", "", "has %d", 7).Error(); got != "k: has 7" {
		t.Errorf("about all of it: %q", got)
	}
}

func TestARedactionThatCannotBeMeantIsRefused(t *testing.T) {
	t.Parallel()
	for field, r := range map[string]setting.Redaction{
		"patterns":    {},
		"patterns[1]": {Patterns: []string{"email", "e-mail"}},
		"matching[0]": {Patterns: []string{"secrets"}, Matching: []string{"a*"}},
		"matching[1]": {Matching: []string{"a", "("}},
		"matching[2]": {Matching: []string{"a", "b", ""}},
		"matching[3]": {Matching: []string{"a", "b", "c", "((a{100}){100}){100}"}},
		"":            {Matching: make([]string, 33)},
		"with":        {Matching: []string{"a"}, With: strings.Repeat("x", 257)},
	} {
		_, err := r.Redactor("k")
		refused(t, err, field)
	}
	for _, with := range []string{"\xff", "\x00"} {
		_, err := setting.Redaction{Matching: []string{"a"}, With: with}.Redactor("k")
		refused(t, err, "with")
	}
}

func TestARedactionFindsWhatItNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		redaction  setting.Redaction
		text, want string
	}{
		{setting.Redaction{Patterns: []string{pattern.SetSecrets, "email"}}, "a@example.org AKIAIOSFODNN7EXAMPLE", "[redacted] [redacted]"},
		{setting.Redaction{Patterns: []string{"email"}, Matching: []string{`ACME-\d+`}, With: "-"}, "ACME-1 a@example.org", "- -"},
	} {
		r, err := c.redaction.Redactor("k")
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Begin(t.Context()).Text(c.text); got != c.want {
			t.Errorf("%q becomes %q, want %q", c.text, got, c.want)
		}
	}
}
