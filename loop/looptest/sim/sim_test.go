package sim_test

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/seed-2ca4966b/agentd/loop/looptest/sim"
	"github.com/seed-2ca4966b/agentd/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }

// number is a variable of the environment, which `make simulate` sets.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s is %q: %v", name, text, err)
	}
	return n
}

// TestNoScheduleBreaksAPromise plays AGENTD_SCHEDULES schedules from the seed
// AGENTD_SEED on.
func TestNoScheduleBreaksAPromise(t *testing.T) {
	t.Parallel()
	n, seed := number(t, "AGENTD_SCHEDULES", 200), number(t, "AGENTD_SEED", 1)
	width := uint64(runtime.GOMAXPROCS(0))
	var mu sync.Mutex
	var sum sim.Stats
	t.Cleanup(func() {
		t.Logf("%d schedules from seed %d: %+v", n, seed, sum)
		if n >= 100 && !t.Failed() && (sum.Crashes == 0 || sum.Zombies == 0 || sum.Faults == 0 || sum.Runs < int(n)) {
			t.Errorf("too little happened: %+v", sum)
		}
	})
	for part := range width {
		t.Run(strconv.FormatUint(part, 10), func(t *testing.T) {
			t.Parallel()
			for i := part; i < n && !t.Failed(); i += width {
				r := sim.Play(t, seed+i, "")
				if r.Found != nil {
					t.Errorf("seed %d: %s\nmade shorter: %s", seed+i, r.Found, sim.Shrink(t, r, "").Told())
				}
				mu.Lock()
				sum.Add(r.Stats)
				mu.Unlock()
			}
		})
	}
}

// TestASeedIsASchedule: the same seed gives the same log, byte for byte, and
// hardly any other does.
func TestASeedIsASchedule(t *testing.T) {
	t.Parallel()
	n := min(number(t, "AGENTD_SCHEDULES", 240)/6, 1000)
	logs := map[string]bool{}
	for seed := range n {
		first, second := sim.Play(t, seed, ""), sim.Play(t, seed, "")
		if first.Log != second.Log || first.Stats != second.Stats {
			t.Fatalf("seed %d has two logs:\n%s\n%s", seed, first.Log, second.Log)
		}
		logs[first.Log] = true
	}
	if uint64(len(logs)) < n*9/10 {
		t.Errorf("%d seeds have %d logs", n, len(logs))
	}
}

// TestABrokenPromiseIsToldInWords: what is found is made shorter, and the steps
// that are told lead to it.
func TestABrokenPromiseIsToldInWords(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		r := sim.Play(t, seed, sim.EntryFirst)
		if r.Found == nil {
			continue
		}
		short := sim.Shrink(t, r, sim.EntryFirst)
		if short.Found == nil || short.Found.Rule != r.Found.Rule || short.Steps > r.Steps {
			t.Fatalf("%v after %d steps became %v after %d", r.Found, r.Steps, short.Found, short.Steps)
		}
		told := short.Told()
		if !strings.Contains(told, "VIOLATED") || strings.Count(told, "\n") > 40 {
			t.Errorf("it is told as\n%s", told)
		}
		if good := sim.Play(t, seed, ""); good.Found != nil || good.Told() != "nothing was broken" {
			t.Errorf("without the mutation: %s", good.Told())
		}
		return
	}
	t.Fatal("it is not found")
}
