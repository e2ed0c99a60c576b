package main

import (
	"math"
	"slices"
	"time"
)

// figure is what was measured in the rounds under one name.
type figure struct {
	Part    string    `json:"part"`
	Case    string    `json:"case"`
	Name    string    `json:"figure"`
	Unit    string    `json:"unit"`
	Median  float64   `json:"median"`
	Min     float64   `json:"min"`
	Max     float64   `json:"max"`
	Samples []float64 `json:"samples"`
}

// figures are in the order in which they came first. Not safe for concurrent
// use.
type figures struct{ list []*figure }

func (f *figures) add(part, item, name, unit string, value float64) {
	g := f.find(part, item, name)
	if g == nil {
		g = &figure{Part: part, Case: item, Name: name, Unit: unit}
		f.list = append(f.list, g)
	}
	g.Samples = append(g.Samples, value)
	sorted := slices.Sorted(slices.Values(g.Samples))
	g.Median, g.Min, g.Max = median(sorted), sorted[0], sorted[len(sorted)-1]
}

// addTimes adds percentiles of times that were measured in one round.
func (f *figures) addTimes(part, item, what string, times []time.Duration, percentiles ...float64) {
	slices.Sort(times)
	for _, p := range percentiles {
		f.add(part, item, what+" "+percentileName(p), "ms", millis(percentile(times, p)))
	}
}

// find returns nil if there is none.
func (f *figures) find(part, item, name string) *figure {
	for _, g := range f.list {
		if g.Part == part && g.Case == item && g.Name == name {
			return g
		}
	}
	return nil
}

// last is the value of this round, NaN if there is none.
func (f *figures) last(part, item, name string) float64 {
	g := f.find(part, item, name)
	if g == nil {
		return math.NaN()
	}
	return g.Samples[len(g.Samples)-1]
}

// addRatio adds a ratio of two values of this round.
func (f *figures) addRatio(part, item, name string, value, base float64) {
	if r := value / base; !math.IsNaN(r) && !math.IsInf(r, 0) {
		f.add(part, item, name, "×", r)
	}
}

func median(sorted []float64) float64 {
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// percentile is the smallest of the sorted times that so many percent do not
// exceed, 0 if there are none.
func percentile(sorted []time.Duration, percent float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	n := int(math.Ceil(percent / 100 * float64(len(sorted))))
	return sorted[min(max(n, 1), len(sorted))-1]
}

func percentileName(percent float64) string {
	if percent == 100 {
		return "max"
	}
	return "p" + formatFloat(percent)
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
