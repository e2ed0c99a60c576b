package pattern_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/seed-2ca4966b/agentd/hooks/pattern"
)

func TestJSONIsRedactedAsItIsRead(t *testing.T) {
	t.Parallel()
	r := redactor(t, `"`, `key-test-[0-9a-f]+`, `\b\d{13,16}\b`, `x+`, `^whole$`)
	for text, want := range map[string]string{
		`{"a": "key-test-01", "b" : [1, true, null, {"c":"yxxz"}]}`: `{"a": "\"", "b" : [1, true, null, {"c":"y\"z"}]}`,
		`{"a":"key\u002dtest\u002d01 \u00e4"}`:                      `{"a":"\" \u00e4"}`,
		`{"a":"\ud83d\ude00x\ud83d"}`:                               `{"a":"\ud83d\ude00\"\ud83d"}`,
		`{"a":"line\nkey-test-ff\n"}`:                               `{"a":"line\n\"\n"}`,
		`[4111111111111111, -4111111111111111,1e5]`:                 `["\"", "-\"",1e5]`,
		`{"x":1,"xx":2,"xy":3,"\"__":4,"z":5}`:                      `{"\"":1,"\"_":2,"\"y":3,"\"__":4,"z":5}`,
		`{"x":1,"\"":2,"q":3,"q":4}`:                                `{"\"":1,"\"_":2,"q":3,"q":4}`,
		`{"a":{"x":1},"b":{"x":2}}`:                                 `{"a":{"\"":1},"b":{"\"":2}}`,
		`["whole","whole ","\u0077hole"]`:                           `["\"","whole ","\""]`,
		` "x" `:                                                     ` "\"" `,
		`4111111111111111`:                                          `"\""`,
		`true`:                                                      `true`,
		``:                                                          ``,
		`{"a":"key-test-0`:                                          `{"a":""`,
		`{"a":"key\u002dtest-0`:                                     `{"a":""`,
		`{'a':'key\u002dtest-0'}`:                                   `{'a':'"'}`,
		`{"a":1}{"x":1}`:                                            `{"a":1}{""":1}`,
		`{"a":key-test-01}`:                                         `{"a":"}`,
		`{"a":"\x"}`:                                                `{"a":"\""}`,
		"{\"a\":\"new\nline key-te\"}":                              "{\"a\":\"new\nline key-te\"}",
	} {
		got, err := inOne(r.JSON(0), text)
		if err != nil || got != want {
			t.Errorf("%s\n got %s, %v\nwant %s", text, got, err, want)
		}
		for i := range text {
			checkSplit(t, "a table", r.JSON(0), text, []int{i}, want, nil)
		}
	}
}

