package pattern

import (
	"net/netip"
	"slices"
)

// luhn reports whether the digits of b pass the check of payment cards.
func luhn(b []byte) bool {
	sum, n := 0, 0
	for _, c := range slices.Backward(b) {
		if c < '0' || c > '9' {
			continue
		}
		d := int(c - '0')
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

// iban reports whether b passes the check of account numbers (ISO 13616).
func iban(b []byte) bool {
	var digits [34]int
	n := 0
	for _, c := range b {
		switch {
		case c == ' ':
			continue
		case n == len(digits):
			return false
		case c >= '0' && c <= '9':
			digits[n] = int(c - '0')
		case c|0x20 >= 'a' && c|0x20 <= 'z':
			digits[n] = int(c|0x20-'a') + 10
		default:
			return false
		}
		n++
	}
	if n < 15 {
		return false
	}
	sum := 0
	for i := range n { // the first four come last
		d := digits[(i+4)%n]
		if d > 9 {
			sum *= 10
		}
		sum = (sum*10 + d) % 97
	}
	return sum == 1
}

// ipv6 reports whether b is an address and not, say, a name in a program.
func ipv6(b []byte) bool {
	if !slices.ContainsFunc(b, func(c byte) bool { return c >= '0' && c <= '9' }) {
		return false
	}
	_, err := netip.ParseAddr(string(b))
	return err == nil
}
