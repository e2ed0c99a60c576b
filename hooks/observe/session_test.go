package observe_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/observe"
)

// The tests run in bubbles, whose clock stands while somebody works: on a loaded
// machine a plugin may be late that does nothing.

// plugin is a plugin that a function plays. It is asked at every hook.
type plugin func(h observe.Hook, payload any) error

func (p plugin) BeforeRequest(r observe.Request) error { return p(observe.HookBeforeRequest, r) }
func (p plugin) AfterEvent(e observe.Event) error      { return p(observe.HookAfterEvent, e) }
func (p plugin) OnComplete(c observe.Completion) error { return p(observe.HookOnComplete, c) }
func (p plugin) OnError(f observe.Failure) error       { return p(observe.HookOnError, f) }

// told is what plugins were asked, in order.
type told struct {
	mu    sync.Mutex
	lines []string
}

func (l *told) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *told) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = nil
	return lines
}

// noting is a plugin that notes where it is asked.
func (l *told) noting(id string) plugin {
	return func(h observe.Hook, _ any) error { l.add("%s %s", id, h); return nil }
}

// with registers plugins under the letters from a on.
func with(t testing.TB, report func(observe.Report), plugins ...any) *observe.Registry {
	t.Helper()
	r := observe.NewRegistry(report)
	for i, p := range plugins {
		if err := r.Register(string(rune('a'+i)), p); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// request is one request with two events.
func request(r *observe.Registry) {
	s := r.Begin(observe.MethodWrite, 10)
	s.Event(observe.EventText, 3, time.Now())
	s.Event(observe.EventFinish, 0, time.Now())
	s.Complete(observe.CompletionStop, observe.RawUsage{})
}

func expect[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

func TestPluginsAreAskedInTheOrderOfTheirRegistration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l told
		r := with(t, nil, l.noting("z"), ends{}, l.noting("y"), l.noting("x"))
		request(r)
		expect(t, "asked", l.take(), []string{
			"z BeforeRequest", "y BeforeRequest", "x BeforeRequest",
			"z AfterEvent", "y AfterEvent", "x AfterEvent",
			"z AfterEvent", "y AfterEvent", "x AfterEvent",
			"z OnComplete", "y OnComplete", "x OnComplete",
		})
		r.Begin(observe.MethodNone, 0).Fail(observe.ErrorTimeout, observe.RawUsage{})
		expect(t, "asked", l.take(), []string{"z BeforeRequest", "y BeforeRequest", "x BeforeRequest", "z OnError", "y OnError", "x OnError"})
	})
}

func TestPluginsAreToldNumbersAndWords(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var payloads []any
		r := with(t, nil, plugin(func(_ observe.Hook, p any) error { payloads = append(payloads, p); return nil }))
		s := r.Begin(observe.MethodWrite, 120)
		begun := time.Now()
		s.Status(200)
		s.Event(observe.EventReasoning, 4, begun.Add(time.Second))
		s.Event(observe.EventText, 6, begun.Add(2*time.Second))
		s.Complete(observe.CompletionLength, observe.RawUsage{Input: observe.Int(7), Output: observe.Float(2.5)})

		first, second, end := payloads[1].(observe.Event), payloads[2].(observe.Event), payloads[3].(observe.Completion)
		if first.Elapsed < time.Second || second.Elapsed < first.Elapsed+time.Second || end.FirstEvent != first.Elapsed || end.Elapsed < 0 {
			t.Errorf("times: %v, %v, %v, %v", first.Elapsed, second.Elapsed, end.FirstEvent, end.Elapsed)
		}
		first.Elapsed, second.Elapsed, end.FirstEvent, end.Elapsed = 0, 0, 0, 0
		expect(t, "payloads", []any{payloads[0], first, second, end}, []any{
			observe.Request{Method: "write", BodyBytes: 120},
			observe.Event{Number: 1, Type: "reasoning", Bytes: 4},
			observe.Event{Number: 2, Type: "text", Bytes: 6},
			observe.Completion{Class: "length", Exchange: observe.Exchange{
				Method: "write", Status: 200, StatusClass: "2xx", Events: 2, Bytes: 10,
				Usage: observe.Usage{Input: 7, Output: 2, Total: 9, Estimated: true},
			}},
		})

		payloads = nil
		r.Begin(observe.MethodNone, 0).Fail(observe.ErrorAuth, observe.RawUsage{})
		failed := payloads[1].(observe.Failure)
		failed.Elapsed = 0
		expect(t, "payloads", []any{payloads[0], failed}, []any{
			observe.Request{Method: "none"}, observe.Failure{Class: "auth", Exchange: observe.Exchange{Method: "none", StatusClass: "none"}},
		})
	})
}

func TestASessionEndsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l told
		s := with(t, nil, l.noting("a")).Begin(observe.MethodNone, 0)
		s.Fail(observe.ErrorStopped, observe.RawUsage{})
		s.Fail(observe.ErrorStopped, observe.RawUsage{})
		s.Complete(observe.CompletionStop, observe.RawUsage{})
		s.Event(observe.EventText, 1, time.Now())
		expect(t, "asked", l.take(), []string{"a BeforeRequest", "a OnError"})
	})
}

// TestWhatIsNotKnownIsOther: whoever asks may be newer than this package, or wrong.
func TestWhatIsNotKnownIsOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var payloads []any
		r := with(t, func(r observe.Report) { t.Error(r) }, plugin(func(_ observe.Hook, p any) error { payloads = append(payloads, p); return nil }))
		for _, status := range []int{-1, 99, 600, 1 << 40} {
			payloads = nil
			s := r.Begin("DELETE /secret", -5)
			s.Status(status)
			s.Event("citation with a secret", -7, time.Time{})
			s.Event("", 1, time.Now())
			s.Fail("the secret is wrong", observe.RawUsage{})
			failed := payloads[3].(observe.Failure)
			last := payloads[2].(observe.Event)
			failed.Elapsed, last.Elapsed = 0, 0
			expect(t, "payloads", []any{payloads[0], payloads[1], last, failed}, []any{
				observe.Request{Method: "other"}, observe.Event{Number: 1, Type: "other"}, observe.Event{Number: 2, Type: "other", Bytes: 1},
				observe.Failure{Class: "other", Exchange: observe.Exchange{Method: "other", StatusClass: "other", Events: 2, Bytes: 1}},
			})
		}
		payloads = nil
		r.Begin(observe.MethodRead, 0).Complete("because of a secret", observe.RawUsage{})
		if c := payloads[1].(observe.Completion); c.Class != observe.CompletionUnknown {
			t.Errorf("%+v", c)
		}
	})
}

func TestStatusClasses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got []string
		r := with(t, nil, plugin(func(h observe.Hook, p any) error {
			if f, ok := p.(observe.Failure); ok {
				got = append(got, fmt.Sprintf("%d %s", f.Status, f.StatusClass))
			}
			return nil
		}))
		for _, code := range []int{0, 100, 200, 299, 301, 404, 599} {
			s := r.Begin(observe.MethodRead, 0)
			s.Status(code)
			s.Fail(observe.ErrorOther, observe.RawUsage{})
		}
		expect(t, "statuses", got, []string{"0 none", "100 1xx", "200 2xx", "299 2xx", "301 3xx", "404 4xx", "599 5xx"})
	})
}

// TestRequestsShareNothing runs many at once over plugins that fail.
func TestRequestsShareNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		seen := map[observe.Hook]int{}
		reports := 0
		failing := plugin(func(h observe.Hook, _ any) error {
			if h == observe.HookAfterEvent {
				return errors.New("no")
			}
			return nil
		})
		r := with(t, func(observe.Report) { mu.Lock(); defer mu.Unlock(); reports++ }, failing,
			plugin(func(h observe.Hook, p any) error {
				mu.Lock()
				defer mu.Unlock()
				seen[h]++
				if e, ok := p.(observe.Event); ok && e.Number > 2 {
					return errors.New("a number of another request")
				}
				return nil
			}))
		const requests = 200
		var all sync.WaitGroup
		for range requests {
			all.Go(func() { request(r) })
		}
		all.Wait()
		if reports != requests || seen[observe.HookAfterEvent] != 2*requests || seen[observe.HookOnComplete] != requests {
			t.Errorf("%d reports, asked %v", reports, seen)
		}
	})
}
