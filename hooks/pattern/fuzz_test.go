package pattern_test

import (
	"math/rand/v2"
	"testing"
)

// FuzzSplit: wherever a text is split, and with whatever patterns, it is redacted
// as the whole is, what regexp finds is taken out, and what is
// remembered makes no difference.
func FuzzSplit(f *testing.F) {
	for i, s := range []string{"token is key-test-0123456789abcdef bye", "abcxxd", "BEGINaKEYxEND END", "\xe2\x82key-\u017f", "a\nab b\n"} {
		f.Add(s, uint64(i))
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		patterns := make([]string, 1+rnd.IntN(3))
		for i := range patterns {
			patterns[i] = tricky[rnd.IntN(len(tricky))]
		}
		checkText(t, rnd, patterns, text[:min(len(text), 1<<10)])
		checkRemembered(t, rnd, redactor(t, "*", patterns...), text[:min(len(text), 1<<10)])
	})
}

// FuzzSplitJSON: the same of what may be JSON, which stays it.
func FuzzSplitJSON(f *testing.F) {
	for i, s := range []string{`{"a":"key\u002dtest-0123456789abcdef"}`, `[4111111111111111,"\ud83d\ude00",null]`, `{"a":"key-test-0`, `{"a":1,}`, "\"\x1f\""} {
		f.Add(s, uint64(i))
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		patterns := make([]string, 1+rnd.IntN(3))
		for i := range patterns {
			patterns[i] = tricky[rnd.IntN(len(tricky))]
		}
		checkJSON(t, rnd, patterns, text[:min(len(text), 1<<10)])
	})
}
