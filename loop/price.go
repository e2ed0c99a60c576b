package loop

import (
	"math/bits"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// Prices say what an agent's model costs, in millionths of a unit for a million
// tokens: 2.50 for a million is 2_500_000. The unit is the deployer's. The zero
// value is no prices: nothing has a cost.
type Prices struct {
	Input  int64
	Output int64
}

const (
	// maxReported is the most tokens that are believed of one count, far above
	// what there is: sums of them stay in 64 bits.
	maxReported = 1 << 40
	// maxCost is the most that one call comes to, for the same reason.
	maxCost = 1 << 53
)

// cost is what usage comes to, rounded up to a whole millionth; nil without
// prices.
func (p Prices) cost(u stream.Usage) *event.Cost {
	if p == (Prices{}) {
		return nil
	}
	return &event.Cost{
		Micros:     min(price(u.InputTokens, p.Input)+price(u.OutputTokens, p.Output), maxCost),
		InputPrice: p.Input, OutputPrice: p.Output,
	}
}

// price is tokens times the price of a million, in millionths, rounded up.
func price(tokens, perMillion int64) int64 {
	const million = 1_000_000
	hi, lo := bits.Mul64(uint64(max(tokens, 0)), uint64(max(perMillion, 0)))
	if hi >= million {
		return maxCost
	}
	n, rest := bits.Div64(hi, lo, million)
	if rest > 0 {
		n++
	}
	return int64(min(n, maxCost))
}

// believed is what a provider reported, without what cannot be.
func believed(u stream.Usage) stream.Usage {
	return stream.Usage{
		InputTokens:  min(max(u.InputTokens, 0), maxReported),
		OutputTokens: min(max(u.OutputTokens, 0), maxReported),
	}
}

// used adds what a call took to what its turn did.
func (t Turn) used(u *stream.Usage, c *event.Cost) Turn {
	if u != nil {
		t.Usage.InputTokens += u.InputTokens
		t.Usage.OutputTokens += u.OutputTokens
	}
	if c != nil {
		t.CostMicros += c.Micros
	}
	return t
}

// FormatMicros writes millionths as a decimal number: see [hooks.Micros].
func FormatMicros(n int64) string { return hooks.Micros(n).String() }
