package event_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

func TestCleanText(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in, want string
		changed  bool
	}{
		"empty":                      {"", "", false},
		"text":                       {"héllo 🙂", "héllo 🙂", false},
		"a spelled escape":           {`\u0000 \ud83d`, `\u0000 \ud83d`, false},
		"U+FFFD itself":              {"\uFFFD", "\uFFFD", false},
		"NUL":                        {"a\x00b", "a\uFFFDb", true},
		"latin-1":                    {"caf\xe9", "caf\uFFFD", true},
		"a cut character":            {"🙂"[:3] + "x", "\uFFFDx", true},
		"half of a surrogate pair":   {"a\xed\xa0\xbdb", "a\uFFFDb", true},
		"an overlong NUL":            {"\xc0\x80", "\uFFFD", true},
		"both NUL and invalid":       {"\x00\xff", "\uFFFD\uFFFD", true},
		"newlines and tabs are text": {"a\r\n\tb", "a\r\n\tb", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, changed := event.CleanText(c.in); got != c.want || changed != c.changed {
				t.Errorf("CleanText(%q) = %q, %v; want %q, %v", c.in, got, changed, c.want, c.changed)
			}
		})
	}
}

func TestCleanTextIsWhatALoneSurrogateInJSONBecomes(t *testing.T) {
	t.Parallel()
	var s string
	if err := json.Unmarshal([]byte(`"a\ud83db"`), &s); err != nil {
		t.Fatal(err)
	}
	if got, changed := event.CleanText(s); got != "a\uFFFDb" || changed {
		t.Errorf("%q, %v; want it replaced by the decoder already", got, changed)
	}
}

func TestCleanTextIsIdempotentAndStorable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := string(rapid.SliceOf(rapid.Byte()).Draw(t, "in"))
		out, changed := event.CleanText(in)
		if !utf8.ValidString(out) || strings.Contains(out, "\x00") {
			t.Fatalf("%q is not storable", out)
		}
		if changed != (in != out) {
			t.Fatalf("changed %v, in %q out %q", changed, in, out)
		}
		if again, changed := event.CleanText(out); changed || again != out {
			t.Fatalf("%q was changed again to %q", out, again)
		}
	})
}

func TestShortenNeverCutsInsideACharacter(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]string{
		"four bytes": strings.Repeat("🙂", 10_000), "three": strings.Repeat("€", 10_000),
		"two": strings.Repeat("é", 10_000), "mixed": strings.Repeat("aé€🙂", 2_500),
	} {
		for limit := 1; limit <= 40; limit++ {
			got := event.Shorten(s, limit)
			kept := strings.TrimSuffix(got, "…")
			switch {
			case !utf8.ValidString(got):
				t.Errorf("%s at %d: %q is cut inside a character", name, limit, got)
			case len(got) > limit:
				t.Errorf("%s at %d: %d bytes", name, limit, len(got))
			case !strings.HasPrefix(s, kept):
				t.Errorf("%s at %d: %q is not the beginning", name, limit, got)
			case limit > 3 && kept == got:
				t.Errorf("%s at %d: %q does not say that it was cut", name, limit, got)
			case limit-len(got) > 3:
				t.Errorf("%s at %d: only %d bytes of %d used", name, limit, len(got), limit)
			}
		}
	}
}

func TestShortenLeavesWhatFits(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "a", "🙂", "exactly!"} {
		if got := event.Shorten(s, len(s)); got != s {
			t.Errorf("Shorten(%q, %d) = %q", s, len(s), got)
		}
	}
}

// TestCleanJSONLeavesNoEscapeThatCannotBeRead: and nothing else is touched.
func TestCleanJSONLeavesNoEscapeThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"a" : 1.50, "a":"\u00e4"}`:          `{"a" : 1.50, "a":"\u00e4"}`,
		`"\u0000"`:                            "\"\uFFFD\"",
		`{"\u0000":"\\u0000","b":"\\\u0000"}`: "{\"\uFFFD\":\"\\\\u0000\",\"b\":\"\\\\\uFFFD\"}",
		`"\ud83d"`:                            "\"\uFFFD\"",
		`"\uDC00x\uD83D\n"`:                   "\"\uFFFDx\uFFFD\\n\"",
		`"\uD83D\uD83D\uDE00"`:                "\"\uFFFD\\uD83D\\uDE00\"",
		`"\ud83d\ude00 \\ud83d"`:              `"\ud83d\ude00 \\ud83d"`,
		"\"\xff\"":                            "\"\uFFFD\"",
		"\"\xff\\ud83d\"":                     "\"\uFFFD\uFFFD\"",
		`"\`:                                  `"\`,
		`"\ud8`:                               `"\ud8`,
		`"\ud83d\u`:                           "\"\uFFFD\\u",
	} {
		got, changed := event.CleanJSON(in)
		if got != want || changed != (in != want) {
			t.Errorf("%s became %s, changed: %t; want %s", in, got, changed, want)
		}
	}
}
