package guard

import (
	"errors"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

// secret is one thing to look for.
type secret struct {
	name string
	find *regexp.Regexp
	// is says whether what was found is meant and does not only look like it;
	// nil for always. What is found may be groups, of which the first ones are
	// meant.
	is func(found string) bool
}

// maxFound is how often one pattern may be found in one text: each place costs
// more memory than a character of the text does.
const maxFound = 100_000

var errFound = fmt.Errorf("a pattern is found more than %d times in one text", maxFound)

// in is where s has it, at most maxFound+1 times.
func (p secret) in(s string) [][]int {
	if p.is == nil {
		return p.find.FindAllStringIndex(s, maxFound+1)
	}
	var all [][]int
	for from := 0; len(all) <= maxFound; {
		at := p.find.FindStringIndex(s[from:])
		if at == nil {
			break
		}
		start, end := from+at[0], from+at[1]
		stop := end
		for stop > start && !p.is(s[start:stop]) {
			stop = start + max(strings.LastIndexAny(s[start:stop], " -"), 0)
		}
		if stop > start {
			all = append(all, []int{start, stop})
			from = stop
			continue
		}
		// Another may begin with the second group of what was none.
		from = end
		if i := strings.IndexAny(s[start:end], " -"); i > 0 {
			from = start + i
		}
	}
	return all
}

// named are the patterns that a config can name.
var named = map[string]secret{
	"email":       {find: regexp.MustCompile(`(?i)\b[a-z0-9][a-z0-9._%+-]*@(?:[a-z0-9-]+\.)+[a-z]{2,24}\b`)},
	"ipv4":        {find: regexp.MustCompile(`\b(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)\b`)},
	"credit_card": {find: regexp.MustCompile(`\b\d(?:[ -]?\d){12,18}\b`), is: luhn},
	"iban":        {find: regexp.MustCompile(`(?i)\b[a-z]{2}\d{2}(?: ?[a-z0-9]){11,30}\b`), is: iban},
	"us_ssn":      {find: regexp.MustCompile(`\b\d{3}-\d{2}-\d{4}\b`)},
	"aws_key":     {find: regexp.MustCompile(`\b(?:AKIA|ASIA)[0-9A-Z]{16}\b`)},
	"api_key":     {find: regexp.MustCompile(`\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}|\bgh[pousr]_[A-Za-z0-9]{30,}|\bxox[a-z]-[A-Za-z0-9-]{10,}|\bAIza[0-9A-Za-z_-]{35}`)},
	"bearer":      {find: regexp.MustCompile(`(?i)\b(?:authorization:[ \t]*basic|bearer)[ \t]+[a-z0-9._~+/=-]{16,}`)},
	"jwt":         {find: regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{5,}\.eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*`)},
	"private_key": {find: regexp.MustCompile(`(?s)-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\z)`)},
	"url_login":   {find: regexp.MustCompile(`(?i)\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@]{1,100}:[^\s/@]{1,200}@`)},
}

// Patterns names the patterns that [RedactConfig] knows.
func Patterns() []string { return slices.Sorted(maps.Keys(named)) }

// luhn reports whether the digits of s pass the check of payment cards.
func luhn(s string) bool {
	sum, n := 0, 0
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] < '0' || s[i] > '9' {
			continue
		}
		d := int(s[i] - '0')
		if n%2 == 1 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
		n++
	}
	return n >= 13 && sum > 0 && sum%10 == 0
}

// iban reports whether s passes the check of account numbers (ISO 13616).
func iban(s string) bool {
	s = strings.ToUpper(strings.ReplaceAll(s, " ", ""))
	if len(s) < 15 || len(s) > 34 {
		return false
	}
	var digits strings.Builder
	for _, r := range s[4:] + s[:4] {
		if r >= 'A' {
			fmt.Fprintf(&digits, "%d", r-'A'+10)
		} else {
			digits.WriteRune(r)
		}
	}
	n, ok := new(big.Int).SetString(digits.String(), 10)
	return ok && n.Mod(n, big.NewInt(97)).Int64() == 1
}

// maxInstructions is what the program of a pattern may have: what it takes to
// look for it grows with that.
const maxInstructions = 2_000

var errEmptyMatch = errors.New("the pattern matches the empty text, so it would be found everywhere")

// compile compiles a pattern (RE2) whose program is not too large, which is
// counted before anything is made of it: a few characters can stand for
// millions of instructions.
func compile(pattern string) (*regexp.Regexp, error) {
	if pattern == "" || len(pattern) > maxText {
		return nil, fmt.Errorf("must have 1 to %d bytes", maxText)
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("no regular expression that is taken here: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	if n := instructions(parsed); n > maxInstructions {
		return nil, fmt.Errorf("the pattern comes to about %d instructions; at most %d are taken: repeat less", n, maxInstructions)
	}
	return regexp.Compile(pattern)
}

// instructions is about how many the program of a pattern has.
func instructions(re *syntax.Regexp) int {
	n := 1
	if re.Op == syntax.OpLiteral {
		n = len(re.Rune)
	}
	for _, sub := range re.Sub {
		n = min(n+instructions(sub), 1<<30)
	}
	if re.Op == syntax.OpRepeat {
		n = min(n*max(re.Min, re.Max, 1), 1<<30)
	}
	return n
}
