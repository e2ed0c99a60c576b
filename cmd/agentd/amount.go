package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-2ca4966b/agentd/loop"
)

// amount is a decimal number in millionths, without a float on the way. The
// unit is the deployer's.
type amount int64

// maxAmount is a billion units: sums of such limits and prices stay in 64 bits.
const maxAmount = 1_000_000_000_000_000

// UnmarshalText reads digits, and up to six more behind a point.
func (a *amount) UnmarshalText(text []byte) error {
	whole, rest, _ := strings.Cut(string(text), ".")
	if len(rest) > 6 {
		return fmt.Errorf("%q has more than 6 decimals", text)
	}
	n, err := strconv.ParseUint(whole+rest+strings.Repeat("0", 6-len(rest)), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || err == nil && n > maxAmount:
		return fmt.Errorf("%q is more than %s", text, loop.FormatMicros(maxAmount))
	case err != nil || whole == "":
		return fmt.Errorf("%q is no decimal number such as 2.50", text)
	}
	*a = amount(n)
	return nil
}
