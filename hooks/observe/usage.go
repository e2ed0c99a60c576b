package observe

import (
	"encoding/json"
	"math"
	"strconv"
)

// MaxTokens is the largest number of tokens that a plugin is told: 2^53, up to
// which every whole number is one as a float64 too.
const MaxTokens = 1 << 53

// Usage is how many tokens a request took, 0 where nobody has said.
type Usage struct {
	Input  uint64
	Output uint64
	// Total is the sum of the two, unless the provider has said something else.
	Total uint64
	// Estimated says that at least one of them is not what the provider reported:
	// somebody guessed, or what was reported is no number of tokens.
	Estimated bool
}

// RawUsage is what somebody reported, whatever it is worth.
type RawUsage struct {
	Input, Output, Total Count
	// Estimated says that it was guessed.
	Estimated bool
}

// Count is one number as somebody reported it. The zero value is none.
type Count struct {
	given bool
	// whole says that n is the number, and not f.
	whole bool
	n     int64
	f     float64
}

// Int is a count that came as an integer.
func Int(n int64) Count { return Count{given: true, whole: true, n: n} }

// Float is a count that came as a float.
func Float(f float64) Count { return Count{given: true, f: f} }

// Number is a count that came as a JSON number. An empty one is none, and one that
// is no number counts as NaN.
func Number(s json.Number) Count {
	if s == "" {
		return Count{}
	}
	if n, err := strconv.ParseInt(string(s), 10, 64); err == nil {
		return Int(n)
	}
	f, err := strconv.ParseFloat(string(s), 64)
	if err != nil && !math.IsInf(f, 0) { // what is out of range has become infinite
		f = math.NaN()
	}
	return Float(f)
}

// tokens makes a number of tokens of the count: what is negative, infinite or no
// number becomes 0, a fraction is cut off, and [MaxTokens] stands for what is more.
// exact is false if anything of that was done; known is false if the count says
// nothing.
func (c Count) tokens() (n uint64, exact, known bool) {
	switch {
	case !c.given:
		return 0, true, false
	case c.whole && c.n < 0, c.f < 0, math.IsNaN(c.f), math.IsInf(c.f, 0):
		return 0, false, false
	case c.whole && c.n > MaxTokens, c.f > MaxTokens:
		return MaxTokens, false, true
	case c.whole:
		return uint64(c.n), true, true
	}
	whole := math.Trunc(c.f)
	return uint64(whole), whole == c.f, true
}

// Usage is what plugins are told of it.
func (r RawUsage) Usage() Usage {
	u := Usage{Estimated: r.Estimated}
	var exact, known bool
	note := func(ok bool) { u.Estimated = u.Estimated || !ok }
	u.Input, exact, _ = r.Input.tokens()
	note(exact)
	u.Output, exact, _ = r.Output.tokens()
	note(exact)
	u.Total, exact, known = r.Total.tokens()
	note(exact)
	if !known {
		u.Total = u.Input + u.Output
		if u.Total > MaxTokens {
			u.Total = MaxTokens
			note(false)
		}
	}
	return u
}
