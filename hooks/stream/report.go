package stream

import "time"

// Report is what one observer has done in an attempt.
type Report struct {
	// Registration is the observer, with its defaults filled in, Index its place
	// from 1, ChainLength how many were asked.
	Registration *Registration
	Index        int
	ChainLength  int
	// Chunks and Bytes are what it was handed, without the ends of blocks, and
	// BytesOut what went on from it.
	Chunks   int
	Bytes    int
	BytesOut int
	// Took is how long it took, all in all.
	Took time.Duration
	// How often it did what. What it emitted with a chunk that was stopped does
	// not count.
	Amended, Emitted, Held, Throttled int
	// Lanes are those in which it changed something, sorted.
	Lanes []Lane
	// Paused is for how long reading was paused for it.
	Paused time.Duration
	// Stopped is set if it stopped the answer, by its verdict or by failing.
	Stopped *Stopped
	// Failure is why it failed, nil if it did not. The text of a panic is not in
	// it: it may hold what the observer saw.
	Failure *Failure
}

// Failure is how an observer failed.
type Failure struct {
	// Outcome is one of hooks.Outcome: panic, timeout, malformed, oversize.
	Outcome string
	Text    string
	// Chunk is the number of the provider's chunk, from 1; 0 if it could not be made.
	Chunk int
}

// laneSet is a set of lanes.
type laneSet uint8

// sortedLanes are all lanes, in the order of their names.
var sortedLanes = [...]Lane{LaneReasoning, LaneText, LaneToolArguments}

func (s *laneSet) add(l Lane) {
	for i, known := range sortedLanes {
		if l == known {
			*s |= 1 << i
		}
	}
}

func (s laneSet) list() []Lane {
	var list []Lane
	for i, l := range sortedLanes {
		if s&(1<<i) != 0 {
			list = append(list, l)
		}
	}
	return list
}
