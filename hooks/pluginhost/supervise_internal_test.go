package pluginhost

import (
	"testing"
	"time"
)

func TestAfterSomeDeathsThereIsNoOtherStart(t *testing.T) {
	t.Parallel()
	limits := Limits{Deaths: 5, Window: time.Minute, Backoff: 100 * time.Millisecond, MaxBackoff: 300 * time.Millisecond}
	var d deaths
	now := time.Unix(0, 0)
	for i, about := range []time.Duration{100, 200, 300, 300} {
		about *= time.Millisecond
		wait, again := d.add(now, limits)
		if !again || wait < about/2 || wait > about*3/2 {
			t.Errorf("after death %d it waits for %s, %t; want about %s", i+1, wait, again, about)
		}
	}
	if _, again := d.add(now, limits); again {
		t.Error("after the fifth death it is started again")
	}
	if wait, again := d.add(now.Add(time.Hour), limits); !again || wait > 150*time.Millisecond {
		t.Errorf("a while later it waits for %s, %t", wait, again)
	}
}
