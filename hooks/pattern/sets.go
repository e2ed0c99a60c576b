package pattern

import (
	"maps"
	"slices"
)

// The named sets.
const (
	// SetSecrets is keys, tokens and passwords that can be told by how they look.
	SetSecrets = "secrets"
	// SetPersonal is what identifies people and their accounts.
	SetPersonal = "personal"
)

var sets = map[string][]string{
	SetSecrets:  {"api_key", "aws_key", "bearer", "jwt", "private_key", "url_login"},
	SetPersonal: {"credit_card", "email", "iban", "ipv4", "ipv6", "phone", "us_ssn"},
}

// named are the patterns by their names. None holds much of an ordinary text
// back: what they repeat is bounded, or a match whatever follows.
var named = map[string]Rule{
	"email": {Pattern: `(?i)\b[a-z0-9][a-z0-9._%+-]{0,63}@[a-z0-9][a-z0-9.-]{0,252}\.[a-z]{2,24}\b`},
	"phone": {Pattern: `(?:\+|\b00)[1-9](?:[ ./()-]{0,2}\d){7,14}\b|(?:\b\d{3}[-.]|\(\d{3}\) ?)\d{3}[-.]\d{4}\b`},
	"ipv4":  {Pattern: `\b(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)\b`},
	"ipv6": {Pattern: `(?i)\b[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,7}::?(?:[0-9a-f]{1,4}:){0,7}[0-9a-f]{1,4}\b`,
		check: ipv6},
	"credit_card": {Pattern: `\b\d(?:[ -]?\d){12,18}\b`, check: luhn},
	"iban":        {Pattern: `(?i)\b[a-z]{2}\d{2}(?: ?[a-z0-9]){11,30}\b`, check: iban},
	"us_ssn":      {Pattern: `\b\d{3}-\d{2}-\d{4}\b`},
	"aws_key": {Pattern: `\b(?:AKIA|ASIA)[0-9A-Z]{16}\b` +
		`|(?i:\baws_?secret_?access_?key)["']?[ \t]{0,8}[=:][ \t]{0,8}["']?[A-Za-z0-9/+=]{40}`},
	"api_key": {Pattern: `\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}` +
		`|\bgh[pousr]_[A-Za-z0-9]{30,}|\bgithub_pat_[A-Za-z0-9_]{30,}|\bglpat-[A-Za-z0-9_-]{20,}|\bnpm_[A-Za-z0-9]{30,}` +
		`|\bxox[a-z]-[A-Za-z0-9-]{10,}|\bhooks\.slack\.com/services/T[A-Za-z0-9]{2,20}/B[A-Za-z0-9]{2,20}/[A-Za-z0-9]{10,}` +
		`|\bAIza[0-9A-Za-z_-]{35}|\bya29\.[0-9A-Za-z_-]{20,}`},
	"bearer": {Pattern: `(?i)\b(?:authorization:[ \t]*basic|bearer)[ \t]+[a-z0-9._~+/=-]{16,}`},
	"jwt":    {Pattern: `\beyJ[A-Za-z0-9_-]{5,}\.eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*`},
	// Up to its end, or up to that of the text: the second way matches from the
	// first line on, so that a long key is not held back.
	"private_key": {Pattern: `(?s)-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:.*?-----END [A-Z ]{0,40}PRIVATE KEY-----|.*)`},
	"url_login":   {Pattern: `(?i)\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@]{1,100}:[^\s/@]{1,200}@`},
}

// Names are the names of the patterns, sorted.
func Names() []string { return slices.Sorted(maps.Keys(named)) }

// Sets are the names of the sets, sorted.
func Sets() []string { return slices.Sorted(maps.Keys(sets)) }

// Lookup returns the rules of a set, or the one of a pattern, with their names
// and the replacement; ok is false if there is no such name.
func Lookup(name, with string) (rules []Rule, ok bool) {
	names, ok := sets[name]
	if !ok {
		names = []string{name}
	}
	for _, n := range names {
		rule, ok := named[n]
		if !ok {
			return nil, false
		}
		rule.Name, rule.With = n, with
		rules = append(rules, rule)
	}
	return rules, true
}
