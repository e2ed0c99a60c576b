package observe

import (
	"testing"
	"testing/synctest"
	"time"
)

type slow struct{}

func (slow) AfterEvent(Event) error { <-time.After(Timeout + 1); return nil }

// TestAPluginThatWasLateIsOutAlsoIfNobodyNoticed: on a loaded machine it may have
// come back before whoever waits for it looked at the clock.
func TestAPluginThatWasLateIsOutAlsoIfNobodyNoticed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry(nil)
		if err := r.Register("a", slow{}); err != nil {
			t.Fatal(err)
		}
		s := r.Begin(MethodNone, 0)
		s.hook = HookAfterEvent
		w := &worker{}
		w.asking.Store(idle)
		if !w.askAll(s) || !s.off[0] || len(s.reports) != 1 || s.reports[0].Reason != ReasonTimeout {
			t.Errorf("off %v, reports %v", s.off, s.reports)
		}
	})
}
