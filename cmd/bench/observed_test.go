package main

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/cmd/proc"
)

// comesTo reports whether a process comes to stand still, or to go on. Where that
// cannot be seen it does.
func comesTo(t *testing.T, p *proc.Process, still bool) bool {
	t.Helper()
	for limit := time.Now().Add(10 * time.Second); time.Now().Before(limit); _ = pause(t.Context(), time.Millisecond) {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID()) + "/stat")
		_, state, _ := strings.Cut(string(text), ") ")
		if err != nil || strings.HasPrefix(state, "T") == still {
			return true
		}
	}
	return false
}

func TestOneOfThoseThatAreComparedStandsStill(t *testing.T) {
	t.Parallel()
	var pair [2]*compared
	var turns []int
	for i := range pair {
		p, err := proc.Start(t.Context(), proc.Config{Binary: stub(t, "echo 'msg=serving url=http://127.0.0.1:1' >&2; exec sleep 600"), Patience: startLimit})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
		pair[i] = &compared{item: []string{"off", "on"}[i], node: p, listeners: []*listener{{}}}
	}
	for i, c := range pair {
		c.wait = func(time.Duration) error {
			if !comesTo(t, c.node, false) || !comesTo(t, pair[1-i].node, true) {
				t.Errorf("it is the turn of %s, and it stands still, or the other one does not", c.item)
			}
			if l := c.listeners[0]; !l.from.IsZero() { // its window is open
				l.deltas = append(l.deltas, delta{l.from, time.Millisecond}, delta{l.from.Add(time.Hour), time.Second})
			}
			turns = append(turns, i)
			return nil
		}
	}
	b := &bench{sizes: smokeSizes()}
	if err := b.takeTurns(pair); err != nil {
		t.Fatal(err)
	}
	if want := []int{0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0}; !slices.Equal(turns, want) {
		t.Errorf("the turns are %v; want %v", turns, want)
	}
	for _, c := range pair {
		if want := slices.Repeat([]time.Duration{time.Millisecond}, len(c.added)); len(c.added) != 4 || !slices.Equal(c.added, want) || c.wall <= 0 {
			t.Errorf("%s: %v in %v", c.item, c.added, c.wall)
		}
	}
	ended := errors.New("a stream has ended")
	for n := range 3 { // before the window, in it, and behind it
		pair[0].wait = func(time.Duration) error {
			if n--; n < 0 {
				return ended
			}
			return nil
		}
		if err := b.takeTurns(pair); !errors.Is(err, ended) || !strings.HasPrefix(err.Error(), "off: ") {
			t.Errorf("%v", err)
		}
	}
}
