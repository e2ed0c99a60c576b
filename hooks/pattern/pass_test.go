package pattern_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/pattern"
)

func TestAPassCountsWhatItTakesOut(t *testing.T) {
	t.Parallel()
	r, err := pattern.New(
		pattern.Rule{Name: "word", Pattern: `\b[a-z]{3}\b`, With: "W"}, pattern.Rule{Name: "digits", Pattern: `\d+`, With: "D"},
		pattern.Rule{Name: "both", Pattern: `c \d`, With: "B"}, pattern.Rule{Name: "again", Pattern: `\d+`, With: "A"},
	)
	if err != nil {
		t.Fatal(err)
	}
	p := r.Begin(t.Context())
	if p.Text("nothing here") != "nothing here" || p.JSON(`["no"]`) != `["no"]` || p.Found() != nil || p.Err() != nil {
		t.Errorf("of nothing: %v, %v", p.Found(), p.Err())
	}
	// What overlaps is one, of the pattern that begins first.
	if got := p.Text("abd 12, c 34") + p.JSON(`{"abc":7}`); got != `W D, B{"W":"D"}` {
		t.Errorf("%s", got)
	}
	if want := map[string]int{"word": 2, "digits": 2, "both": 1}; !maps.Equal(p.Found(), want) {
		t.Errorf("%v; want %v", p.Found(), want)
	}
}

func TestAPassThatFailsGivesNothingOut(t *testing.T) {
	t.Parallel()
	long := redactor(t, strings.Repeat("y", 1000), "x")
	for name, c := range map[string]struct {
		r    *pattern.Redactor
		text string
		want error
	}{
		"much is found": {redactor(t, "", "x"), strings.Repeat("x", pattern.MaxFound+1), pattern.ErrFound},
		"it gets long":  {long, strings.Repeat("x", 17_000), pattern.ErrLong},
		"no time":       {long, "x", context.Canceled},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		if cancel(); !errors.Is(c.want, context.Canceled) {
			ctx = t.Context()
		}
		p := c.r.Begin(ctx)
		for _, f := range []func(string) string{p.Text, p.JSON, p.Text} {
			if got := f(c.text); got != "" || !errors.Is(p.Err(), c.want) {
				t.Errorf("%s: %.20q, %v", name, got, p.Err())
			}
		}
		if got := p.Text(""); got != "" {
			t.Errorf("%s, afterwards: %q", name, got)
		}
	}
	p := long.Begin(t.Context())
	for range 2 {
		p.Text(strings.Repeat("x", 10_000))
	}
	if !errors.Is(p.Err(), pattern.ErrLong) {
		t.Errorf("of two texts: %v", p.Err())
	}
}

func TestPatternsThatAreTooLargeAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"(":                          "no regular expression that is taken here",
		"a*":                         "matches the empty text",
		strings.Repeat("a", 1025):    "has 1025 bytes",
		"(a{100}b{100}){5}c{999}":    "comes to about 4014 instructions",
		"(?:a?){600}b":               "more than 100000 ways",
		`(?m)(?:a?b?){200}(?:\b|^)c`: "more than 100000 ways",
		`(?:(?:a|b)?(?:c|d)?){300}e`: "more than 100000 ways",
	} {
		_, err := pattern.New(pattern.Rule{Pattern: "x"}, pattern.Rule{Pattern: text})
		var bad *pattern.RuleError
		if !errors.As(err, &bad) || bad.Index != 1 || !strings.Contains(err.Error(), "pattern 2: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20s: %v; want %q", text, err, want)
		}
	}
	if _, err := pattern.Compile("a{900}(b?){9}"); err != nil {
		t.Error(err)
	}
	if _, err := pattern.Compile("a{1001}"); err == nil {
		t.Error("more than a thousand times")
	}
}

// TestAMatchThatIsTooLongStopsTheText: nothing of it is given out, and nothing
// behind it.
func TestAMatchThatIsTooLongStopsTheText(t *testing.T) {
	t.Parallel()
	r := redactor(t, "*", `BEGIN[a-z ]*END`)
	for _, hold := range []int{10, 0, 1 << 20} {
		limit := hold
		if hold != 10 {
			limit = pattern.MaxHold
		}
		fits := "BEGIN" + strings.Repeat("a", limit-8) + "END"
		if got, err := inOne(r.Text(hold), "so "+fits+"."); err != nil || got != "so *." {
			t.Errorf("%d: %q, %v", hold, got, err)
		}
		s := r.Text(hold)
		out, err := inOne(s, "so BEGIN"+strings.Repeat("a", limit-4)+"END.")
		var over *pattern.HoldError
		if !errors.As(err, &over) || over.Limit != limit || out != "so " || !errors.Is(err, pattern.ErrHold) || !strings.Contains(err.Error(), "bytes") {
			t.Errorf("%d: %.20q, %v", hold, out, err)
		}
		if out, again := s.Push(nil, "more"); !errors.Is(again, err) || out != nil {
			t.Errorf("%d, afterwards: %q, %v", hold, out, again)
		}
	}
}

// TestWhatIsSureIsNotHeld: a match without an end goes out as one replacement, and
// its rest is swallowed; a beginning that cannot become one is let go.
func TestWhatIsSureIsNotHeld(t *testing.T) {
	t.Parallel()
	secrets, _ := pattern.Lookup(pattern.SetSecrets, "*")
	r, err := pattern.New(append(secrets, pattern.Rule{Pattern: "key-test-[0-9a-f]+", With: "+"})...)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ first, rest, last, out string }{
		{"key-test-0", "0", ".", "+."},
		{"-----BEGIN PRIVATE KEY-----", "ab/-\n", "-----END PRIVATE KEY----- so", "* so"},
		{"sk-" + strings.Repeat("a", 16), "a", " b", "* b"},
		{"key-tes ", " ", "", "key-tes " + strings.Repeat(" ", 50_000)},
	} {
		s := r.Text(64)
		out, err := s.Push(nil, c.first)
		for range 50_000 / len(c.rest) {
			if err == nil {
				out, err = s.Push(out, c.rest)
			}
			if s.Held() > 32 {
				t.Fatalf("%d bytes of %q are held", s.Held(), c.first)
			}
		}
		if err == nil {
			out, err = s.Push(out, c.last)
		}
		if err == nil {
			out, err = s.End(out)
		}
		if err != nil || string(out) != c.out {
			t.Errorf("%.40q, %v; want %.40q", out, err, c.out)
		}
	}
}

func TestSetsHaveEachPatternOnce(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, set := range pattern.Sets() {
		rules, ok := pattern.Lookup(set, "*")
		if !ok {
			t.Errorf("%s is unknown", set)
		}
		for _, r := range rules {
			if seen[r.Name] || r.With != "*" {
				t.Errorf("%+v", r)
			}
			seen[r.Name] = true
		}
		if _, err := pattern.New(rules...); err != nil {
			t.Error(err)
		}
	}
	for _, name := range pattern.Names() {
		if !seen[name] {
			t.Errorf("%s is in no set", name)
		}
	}
	if _, ok := pattern.Lookup("e-mail", ""); ok {
		t.Error("a set that there is none of")
	}
}
