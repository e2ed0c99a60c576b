package observe_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/observe"
)

//nolint:paralleltest // what others allocate at the same time would count
func TestNothingIsAllocatedWithoutPlugins(t *testing.T) {
	for name, r := range map[string]*observe.Registry{"None": nil, "Empty": observe.NewRegistry(nil)} {
		now := time.Now()
		if n := testing.AllocsPerRun(1000, func() {
			s := r.Begin(observe.MethodWrite, 1)
			s.Event(observe.EventText, 1, now)
			s.Status(200)
			s.Complete(observe.CompletionStop, observe.RawUsage{})
			s.Fail(observe.ErrorOther, observe.RawUsage{})
		}); n != 0 {
			t.Errorf("%s: %v allocations per request", name, n)
		}
	}
}

//nolint:paralleltest // what others allocate at the same time would count
func TestAnEventAllocatesNothingWithPlugins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen uint64
		r := with(t, nil, &counting{}, ends{}, eventCounter{&seen})
		s := r.Begin(observe.MethodWrite, 1)
		defer s.Complete(observe.CompletionStop, observe.RawUsage{})
		now := time.Now()
		if n := testing.AllocsPerRun(1000, func() { s.Event(observe.EventText, 1, now) }); n != 0 {
			t.Errorf("%v allocations per event", n)
		}
		if seen != 1001 { // one more to warm up
			t.Errorf("%d events were told", seen)
		}
	})
}

type eventCounter struct{ n *uint64 }

func (c eventCounter) AfterEvent(e observe.Event) error { *c.n = e.Number; return nil }

func BenchmarkEvent(b *testing.B) {
	for name, plugins := range map[string][]any{
		"None": nil, "NotOfEvents": {ends{}}, "One": {&counting{}}, "Four": {&counting{}, &counting{}, &counting{}, &counting{}},
	} {
		b.Run(name, func(b *testing.B) {
			s := with(b, nil, plugins...).Begin(observe.MethodWrite, 1)
			defer s.Complete(observe.CompletionStop, observe.RawUsage{})
			now := time.Now()
			b.ReportAllocs()
			for b.Loop() {
				s.Event(observe.EventText, 1, now)
			}
		})
	}
}
