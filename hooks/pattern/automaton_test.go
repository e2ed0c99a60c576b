package pattern_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/pattern"
)

// both are the streams of r for a text.
func both(r *pattern.Redactor, hold int) map[string]owing {
	return map[string]owing{"text": r.Text(hold), "JSON": r.JSON(hold)}
}

type owing interface {
	stream
	Owes() bool
}

// checkRemembered checks that with what it remembers a Redactor does after each piece
// what it does without, down to what it holds.
func checkRemembered(t testing.TB, rnd *rand.Rand, r *pattern.Redactor, text string) {
	t.Helper()
	cuts := append(randomCuts(rnd, len(text)), len(text))
	hold := []int{0, 0, 3, 10, 40}[rnd.IntN(5)]
	plainly := both(pattern.Plainly(r), hold)
	for kind, s := range both(r, hold) {
		plain, from := plainly[kind], 0
		for i := range len(cuts) + 1 {
			var out, want []byte
			var err, wantErr error
			if i < len(cuts) {
				out, err = s.Push(nil, text[from:cuts[i]])
				want, wantErr = plain.Push(nil, text[from:cuts[i]])
				from = cuts[i]
			} else {
				out, err = s.End(nil)
				want, wantErr = plain.End(nil)
			}
			got := fmt.Sprintf("%q, %v, holds %d, owes %v", out, err, s.Held(), s.Owes())
			if want := fmt.Sprintf("%q, %v, holds %d, owes %v", want, wantErr, plain.Held(), plain.Owes()); got != want {
				t.Fatalf("%s %q cut at %v, piece %d:\n got %s\nwant %s", kind, text, cuts, i+1, got, want)
			}
		}
	}
}

// large are patterns of which not all can be remembered: of many threads, of long
// matches, of many kinds of characters, and those of which two families meet.
var large = []string{`(?:a?){40}[bx]`, `a[abd -]{0,200}c`, `\pL+b`, `(?i)[\p{Greek}k-s]+-`, `(?:a|b|ab)+[cd]`}

// ofSecrets is a random text of words, addresses and beginnings of what the named
// patterns find.
func ofSecrets(rnd *rand.Rand) string {
	parts := []string{
		"the ", "tomorrow, ", "bearer ", "Bearer\t", "authorization: basic ", "https://", "ada:", "pass@", "example.org/", "AKIA", "aws_secret_access_key=",
		"0123456789abcdef", "ABCDEFGHIJKLMNOP", "sk-", "ghp_", "eyJhbGciOi", ".eyJzdWIiOi", "-----BEGIN ", "PRIVATE KEY-----", "xoxb-", "+49 170 ", "1234567",
		"4111 1111 1111 1111", "DE89 3704 0044 0532 0130 00", "fe80::", "1:2", "10.0.", "\u017f", "\u212a", "\xff", "Straße ", "здравствуйте ", "今日は", `\n`, `\/`, `\u0041`, `"`, `["`, `"]`, "\n",
	}
	var b strings.Builder
	for range rnd.IntN(30) {
		b.WriteString(parts[rnd.IntN(len(parts))])
	}
	return b.String()
}

func TestWhatIsRememberedChangesNothing(t *testing.T) {
	t.Parallel()
	n := 200
	if fullSize {
		n = 40_000
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	var named []*pattern.Redactor
	for _, set := range pattern.Sets() {
		rules, _ := pattern.Lookup(set, "*")
		r, err := pattern.New(rules...)
		if err != nil {
			t.Fatal(err)
		}
		named = append(named, r, pattern.Forgetful(r, 20))
	}
	for i := range n {
		if r := named[i%len(named)]; i%2 == 0 {
			checkRemembered(t, rnd, r, ofSecrets(rnd))
			continue
		}
		patterns := make([]string, 1+rnd.IntN(3))
		for i := range patterns {
			if patterns[i] = tricky[rnd.IntN(len(tricky))]; rnd.IntN(4) == 0 {
				patterns[i] = large[rnd.IntN(len(large))]
			}
		}
		r := redactor(t, "<>", patterns...)
		for range 4 {
			checkRemembered(t, rnd, r, strings.Repeat(randomText(rnd), 1+rnd.IntN(2)*rnd.IntN(8)))
			checkRemembered(t, rnd, pattern.Forgetful(r, 1+rnd.IntN(9)), randomText(rnd))
		}
	}
}

// TestWhatIsRememberedHasAnEnd: however much a Redactor meets, and in however many
// texts at once.
func TestWhatIsRememberedHasAnEnd(t *testing.T) {
	t.Parallel()
	rules, _ := pattern.Lookup(pattern.SetSecrets, "*")
	full, err := pattern.New(rules...)
	if err != nil {
		t.Fatal(err)
	}
	const most = 50
	r := pattern.Forgetful(full, most)
	var group sync.WaitGroup
	for i := range uint64(4) {
		group.Go(func() {
			rnd := rand.New(rand.NewPCG(i, 0))
			for range 200 {
				checkRemembered(t, rnd, r, ofSecrets(rnd))
			}
		})
	}
	group.Wait()
	if n := pattern.States(r); n > most || n < 5 {
		t.Errorf("%d states are remembered; at most %d should be", n, most)
	}
	text := full.Text(0)
	for range 3 { // the words of an ordinary text lead to few
		if _, err := text.Push(nil, strings.Repeat(prose, 10)); err != nil {
			t.Fatal(err)
		}
	}
	if n := pattern.States(full); n > 150 {
		t.Errorf("%d states for ordinary words", n)
	}
}
