package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// faultKind is what happens to the system.
type faultKind int

const (
	kill       faultKind = iota // SIGKILL of a process
	freeze                      // SIGSTOP, and SIGCONT later
	leave                       // SIGTERM, as a deploy does
	cut                         // all connections of a process to Postgres are closed
	loseCommit                  // a COMMIT of a process never arrives
	loseAnswer                  // a COMMIT of a process is answered to nobody
	silence                     // a process and Postgres hear nothing of each other
	restart                     // Postgres is restarted in order
	crash                       // Postgres is killed
	faultKinds
)

var faultNames = [faultKinds]string{
	"SIGKILL", "SIGSTOP", "SIGTERM", "connections cut", "COMMIT lost", "COMMIT unanswered", "partition", "Postgres restarted", "Postgres crashed",
}

func (k faultKind) String() string { return faultNames[k] }

// weights of the kinds, of which the first is as often as all others together.
var weights = [faultKinds]int{kill: 50, freeze: 10, leave: 10, cut: 8, loseCommit: 5, loseAnswer: 8, silence: 4, restart: 3, crash: 2}

// fault is one thing that goes wrong.
type fault struct {
	at   time.Duration // since the beginning
	kind faultKind
	// slot is the process that it happens to, if it is alive then: otherwise
	// the next one that is.
	slot int
	// lasts is how long, for those that last; and how long a killed process
	// stays away.
	lasts time.Duration
}

func (f fault) String() string {
	return fmt.Sprintf("%8.3fs %-18s slot %d, %s", f.at.Seconds(), f.kind, f.slot, f.lasts.Round(time.Millisecond))
}

// schedule is the same for the same seed and settings. Processes are killed
// with SIGKILL every so often on average.
func schedule(seed uint64, duration, killEvery time.Duration, slots int) []fault {
	random := rand.New(rand.NewPCG(seed, 1))
	total := 0
	for _, w := range weights {
		total += w
	}
	gap := killEvery * time.Duration(weights[kill]) / time.Duration(total)
	var out []fault
	for at := gap; ; {
		at += gap/2 + time.Duration(random.Int64N(int64(gap)))
		if at >= duration {
			return out
		}
		f := fault{at: at, slot: random.IntN(slots)}
		n := random.IntN(total)
		for kind, w := range weights {
			if n -= w; n < 0 {
				f.kind = faultKind(kind)
				break
			}
		}
		f.lasts = f.kind.duration(random)
		out = append(out, f)
	}
}

// duration is around the lease for what takes a process away from its peers.
func (k faultKind) duration(random *rand.Rand) time.Duration {
	between := func(low, high time.Duration) time.Duration {
		return low + time.Duration(random.Int64N(int64(high-low)))
	}
	switch k {
	case freeze, silence:
		return between(500*time.Millisecond, 6*time.Second)
	default:
		return between(0, 500*time.Millisecond)
	}
}
