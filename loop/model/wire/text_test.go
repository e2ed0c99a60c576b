package wire

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

const (
	high = "\xED\xA0\xBE" // of U+1F9ED
	low  = "\xED\xB7\xAD"
)

func TestATextIsReadAsItWasMeant(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`""`:                   "",
		`"a"`:                  "a",
		`"\"\\\/\b\f\n\r\t"`:   "\"\\/\b\f\n\r\t",
		`"x\u00e9y\u20ACz"`:    "xéy€z",
		`"\u0000"`:             "\x00",
		`"\ud83e\udded"`:       "🧭",
		`"\uD83E\uDDED!"`:      "🧭!",
		`"\ud83e"`:             high,
		`"\ud83ea"`:            high + "a",
		`"\ud83e\n"`:           high + "\n",
		`"\ud83e\u0041"`:       high + "A",
		`"\udded\ud83e"`:       low + high,
		`"\ud83e\ud83e\udded"`: high + "🧭",
		"\"\xE2\x82\"":         "\xE2\x82",
		`"C:\\u0041"`:          `C:\u0041`,
	} {
		if !json.Valid([]byte(in)) {
			t.Errorf("%s is no JSON", in)
		} else if got := Unquote([]byte(in)); got != want {
			t.Errorf("%s: got %q, want %q", in, got, want)
		}
	}
}

func TestPiecesOfATextAreJoinedWhereACharacterIsCut(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		pieces []string
		want   []string // with what is held to the end
	}{
		"Nothing":             {[]string{"", ""}, []string{"", "", ""}},
		"Whole":               {[]string{"a€", "🧭"}, []string{"a€", "🧭", ""}},
		"Bytes":               {[]string{"a\xE2", "\x82", "\xACb"}, []string{"a", "", "€b", ""}},
		"FourBytes":           {[]string{"\xF0\x9F\xA7", "\xAD"}, []string{"", "🧭", ""}},
		"Halves":              {[]string{"a" + high, low + "b"}, []string{"a", "🧭b", ""}},
		"HalfAndAnother":      {[]string{high, "b"}, []string{"", high + "b", ""}},
		"TwoFirstHalves":      {[]string{high, high, low}, []string{"", high, "🧭", ""}},
		"SecondHalf":          {[]string{"a", low}, []string{"a", low, ""}},
		"HalfAtTheEnd":        {[]string{"a" + high}, []string{"a", high}},
		"BytesAtTheEnd":       {[]string{"a\xE2\x82"}, []string{"a", "\xE2\x82"}},
		"BytesOfNothing":      {[]string{"a\xFF", "\x82\x82\x82\x82b"}, []string{"a\xFF", "\x82\x82\x82\x82b", ""}},
		"CutAndSomethingElse": {[]string{"\xE2\x82", "x"}, []string{"", "\xE2\x82x", ""}},
	} {
		var s Seam
		var got []string
		for _, p := range tt.pieces {
			got = append(got, s.Join(p))
		}
		if got = append(got, s.Rest()); strings.Join(got, "|") != strings.Join(tt.want, "|") || s.Rest() != "" {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

// Who stores a text replaces what is none and says so; for that it has to
// arrive.
func TestHalfOfAPairIsSeenByWhoStoresIt(t *testing.T) {
	t.Parallel()
	if text, changed := event.CleanText("a" + Unquote([]byte(`"\ud83e"`))); text != "a\uFFFD" || !changed {
		t.Errorf("stored %q, changed: %v", text, changed)
	}
}

// FuzzText holds that a text is what encoding/json makes of it but for halves
// of pairs, and that it does not matter where it is cut into pieces.
func FuzzText(f *testing.F) {
	f.Add(`a\n\u00e9\ud83e\udded`, []byte{1, 2})
	f.Add(`\udded\ud83e€🧭`, []byte{0})
	f.Fuzz(func(t *testing.T, in string, cuts []byte) {
		quoted := []byte(`"` + in + `"`)
		var want string
		if !utf8.ValidString(in) || json.Unmarshal(quoted, &want) != nil {
			return
		}
		text := Unquote(quoted)
		if got := replaceHalves(text); got != want {
			t.Fatalf("%s: got %q, want %q", quoted, got, want)
		}
		var s Seam
		joined := ""
		for rest, i := text, 0; rest != ""; i++ {
			n := len(rest)
			if len(cuts) > 0 {
				n = min(n, int(cuts[i%len(cuts)])+1)
			}
			piece := s.Join(rest[:n])
			if utf8.ValidString(text) && !utf8.ValidString(piece) {
				t.Fatalf("%q gave the piece %q", text, piece)
			}
			joined, rest = joined+piece, rest[n:]
		}
		if joined += s.Rest(); joined != text {
			t.Fatalf("got %q, want %q", joined, text)
		}
	})
}

// replaceHalves does what encoding/json does to halves of pairs.
func replaceHalves(text string) string {
	var out strings.Builder
	for text != "" {
		if surrogate(text) != 0 {
			out.WriteRune(utf8.RuneError)
			text = text[3:]
			continue
		}
		_, size := utf8.DecodeRuneInString(text)
		out.WriteString(text[:size])
		text = text[size:]
	}
	return out.String()
}
