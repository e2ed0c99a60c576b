package main

import "time"

// sizes say how much is measured.
type sizes struct {
	rounds int
	// time is the length of one measurement, warm what goes before it.
	time, warm time.Duration

	inserters []int // clients of the single insert
	runs      []int // concurrent reference runs
	gatesAt   int   // concurrent runs where the hooks are counted, and the slow disk
	hooks     []int // hooks at each gate
	gateFuncs []int // Go hooks at one gate
	gateRules []int // rules at one gate
	asks      int   // of each gate, to count allocations
	others    int   // clients of runs beside a broken plugin
	besides   int   // times that runs are measured beside each plugin, in a round; even
	streams   []int // concurrent paced streams
	observed  int   // paced streams with observers and without
	turns     int   // of each of the two, in a round
	flood     int   // chunks of an answer that comes at once
	stops     int   // answers that an observer stops, in a round
	audience  int   // clients of one session
	idlers    int   // clients of sessions where nothing happens
	replay    int   // events of a long session
	replays   int   // of it, in a round
	lanes     int   // pairs of workers, of which one is killed
	kills     int   // of each kind, in each lane, in a round
	cancels   int   // in each state, in a round
	lease     time.Duration
}

// fullSizes make figures that can be compared with those of another day.
func fullSizes(measured time.Duration, rounds int) sizes {
	return sizes{
		rounds: rounds, time: measured, warm: measured / 3,
		inserters: []int{1, 8, 32}, runs: []int{1, 16, 64, 256}, gatesAt: 64, hooks: []int{0, 1, 5}, gateFuncs: []int{1, 5}, gateRules: []int{5, 50},
		asks: 200, others: 16, besides: 8,
		streams: []int{16, 256, 1000}, observed: 256, turns: 6, flood: 5000, stops: 20, audience: 1000, idlers: 10_000,
		replay: 100_000, replays: 3, lanes: 5, kills: 2, cancels: 20, lease: 3 * time.Second,
	}
}

// smokeSizes show that everything works, and make no figure worth keeping.
func smokeSizes() sizes {
	const short = 100 * time.Millisecond
	return sizes{
		rounds: 1, time: short, warm: short / 2,
		inserters: []int{2}, runs: []int{1, 8}, gatesAt: 8, hooks: []int{0, 1}, gateFuncs: []int{1}, gateRules: []int{5},
		asks: 5, others: 2, besides: 2,
		streams: []int{8}, observed: 8, turns: 2, flood: 200, stops: 2, audience: 20, idlers: 100,
		replay: 2000, replays: 1, lanes: 1, kills: 1, cancels: 1, lease: 600 * time.Millisecond,
	}
}
