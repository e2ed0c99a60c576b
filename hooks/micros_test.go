package hooks_test

import (
	"math"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
)

func TestMicrosAreReadAndWrittenWithoutAFloat(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]hooks.Micros{
		"0": 0, "2.50": 2_500_000, "0.000001": 1, "1000000000": hooks.MaxMicros, "9007199254.740993": -1,
		"1000000000.000001": -1, "1.0000001": -1, "": -1, ".5": -1, "-1": -1, "1e3": -1, "1.2.3": -1, "99999999999999999999": -1, "1.": 1_000_000,
	} {
		n := hooks.Micros(7)
		if err := n.UnmarshalText([]byte(text)); (err != nil) != (want < 0) || err == nil && n != want || err != nil && n != 7 {
			t.Errorf("%q: %d, %v; want %d", text, n, err, want)
		}
	}
	for n, want := range map[hooks.Micros]string{0: "0", 1: "0.000001", 2_500_000: "2.5", -1_500_000: "-1.5", math.MaxInt64: "9223372036854.775807"} {
		if text, err := n.MarshalText(); err != nil || string(text) != want {
			t.Errorf("%d is %s, %v; want %s", n, text, err, want)
		}
	}
}
