package pattern_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/pattern"
)

// tricky are patterns in which the order of alternatives, what is greedy, what is
// around a match, and other cases of letters make a difference.
var tricky = []string{
	`key-test-[0-9a-f]{16}`, `key-test-[0-9a-f]+`, `key-[a-f]+?`, `ab|abcd|b.*?d`, `(?:a|ab)(?:c|bcd)*`, `a.*b`, `a.*?b`,
	`(?:ab)+?c?`, `(?:a*b)*c`, `(?i)\bkey-s[a-f]*\b`, `(?i)k+s`, `(?m)^a.*$`, `\Aab*`, `b+\z`, `\bab?\b`, `\Ba\B`, `(?s)b.*`,
	`x+`, `[^a]b`, `.-`, `ü+|é`, `[^\x00-\x7f]`, `\x{fffd}`, `(?s)BEGIN[a-]+KEY.*?END`, `(?s)BEGIN.*?(?:END|\z)`, `(?s)BEGIN(?:.*?END|.*)`,
	`(?:a?){4}b`, `(?:a|b)*?c(?:d|$)`, `a(?:.*b)?`, `((a+)b?)+-`, `\bb|$a`, `^(?:|a)b`, `a{2,5}?`, `(?:aa|a)a`, `b(?:|a)`,
	// A match that begins inside of one which another ends.
	`abc|a?b.*d`, `xa|abc|a?b.*d`,
}

// words are what random texts are made of.
var words = []string{
	"a", "a", "b", "ab", "c", "d", "x", "-", " ", "\n", "key-", "key-test-", "0123456789abcdef", "f", "BEGIN", "KEY", "END", "ü", "é", "\u017f", "\u212a",
	"\U0001F600", "\xff", "\xe2\x82", "\xf0\x9f", "\ufffd", "s", "K", "█", "[redacted]", "\"", "\\", "\\n", "\\u0061", "\\ud83d", "{", "}", "[", "]", ":", ",", "1", "4111111111111111", "@x.de", "10.0.0.1",
}

func randomText(r *rand.Rand) string {
	var b strings.Builder
	few := words
	if r.IntN(2) == 0 { // what is alike meets itself
		few = make([]string, 1+r.IntN(5))
		for i := range few {
			few[i] = words[r.IntN(len(words))]
		}
	}
	for range r.IntN(24) {
		b.WriteString(few[r.IntN(len(few))])
	}
	return b.String()
}

// randomPattern is one of few letters, so that much of it meets in one place.
func randomPattern(r *rand.Rand, depth int) string {
	part := func() string { return randomPattern(r, depth-1) }
	if depth == 0 {
		return []string{"a", "b", "c", ".", "[ab]", "[^a]", `\b`, "$", "(?i:k)", "ü"}[r.IntN(10)]
	}
	switch r.IntN(6) {
	case 0:
		return "(?:" + part() + "|" + part() + ")"
	case 1:
		return "(?:" + part() + ")" + []string{"*", "+", "?", "*?", "+?", "??", "{2}", "{1,3}", "{0,2}?"}[r.IntN(9)]
	case 2:
		return "(?:" + part() + "|" + part() + part() + "|" + part() + ")"
	}
	return part() + part()
}