// writeJSON writes a text as JSON with escapes where none is needed.
func writeJSON(r *rand.Rand, text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			b.WriteString(`\` + string(c))
		case c < ' ' || r.IntN(8) == 0:
			if c >= 0x10000 {
				high, low := utf16.EncodeRune(c)
				fmt.Fprintf(&b, `\u%04x\u%04X`, high, low)
			} else {
				fmt.Fprintf(&b, `\u%04x`, c)
			}
		default:
			b.WriteRune(c)
		}
	}
	if r.IntN(16) == 0 {
		b.WriteString([]string{`\ud83d`, `\udc00`, "\xff", `\/`, `\b\f\r\t`}[r.IntN(5)])
	}
	return b.String() + `"`
}

func randomJSON(r *rand.Rand, depth int) string {
	space := func() string { return []string{"", "", "", " ", "\n\t"}[r.IntN(5)] }
	kind := r.IntN(6)
	if depth == 0 {
		kind = r.IntN(4)
	}
	switch kind {
	case 0:
		return []string{"0", "-1.5e+3", "4111111111111111", "12345678", "true", "false", "null"}[r.IntN(7)]
	case 1, 2, 3:
		return writeJSON(r, randomText(r))
	}
	var parts []string
	for range r.IntN(4) {
		part := space() + randomJSON(r, depth-1) + space()
		if kind == 4 {
			part = space() + writeJSON(r, randomText(r)) + space() + ":" + part
		}
		parts = append(parts, part)
	}
	if kind == 4 {
		return "{" + strings.Join(parts, ",") + "}"
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// tokens are those of JSON, texts as they are read, and numbers and words as they
// are written.
func tokens(t testing.TB, text string) []json.Token {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var out []json.Token
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		out = append(out, token)
	}
}

// checkJSON checks all that is promised of what may be JSON.
func checkJSON(t testing.TB, rnd *rand.Rand, patterns []string, text string) {
	t.Helper()
	const with = "█"
	r := redactor(t, with, patterns...)
	s := r.JSON(0)
	got, err := inOne(s, text)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		checkSplit(t, fmt.Sprintf("%q in JSON", patterns), r.JSON(0), text, randomCuts(rnd, len(text)), got, nil)
	}
	if pattern.TookForJSON(s) != json.Valid([]byte(text)) {
		t.Fatalf("%q is JSON: %v", text, json.Valid([]byte(text)))
	}
	if !pattern.TookForJSON(s) {
		for _, p := range patterns {
			for _, found := range regexp.MustCompile(p).FindAllString(text, -1) {
				if len(found) > 8 && utf8.ValidString(found) && !strings.Contains(found, with) && strings.Contains(got, found) {
					t.Fatalf("%q of %q is still in %q", found, text, got)
				}
			}
		}
		return
	}
	was, is := tokens(t, text), tokens(t, got)
	if len(was) != len(is) {
		t.Fatalf("%q became %q", text, got)
	}
	for i := range was {
		plain := fmt.Sprint(was[i])
		if was[i] == nil {
			plain = "null"
		}
		want, err := inOne(r.Text(0), plain)
		if err != nil {
			t.Fatal(err)
		}
		if _, delim := was[i].(json.Delim); delim {
			want = plain
		}
		now := fmt.Sprint(is[i])
		if is[i] == nil {
			now = "null"
		}
		if now != want && strings.TrimRight(now, "_") != strings.TrimRight(want, "_") {
			t.Fatalf("%q in %q became %q of %q; want %q", plain, text, now, got, want)
		}
	}
}

func TestASplitPieceOfJSONIsRedactedAsTheWholeIs(t *testing.T) {
	t.Parallel()
	n := 200
	if fullSize {
		n = 100_000
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range n {
		patterns := make([]string, 1+rnd.IntN(3))
		for i := range patterns {
			patterns[i] = tricky[rnd.IntN(len(tricky))]
		}
		text := randomJSON(rnd, 3)
		switch rnd.IntN(4) {
		case 0:
			text = text[:rnd.IntN(len(text)+1)]
		case 1:
			at := rnd.IntN(len(text) + 1)
			text = text[:at] + words[rnd.IntN(len(words))] + text[at:]
		}
		checkJSON(t, rnd, patterns, text)
	}
}

// TestLongArgumentsPass: a file of a megabyte with keys in it, of which little is
// held back at any time.
func TestLongArgumentsPass(t *testing.T) {
	t.Parallel()
	r := redactor(t, "*", `key-test-[0-9a-f]{16}`, `[a-z]+@[a-z]+`)
	line := `some words of a file, \"quoted\", and key\u002dtest-0123456789abcdef\n`
	size := 256 << 10
	if fullSize {
		size = 1 << 20
	}
	text := `{"path":"a.txt","content":"` + strings.Repeat(line, size/len(line)) + `"}`
	want := strings.ReplaceAll(text, `key\u002dtest-0123456789abcdef`, "*")
	s := r.JSON(1 << 10)
	var out []byte
	var err error
	for i := 0; i < len(text) && err == nil; i += 50 {
		out, err = s.Push(out, text[i:min(i+50, len(text))])
		if h := s.Held(); h > pattern.MaxHold+50 || i > pattern.MaxHold && h > 100 {
			t.Fatalf("%d bytes are held at %d", h, i)
		}
	}
	if err == nil {
		out, err = s.End(out)
	}
	if err != nil || string(out) != want {
		t.Fatalf("%v, %d bytes of %d", err, len(out), len(want))
	}
}

func TestWhatIsNoJSONIsRedactedOrStopped(t *testing.T) {
	t.Parallel()
	r := redactor(t, "*", `key-test-[0-9a-f]{16}`)
	const key = "key-test-0123456789abcdef"
	words := strings.Repeat("words ", 11_500)
	for name, c := range map[string]struct {
		text, want string
		err        error
	}{
		"from the beginning":        {words + key + words, words + "*" + words, nil},
		"cut off":                   {`{"a":"` + key, `{"a":"*`, nil},
		"cut off when it is long":   {`{"a":"` + words + key, "", pattern.ErrBroken},
		"broken when it is long":    {`{"a":"` + words + `",b}` + key, "", pattern.ErrBroken},
		"a number that is too long": {"[" + strings.Repeat("1", 70_000) + "]", "", pattern.ErrHold},
		"a name that is too long":   {`{"` + words + `":1}`, "", pattern.ErrHold},
	} {
		got, err := inOne(r.JSON(0), c.text)
		if !errors.Is(err, c.err) || c.err == nil && got != c.want {
			t.Errorf("%s: %v, %.80q", name, err, got)
		}
		if strings.Contains(got, "key-test-0") {
			t.Errorf("%s: the key was given out", name)
		}
		checkSplit(t, name, r.JSON(0), c.text, []int{3, min(100, len(c.text)), min(66_000, len(c.text))}, c.want, err)
		if c.err != nil {
			s := r.JSON(0)
			_, _ = s.Push(nil, c.text)
			_, _ = s.End(nil)
			for _, f := range []func() ([]byte, error){func() ([]byte, error) { return s.Push(nil, "a") }, func() ([]byte, error) { return s.End(nil) }} {
				if out, err := f(); !errors.Is(err, c.err) || len(out) > 0 || s.Held() != 0 {
					t.Errorf("%s, afterwards: %q, %v", name, out, err)
				}
			}
		}
	}
}
