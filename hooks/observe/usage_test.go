package observe_test

import (
	"encoding/json"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-2ca4966b/agentd/hooks/observe"
)

func TestACountIsANumberOfTokens(t *testing.T) {
	t.Parallel()
	const most = observe.MaxTokens
	for name, tt := range map[string]struct {
		count     observe.Count
		want      uint64
		estimated bool
	}{
		"None":                {observe.Count{}, 0, false},
		"Zero":                {observe.Int(0), 0, false},
		"NegativeZero":        {observe.Float(math.Copysign(0, -1)), 0, false},
		"Integer":             {observe.Int(7), 7, false},
		"WholeFloat":          {observe.Float(7), 7, false},
		"NaN":                 {observe.Float(math.NaN()), 0, true},
		"Infinite":            {observe.Float(math.Inf(1)), 0, true},
		"MinusInfinite":       {observe.Float(math.Inf(-1)), 0, true},
		"Negative":            {observe.Int(-1), 0, true},
		"MostNegative":        {observe.Int(math.MinInt64), 0, true},
		"NegativeFloat":       {observe.Float(-0.25), 0, true},
		"Fraction":            {observe.Float(7.9), 7, true},
		"SmallestFraction":    {observe.Float(math.SmallestNonzeroFloat64), 0, true},
		"AsMuchAsGoes":        {observe.Int(most), most, false},
		"AsMuchAsGoesAFloat":  {observe.Float(most), most, false},
		"OneMore":             {observe.Int(most + 1), most, true},
		"AFloatMore":          {observe.Float(most + 2), most, true},
		"MostOfAll":           {observe.Int(math.MaxInt64), most, true},
		"MostOfAllFloats":     {observe.Float(math.MaxFloat64), most, true},
		"JSONNone":            {observe.Number(""), 0, false},
		"JSONInteger":         {observe.Number("7"), 7, false},
		"JSONExponent":        {observe.Number("7e2"), 700, false},
		"JSONFraction":        {observe.Number("7.5"), 7, true},
		"JSONNegative":        {observe.Number("-3"), 0, true},
		"JSONMoreThanAnInt64": {observe.Number("18446744073709551616"), most, true},
		"JSONOutOfRange":      {observe.Number("1e999"), 0, true},
		"JSONNaN":             {observe.Number("NaN"), 0, true},
		"JSONText":            {observe.Number(json.Number("seven")), 0, true},
	} {
		got := observe.RawUsage{Input: tt.count, Total: observe.Int(1)}.Usage()
		want := observe.Usage{Input: tt.want, Total: 1, Estimated: tt.estimated}
		if got != want {
			t.Errorf("%s as the input: %+v, want %+v", name, got, want)
		}
		got = observe.RawUsage{Output: tt.count, Total: observe.Int(1)}.Usage()
		if want = (observe.Usage{Output: tt.want, Total: 1, Estimated: tt.estimated}); got != want {
			t.Errorf("%s as the output: %+v, want %+v", name, got, want)
		}
	}
}

func TestTheTotalIsTheSumUnlessThereIsOne(t *testing.T) {
	t.Parallel()
	in, out := observe.Int(3), observe.Int(5)
	for name, tt := range map[string]struct {
		raw  observe.RawUsage
		want observe.Usage
	}{
		"Nothing":       {observe.RawUsage{}, observe.Usage{}},
		"Derived":       {observe.RawUsage{Input: in, Output: out}, observe.Usage{Input: 3, Output: 5, Total: 8}},
		"Said":          {observe.RawUsage{Input: in, Output: out, Total: observe.Int(10)}, observe.Usage{Input: 3, Output: 5, Total: 10}},
		"SaidToBeZero":  {observe.RawUsage{Input: in, Output: out, Total: observe.Int(0)}, observe.Usage{Input: 3, Output: 5}},
		"Nonsense":      {observe.RawUsage{Input: in, Output: out, Total: observe.Float(math.NaN())}, observe.Usage{Input: 3, Output: 5, Total: 8, Estimated: true}},
		"Negative":      {observe.RawUsage{Input: in, Output: out, Total: observe.Int(-8)}, observe.Usage{Input: 3, Output: 5, Total: 8, Estimated: true}},
		"HalfIsUnknown": {observe.RawUsage{Output: out}, observe.Usage{Output: 5, Total: 5}},
		"Guessed":       {observe.RawUsage{Output: out, Estimated: true}, observe.Usage{Output: 5, Total: 5, Estimated: true}},
		"TooMuch": {
			observe.RawUsage{Input: observe.Int(observe.MaxTokens), Output: observe.Int(1)},
			observe.Usage{Input: observe.MaxTokens, Output: 1, Total: observe.MaxTokens, Estimated: true},
		},
	} {
		if got := tt.raw.Usage(); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

func TestWhateverIsReportedUsageIsWithinItsBounds(t *testing.T) {
	t.Parallel()
	count := rapid.OneOf(
		rapid.Map(rapid.Int64(), observe.Int),
		rapid.Map(rapid.Float64(), observe.Float),
		rapid.Map(rapid.String(), func(s string) observe.Count { return observe.Number(json.Number(s)) }),
		rapid.Just(observe.Count{}),
	)
	rapid.Check(t, func(t *rapid.T) {
		u := observe.RawUsage{Input: count.Draw(t, "input"), Output: count.Draw(t, "output"), Total: count.Draw(t, "total")}.Usage()
		for _, n := range []uint64{u.Input, u.Output, u.Total} {
			if n > observe.MaxTokens {
				t.Fatalf("%+v", u)
			}
		}
	})
}
