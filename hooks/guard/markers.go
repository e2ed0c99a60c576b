package guard

import (
	"encoding/base64"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The markers of text that wants to be taken for instructions.
const (
	// MarkerPhrase is a known turn of phrase, such as "ignore previous
	// instructions".
	MarkerPhrase = "phrase"
	// MarkerRole is a token of a chat template, or a line that pretends that
	// somebody else speaks.
	MarkerRole = "role"
	// MarkerInvisible are characters that people do not see, where they are not
	// a part of writing, and those that turn the order of what is seen around.
	MarkerInvisible = "invisible"
	// MarkerEncoded is base64 of text that has one of the others.
	MarkerEncoded = "encoded"
)

var allMarkers = []string{MarkerPhrase, MarkerRole, MarkerInvisible, MarkerEncoded}

// phrases are looked for in text that is folded: in small letters, with one
// space between words and nothing invisible.
var phrases = regexp.MustCompile(strings.Join([]string{
	`\b(?:ignore|disregard|forget|override|bypass) (?:all |any |everything |the |your |of |these |those |my |previous |prior |above |earlier |preceding |system |original ){1,6}(?:instructions?|prompts?|rules|directions|guidelines|messages?|context|constraints)\b`,
	`\b(?:ignore|disregard|forget) (?:everything|all|anything) (?:above|before|prior|previous|you (?:were|have been) told)\b`,
	`\byou are (?:now|no longer) (?:in )?(?:dan\b|developer mode|jailbr|unrestricted|bound by|a different|an? ai (?:without|that))`,
	`\b(?:new|updated|real|actual|secret) (?:system )?(?:instructions?|prompt)(?: are| is|:| follow)`,
	`\b(?:reveal|print|repeat|show|output|leak|send)(?: me)? (?:your|the) (?:system |hidden |initial |secret )+(?:prompt|instructions?|message)\b`,
	`\bdo not (?:tell|inform|mention (?:this |it )?to|alert|warn) the user\b`,
	`\bwithout (?:telling|informing|asking|alerting) the user\b`,
	`\b(?:important|urgent|attention)[:!,]? (?:instructions? |message |note )?(?:for|to) (?:the |any |all )?(?:ai|llm|assistant|language model|agent|chatbot)s?\b`,
	`\bif you are an? (?:ai|llm|language model|assistant|agent)\b`,
	`\b(?:ignoriere?|vergiss) (?:alle |die |deine |vorherigen |bisherigen |obigen ){1,4}(?:anweisungen|regeln|vorgaben)\b`,
	`\b(?:ignore|oublie) (?:toutes |les |tes |vos ){1,3}(?:instructions|consignes|règles)\b`,
	`\b(?:ignora|olvida) (?:todas |las |tus ){1,3}(?:instrucciones|reglas)\b`,
}, "|"))

// roles are looked for in text as it is.
var roles = regexp.MustCompile(`(?i)<\|[a-z_]{2,30}\|>|\[/?INST\]|<</?SYS>>|</?(?:system|assistant|developer)(?:[_-](?:prompt|message|instructions?))?>|<start_of_turn>|<end_of_turn>|` +
	`(?:^|\n)[ \t]*(?:#{1,6}[ \t]*(?:system|instructions?)[ \t]*:|(?:human|assistant|system)[ \t]*:[ \t]*\S)`)

// blob is what may be base64 of a sentence.
var blob = regexp.MustCompile(`[A-Za-z0-9+/_-]{32,}={0,2}`)

const (
	// maxBlobs is how many blobs of one text are looked into, and maxBlob how
	// far into each: whoever writes such a text decides how long it is.
	maxBlobs = 200
	maxBlob  = 64 << 10
)

// finder looks for markers.
type finder struct {
	markers map[string]bool
	// own are the phrases of a config, folded.
	own []string
}

// find names the markers of s, sorted, each once.
func (f *finder) find(s string) []string {
	found := map[string]bool{}
	f.look(s, found)
	if f.markers[MarkerEncoded] {
		for _, b := range blob.FindAllString(s, maxBlobs) {
			if text, ok := unblob(b); ok {
				inside := map[string]bool{}
				if f.look(text, inside); len(inside) > 0 {
					found[MarkerEncoded] = true
					break
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func (f *finder) look(s string, found map[string]bool) {
	if f.markers[MarkerInvisible] && invisible(s) {
		found[MarkerInvisible] = true
	}
	if f.markers[MarkerRole] && roles.MatchString(s) {
		found[MarkerRole] = true
	}
	if !f.markers[MarkerPhrase] {
		return
	}
	folded := fold(s)
	if phrases.MatchString(folded) || slices.ContainsFunc(f.own, func(p string) bool { return strings.Contains(folded, p) }) {
		found[MarkerPhrase] = true
	}
}

// fold is s in small letters, with one space where there is white space, and
// without what is not seen. Letters of other widths become the plain ones.
func fold(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	space := true
	for _, r := range s {
		switch {
		case unicode.IsSpace(r):
			if !space {
				b.WriteByte(' ')
			}
			space = true
			continue
		case unseen(r):
			continue
		case r >= '！' && r <= '～': // full width
			r -= '！' - '!'
		}
		b.WriteRune(unicode.ToLower(r))
		space = false
	}
	return strings.TrimSuffix(b.String(), " ")
}

// unseen reports whether r takes no room of its own where it is shown.
func unseen(r rune) bool {
	return unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Variation_Selector, r) || r == '\u034F' || r == '\u115F' || r == '\u1160' || r == '\u3164'
}

// invisible reports whether s has characters that are not seen and are no part
// of how words and emoji are written.
func invisible(s string) bool {
	prev, hidden := rune(0), 0
	flag := false // within the letters behind a black flag, which is how some flags are written
	for i, r := range s {
		switch {
		case r >= 0xE0000 && r <= 0xE007F:
			if !flag {
				return true
			}
			prev = r
			continue
		case r >= '\u202A' && r <= '\u202E', r >= '\u2066' && r <= '\u2069':
			return true
		case unicode.Is(unicode.Variation_Selector, r):
			// One follows a character; many are a way to write something else.
			if unicode.Is(unicode.Variation_Selector, prev) {
				return true
			}
		case r == '\u200B' || r >= '\u2060' && r <= '\u2064' || r == '\uFEFF' && i > 0:
			// Within a word of ASCII it is there for whoever compares the text; a
			// run of them says something.
			next, _ := utf8.DecodeRuneInString(s[i+utf8.RuneLen(r):])
			if hidden++; ascii(prev) && ascii(next) || hidden > 2 {
				return true
			}
			prev = r
			continue
		case r == '\u200C' || r == '\u200D':
			// Between letters of other scripts, and between emoji, it is writing.
			next, _ := utf8.DecodeRuneInString(s[i+utf8.RuneLen(r):])
			if ascii(prev) && ascii(next) || prev == '\u200C' || prev == '\u200D' {
				return true
			}
		}
		hidden = 0
		flag = r == '\U0001F3F4'
		prev = r
	}
	return false
}

func ascii(r rune) bool {
	return r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r))
}

// unblob decodes base64 in either alphabet; ok is false if it is not that, or not
// text.
func unblob(s string) (text string, ok bool) {
	s = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(s[:min(len(s), maxBlob)], "="))
	raw, err := base64.RawStdEncoding.DecodeString(s[:len(s)-len(s)%4])
	if err != nil || len(raw) == 0 {
		return "", false
	}
	// Up to three bytes of a character may be cut off.
	for range utf8.UTFMax - 1 {
		if utf8.Valid(raw) {
			break
		}
		raw = raw[:max(len(raw)-1, 0)]
	}
	if !utf8.Valid(raw) {
		return "", false
	}
	for _, r := range string(raw) {
		if r < ' ' && !unicode.IsSpace(r) {
			return "", false
		}
	}
	return string(raw), true
}

// describe is how markers are told to people and models.
func describe(markers []string) string {
	words := map[string]string{
		MarkerPhrase: "words that are known from attempts to give a model orders", MarkerRole: "marks that pretend that somebody else speaks",
		MarkerInvisible: "characters that are not seen", MarkerEncoded: "such things in base64",
	}
	out := make([]string, 0, len(markers))
	for _, m := range markers {
		out = append(out, words[m])
	}
	return fmt.Sprintf("It has %s.", strings.Join(out, "; "))
}
