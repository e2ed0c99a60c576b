package pattern_test

import (
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/pattern"
)

// six are the patterns of the benchmarks.
func six(b *testing.B) *pattern.Redactor {
	b.Helper()
	var rules []pattern.Rule
	for _, name := range []string{"email", "credit_card", "api_key", "private_key", "url_login", "jwt"} {
		named, _ := pattern.Lookup(name, "[redacted]")
		rules = append(rules, named...)
	}
	r, err := pattern.New(rules...)
	if err != nil {
		b.Fatal(err)
	}
	return r
}

const prose = "The quick brown fox, who has been here since 1987, jumps over 12 lazy dogs; nobody minds. "

func BenchmarkChunkOfText(b *testing.B) {
	for name, text := range map[string]string{"prose": prose, "one letter": strings.Repeat("a", 100), "secrets": "mail ada@example.org, card 4111 1111 1111 1111! "} {
		b.Run(name, func(b *testing.B) {
			text := strings.Repeat(text, 20)
			s := six(b).Text(0)
			var out []byte
			var err error
			at := 0
			b.ReportAllocs()
			for b.Loop() {
				if at+20 > len(text) {
					at = 0
				}
				if out, err = s.Push(out[:0], text[at:at+20]); err != nil {
					b.Fatal(err)
				}
				at += 20
			}
		})
	}
}

func BenchmarkChunkOfJSON(b *testing.B) {
	s := six(b).JSON(0)
	out, err := s.Push(nil, `{"content":"`+strings.Repeat("a ", pattern.MaxHold))
	if err != nil {
		b.Fatal(err)
	}
	text := strings.Repeat(prose, 20)
	at := 0
	b.ReportAllocs()
	for b.Loop() {
		if at+20 > len(text) {
			at = 0
		}
		if out, err = s.Push(out[:0], text[at:at+20]); err != nil {
			b.Fatal(err)
		}
		at += 20
	}
}

func BenchmarkWholeText(b *testing.B) {
	r := six(b)
	text := strings.Repeat(prose, 1000)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if r.Begin(b.Context()).Text(text) != text {
			b.Fatal("it was changed")
		}
	}
}
