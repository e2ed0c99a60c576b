package guard

import (
	"cmp"
	"strconv"
	"strings"
)

// decimal is a number as JSON writes it, exactly, whatever its size: digits
// without zeros around them, times ten to the power of exp minus their count.
// Zero has no digits.
type decimal struct {
	negative bool
	digits   string
	exp      int64
}

// maxExponent bounds exponents, far above what there is a use for: sums of them
// stay in 64 bits.
const maxExponent = 1 << 40

// parseDecimal reads a number of JSON. Exponents beyond maxExponent are taken
// for that.
func parseDecimal(s string) (decimal, bool) {
	d := decimal{negative: strings.HasPrefix(s, "-")}
	mantissa, exponent, scientific := strings.Cut(strings.ToLower(strings.TrimPrefix(s, "-")), "e")
	whole, rest, point := strings.Cut(mantissa, ".")
	if whole == "" || point && rest == "" || strings.Trim(whole+rest, "0123456789") != "" {
		return decimal{}, false
	}
	if scientific {
		if strings.Trim(exponent, "0123456789") != "" && strings.Trim(exponent[1:], "0123456789") != "" || strings.Trim(exponent, "+-") == "" {
			return decimal{}, false
		}
		n, err := strconv.ParseInt(exponent, 10, 64)
		if err != nil && n == 0 {
			return decimal{}, false
		}
		d.exp = min(max(n, -maxExponent), maxExponent)
	}
	d.exp += int64(len(whole))
	digits := whole + rest
	trimmed := strings.TrimLeft(digits, "0")
	d.exp -= int64(len(digits) - len(trimmed))
	if d.digits = strings.TrimRight(trimmed, "0"); d.digits == "" {
		return decimal{}, true
	}
	return d, true
}

// compare is negative, zero or positive as d is less than, equal to or greater
// than e.
func (d decimal) compare(e decimal) int {
	if d.sign() != e.sign() {
		return cmp.Compare(d.sign(), e.sign())
	}
	size := cmp.Or(cmp.Compare(d.exp, e.exp), strings.Compare(d.digits, e.digits))
	return size * d.sign()
}

func (d decimal) sign() int {
	switch {
	case d.digits == "":
		return 0
	case d.negative:
		return -1
	}
	return 1
}