func redactor(t testing.TB, with string, patterns ...string) *pattern.Redactor {
	t.Helper()
	var list []pattern.Rule
	for _, p := range patterns {
		list = append(list, pattern.Rule{Name: p, Pattern: p, With: with})
	}
	r, err := pattern.New(list...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// stream is a text or a piece of JSON that arrives.
type stream interface {
	Push([]byte, string) ([]byte, error)
	End([]byte) ([]byte, error)
	Held() int
}

// inOne is what a stream makes of a text that comes at once.
func inOne(s stream, text string) (string, error) {
	out, err := s.Push(nil, text)
	if err != nil {
		return string(out), err
	}
	out, err = s.End(out)
	return string(out), err
}

// checkSplit pushes pieces of a text and compares with what the whole has come
// to.
func checkSplit(t testing.TB, what string, s stream, text string, cuts []int, whole string, wholeErr error) {
	t.Helper()
	var out []byte
	var err error
	from := 0
	for _, at := range append(slices.Clone(cuts), len(text)) {
		if out, err = s.Push(out, text[from:at]); err != nil {
			break
		}
		from = at
		if wholeErr == nil && !strings.HasPrefix(whole, string(out)) {
			t.Fatalf("%s: %q cut at %v: %q was given out, which is no beginning of %q", what, text, cuts, out, whole)
		}
		if h := s.Held(); h < 0 || h > at {
			t.Fatalf("%s: %q cut at %v: %d bytes held of %d", what, text, cuts, h, at)
		}
	}
	if err == nil {
		out, err = s.End(out)
	}
	if (err == nil) != (wholeErr == nil) || err != nil && err.Error() != wholeErr.Error() {
		t.Fatalf("%s: %q cut at %v: %v; as a whole %v", what, text, cuts, err, wholeErr)
	}
	if err == nil && string(out) != whole {
		t.Fatalf("%s: %q cut at %v\n     became %q\nas a whole %q", what, text, cuts, out, whole)
	}
}

func randomCuts(r *rand.Rand, n int) []int {
	cuts := make([]int, r.IntN(6))
	for i := range cuts {
		cuts[i] = r.IntN(n + 1)
	}
	slices.Sort(cuts)
	return cuts
}

// found is where each pattern matches from each place, as package regexp goes from
// there, each byte with whether it is in one.
func found(t testing.TB, patterns []string, text string) []bool {
	t.Helper()
	in := make([]bool, len(text))
	for _, p := range patterns {
		n := 0 // characters so far
		for i := range text {
			if at := from(t, p, n).FindStringSubmatchIndex(text); at != nil {
				for j := at[2]; j < at[3]; j++ {
					in[j] = true
				}
				if at[2] != i {
					t.Fatalf("%q from %d: %v", p, i, at)
				}
			}
			n++
		}
	}
	return in
}

var compiled sync.Map

// from is a pattern that begins behind n characters.
func from(t testing.TB, p string, n int) *regexp.Regexp {
	t.Helper()
	key := fmt.Sprint(n, p)
	if re, ok := compiled.Load(key); ok {
		return re.(*regexp.Regexp)
	}
	re, err := regexp.Compile(`\A(?s:.){` + strconv.Itoa(n) + `}(` + p + `)`)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(tricky, p) {
		compiled.Store(key, re)
	}
	return re
}

// checkText checks all that is promised of a text.
func checkText(t testing.TB, rnd *rand.Rand, patterns []string, text string) (more bool) {
	t.Helper()
	const with = "<key-test-0>"
	r := redactor(t, with, patterns...)
	spans := pattern.Spans(r, text)
	in := make([]bool, len(text))
	var want strings.Builder
	end := 0
	for _, s := range spans {
		if s[0] < end || s[1] <= s[0] {
			t.Fatalf("%q of %q: spans %v", patterns, text, spans)
		}
		want.WriteString(text[end:s[0]] + with)
		end = s[1]
		for i := s[0]; i < s[1]; i++ {
			in[i] = true
		}
	}
	want.WriteString(text[end:])
	for _, p := range patterns {
		for _, at := range regexp.MustCompile(p).FindAllStringIndex(text, -1) {
			if i := slices.Index(in[at[0]:at[1]], false); i >= 0 {
				t.Fatalf("%q finds %v in %q; of %q only %v is taken out", p, at, text, patterns, spans)
			}
		}
	}
	if len(text) < 100 {
		for i, is := range found(t, patterns, text) {
			if is && !in[i] {
				t.Fatalf("%q match %q at %d; only %v is taken out", patterns, text, i, spans)
			}
			more = more || !is && in[i]
		}
	}
	whole, err := inOne(r.Text(0), text)
	if err != nil || whole != want.String() {
		t.Fatalf("%q of %q: %q, %v; want %q", patterns, text, whole, err, want.String())
	}
	for range 3 {
		checkSplit(t, fmt.Sprintf("%q", patterns), r.Text(0), text, randomCuts(rnd, len(text)), whole, nil)
	}
	for _, hold := range []int{3, 10} {
		whole, err := inOne(r.Text(hold), text)
		if err != nil && !errors.Is(err, pattern.ErrHold) {
			t.Fatal(err)
		}
		checkSplit(t, fmt.Sprintf("%q, %d bytes held", patterns, hold), r.Text(hold), text, randomCuts(rnd, len(text)), whole, err)
	}
	json := r.JSON(0)
	whole, err = inOne(json, text)
	if err != nil {
		t.Fatal(err)
	}
	checkSplit(t, fmt.Sprintf("%q in JSON", patterns), r.JSON(0), text, randomCuts(rnd, len(text)), whole, nil)
	return more
}

func TestASplitTextIsRedactedAsTheWholeIs(t *testing.T) {
	t.Parallel()
	n := 200
	if fullSize {
		n = 100_000
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	more := 0
	for range n {
		patterns := make([]string, 1+rnd.IntN(3))
		text := randomText(rnd)
		random := rnd.IntN(2) == 0
		for i := range patterns {
			patterns[i] = tricky[rnd.IntN(len(tricky))]
			for random {
				patterns[i] = randomPattern(rnd, 1+rnd.IntN(4))
				if re, err := regexp.Compile(patterns[i]); err == nil && !re.MatchString("") {
					break
				}
			}
		}
		if random && rnd.IntN(4) > 0 {
			text = ""
			for range rnd.IntN(14) {
				text += []string{"a", "b", "c", "k", "\u212a", "ü", "\n"}[rnd.IntN(2+rnd.IntN(6))]
			}
		}
		if checkText(t, rnd, patterns, text) {
			more++
		}
	}
	t.Logf("%d texts; of %d more was taken out than the union of matches", n, more)
}
