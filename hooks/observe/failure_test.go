package observe_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/observe"
)

// pass lets so much of a bubble's time pass.
func pass(d time.Duration) { <-time.After(d) }

// failure is a way for a plugin to fail.
type failure struct {
	reason observe.Reason
	how    func() error
}

func failures() map[string]failure {
	return map[string]failure{
		"Error":  {observe.ReasonError, func() error { return errors.New("of somebody's secret") }},
		"Panic":  {observe.ReasonPanic, func() error { panic("a secret") }},
		"Nil":    {observe.ReasonPanic, func() error { panic(map[int]any{}[0]) }},
		"Goexit": {observe.ReasonPanic, func() error { runtime.Goexit(); return nil }},
		"Late":   {observe.ReasonTimeout, func() error { pass(observe.Timeout + time.Millisecond); return nil }},
	}
}

// TestAPluginThatFailsIsLeftOutOfThatRequestOnly: the others are asked on, and the
// next request asks it again.
func TestAPluginThatFailsIsLeftOutOfThatRequestOnly(t *testing.T) {
	t.Parallel()
	for name, f := range failures() {
		for _, at := range []observe.Hook{observe.HookBeforeRequest, observe.HookAfterEvent, observe.HookOnComplete} {
			t.Run(name+string(at), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var l told
					r := with(t, func(r observe.Report) { l.add("%+v", r) }, l.noting("a"), plugin(func(h observe.Hook, _ any) error {
						l.add("b %s", h)
						if h == at {
							return f.how()
						}
						return nil
					}), l.noting("c"))
					report := fmt.Sprintf("{Plugin:b Hook:%s Reason:%s}", at, f.reason)
					var want []string
					out := false
					for _, h := range []observe.Hook{observe.HookBeforeRequest, observe.HookAfterEvent, observe.HookAfterEvent, observe.HookOnComplete} {
						want = append(want, "a "+string(h))
						if !out {
							want = append(want, "b "+string(h))
						}
						want = append(want, "c "+string(h))
						if h == at && !out {
							want, out = append(want, report), true
						}
					}
					for range 3 {
						request(r)
						expect(t, "asked", l.take(), want)
					}
					pass(time.Minute)
					if n := r.Hung(); n != 0 {
						t.Errorf("%d goroutines hang", n)
					}
				})
			})
		}
	}
}

// TestAPluginThatHangsCostsItsTimeoutOnce: however many events follow.
func TestAPluginThatHangsCostsItsTimeoutOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l told
		release := make(chan struct{})
		r := with(t, nil, plugin(func(observe.Hook, any) error { <-release; return nil }), l.noting("b"))
		begun := time.Now()
		s := r.Begin(observe.MethodNone, 0)
		for range 100 {
			s.Event(observe.EventText, 1, time.Now())
		}
		s.Complete(observe.CompletionStop, observe.RawUsage{})
		if took := time.Since(begun); took != observe.Timeout {
			t.Errorf("it took %v", took)
		}
		if n := len(l.take()); n != 102 {
			t.Errorf("the one behind was asked %d times", n)
		}
		if n := r.Hung(); n != 1 {
			t.Errorf("%d goroutines hang", n)
		}
		close(release)
		synctest.Wait()
		if n := r.Hung(); n != 0 {
			t.Errorf("%d goroutines hang once they were released", n)
		}
	})
}

// TestAPluginThatIsAlwaysALittleSlowIsLeftOut: it must not hold up a long answer at
// each of its events.
func TestAPluginThatIsAlwaysALittleSlowIsLeftOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l told
		r := with(t, func(r observe.Report) { l.add("%+v", r) }, plugin(func(observe.Hook, any) error { pass(observe.Timeout - time.Millisecond); return nil }))
		begun := time.Now()
		s := r.Begin(observe.MethodNone, 0)
		for range 1000 {
			s.Event(observe.EventText, 1, time.Now())
		}
		s.Complete(observe.CompletionStop, observe.RawUsage{})
		if took := time.Since(begun); took > observe.Budget+observe.Timeout {
			t.Errorf("it took %v", took)
		}
		expect(t, "reports", l.take(), []string{"{Plugin:a Hook:AfterEvent Reason:timeout}"})
	})
}

// TestGoroutinesThatHangAreBounded: a plugin that never comes back is asked by each
// request, up to a limit, and the requests beyond it do not even wait.
func TestGoroutinesThatHangAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		reports := 0
		hangs := plugin(func(h observe.Hook, _ any) error {
			if h == observe.HookBeforeRequest {
				<-release
			}
			return nil
		})
		r := with(t, func(r observe.Report) {
			if r != (observe.Report{Plugin: "a", Hook: observe.HookBeforeRequest, Reason: observe.ReasonTimeout}) {
				t.Error(r)
			}
			reports++
		}, hangs)
		const most = 100
		begun := time.Now()
		for range most + 20 {
			request(r)
		}
		if r.Hung() != most || reports != most+20 || time.Since(begun) != most*observe.Timeout {
			t.Errorf("%d hang, %d reports, took %v", r.Hung(), reports, time.Since(begun))
		}
		close(release)
		synctest.Wait()
		reports = 0
		request(r)
		if r.Hung() != 0 || reports != 0 {
			t.Errorf("afterwards %d hang, %d reports", r.Hung(), reports)
		}
	})
}

// TestAPluginThatHangsAndThenPanicsOrExitsTakesNobodyWithIt: nobody waits for it by
// then.
func TestAPluginThatHangsAndThenPanicsOrExitsTakesNobodyWithIt(t *testing.T) {
	t.Parallel()
	for name, f := range failures() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var l told
				r := with(t, func(r observe.Report) { l.add("%+v", r) }, plugin(func(h observe.Hook, _ any) error {
					pass(time.Second)
					return f.how()
				}))
				request(r)
				pass(time.Minute)
				expect(t, "reports", l.take(), []string{"{Plugin:a Hook:BeforeRequest Reason:timeout}"})
				if n := r.Hung(); n != 0 {
					t.Errorf("%d goroutines hang", n)
				}
			})
		})
	}
}

func TestAReporterThatPanicsBreaksNoRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l told
		request(with(t, func(observe.Report) { panic("no") }, plugin(func(observe.Hook, any) error { return errors.New("no") }), l.noting("b")))
		if n := len(l.take()); n != 4 {
			t.Errorf("the other plugin was asked %d times", n)
		}
	})
}

func TestNobodyNeedsTheReports(t *testing.T) {
	t.Parallel()
	request(with(t, nil, plugin(func(observe.Hook, any) error { return errors.New("no") })))
}
