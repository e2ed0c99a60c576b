package main

import (
	"bytes"
	"slices"
	"testing"
	"time"
)

func TestASeedSaysWhatGoesWrongWhen(t *testing.T) {
	t.Parallel()
	printed := func(seed string) string {
		var out bytes.Buffer
		if err := run(t.Context(), []string{"--schedule", "--seed=" + seed}, &out, &out); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	first := printed("7")
	if printed("7") != first {
		t.Error("the same seed gave two schedules")
	}
	if printed("8") == first {
		t.Error("two seeds gave the same schedule")
	}
}

func TestAScheduleKillsAsOftenAsItIsTold(t *testing.T) {
	t.Parallel()
	const duration, every, slots = 15 * time.Minute, 1500 * time.Millisecond, 5
	faults := schedule(3, duration, every, slots)
	var count [faultKinds]int
	for i, f := range faults {
		count[f.kind]++
		if f.at >= duration || f.slot < 0 || f.slot >= slots || i > 0 && f.at <= faults[i-1].at {
			t.Errorf("fault %d: %s", i, f)
		}
	}
	if want := int(duration / every); count[kill] < want*8/10 || count[kill] > want*12/10 {
		t.Errorf("%d kills, want about %d", count[kill], want)
	}
	if i := slices.Index(count[:], 0); i >= 0 {
		t.Errorf("no %s", faultKind(i))
	}
}
