package hooks

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Micros is an amount in millionths of a unit, which is the deployer's: what a
// model costs, has cost, or may cost. No float is ever on the way.
type Micros int64

// MaxMicros is the most that [Micros.UnmarshalText] takes, a billion units:
// sums of such amounts stay in 64 bits.
const MaxMicros Micros = 1_000_000_000_000_000

// String is n as a decimal number without zeros at its end: 2500000 is 2.5.
func (n Micros) String() string {
	sign, whole, rest := "", n/1_000_000, n%1_000_000
	if n < 0 {
		sign, whole, rest = "-", -whole, -rest
	}
	text := fmt.Sprintf("%s%d.%06d", sign, int64(whole), int64(rest))
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// MarshalText is String.
func (n Micros) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText reads digits, and up to six more behind a point.
func (n *Micros) UnmarshalText(text []byte) error {
	whole, rest, _ := strings.Cut(string(text), ".")
	if len(rest) > 6 {
		return fmt.Errorf("%q has more than 6 decimals", text)
	}
	v, err := strconv.ParseUint(whole+rest+strings.Repeat("0", 6-len(rest)), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || err == nil && v > uint64(MaxMicros):
		return fmt.Errorf("%q is more than %s", text, MaxMicros)
	case err != nil || whole == "":
		return fmt.Errorf("%q is no decimal number such as 2.50", text)
	}
	*n = Micros(v)
	return nil
}
