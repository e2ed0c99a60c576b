package observed_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/seed-2ca4966b/agentd/hooks/observe"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/loop/model/observed"
)

func TestWithoutPluginsTheModelIsItself(t *testing.T) {
	t.Parallel()
	p := &looptest.Provider{}
	for name, r := range map[string]*observe.Registry{"None": nil, "Empty": observe.NewRegistry(nil)} {
		if got := observed.Wrap(p, r); got != loop.Model(p) {
			t.Errorf("%s: %T", name, got)
		}
	}
	if got := observed.Wrap(nil, registry(t, nil, failing{})); got != nil {
		t.Errorf("no model: %T", got)
	}
}

//nolint:paralleltest // what others allocate at the same time would count
func TestWithoutPluginsAChunkAllocatesNothing(t *testing.T) {
	c := looptest.Text("hello")
	for name, tt := range map[string]struct {
		registry *observe.Registry
		want     float64
	}{"None": {nil, 0}, "Empty": {observe.NewRegistry(nil), 0}, "One": {registry(t, nil, &counts{}), 0}} {
		var got float64
		m := observed.Wrap(looptest.Model(func(_ context.Context, _ loop.ModelRequest, yield func(stream.Chunk, error) bool) {
			got = testing.AllocsPerRun(1000, func() { yield(c, nil) })
		}), tt.registry)
		m.Stream(t.Context(), loop.ModelRequest{})(func(stream.Chunk, error) bool { return true })
		if got != tt.want {
			t.Errorf("%s: %v allocations per chunk", name, got)
		}
	}
}

type counts struct{ events int }

func (c *counts) AfterEvent(observe.Event) error { c.events++; return nil }

func TestAModelStaysWhatItIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, _ := watched(t, plays(nil))
		if _, ok := m.(loop.ProviderModel); ok {
			t.Error("a model without HTTP has become one with")
		}
		inner := &looptest.Provider{Plays: plays(nil)}
		m, k := watched(t, inner)
		p, ok := m.(loop.ProviderModel)
		if !ok {
			t.Fatal("a model with HTTP has become one without")
		}
		req := loop.ModelRequest{Model: "m"}
		got, err := p.Request(req)
		if want := looptest.Written(req); err != nil || got.Body != want.Body || !slices.Equal(got.Headers, want.Headers) {
			t.Errorf("request %+v, %v", got, err)
		}
		if told := k.take(); told != nil {
			t.Errorf("of a request that is not sent plugins were told %v", told)
		}
	})
}

// TestWhoReadsGetsTheSame: whatever the model does, and however badly plugins fail.
func TestWhoReadsGetsTheSame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		answer := looptest.Answer(looptest.Reasoning("hm"), looptest.Text("a"), looptest.Text(""), looptest.ToolCall("1", "look", `{"a":1}`),
			stream.Chunk{Kind: 77, Lane: "smell"}, looptest.Finish(stream.FinishToolCalls))
		for name, inner := range map[string]looptest.Model{
			"Whole":      plays(nil, answer),
			"Empty":      plays(nil),
			"CutOff":     plays(nil, answer[:3]),
			"Error":      plays(broken, answer[:2]),
			"ErrorFirst": plays(&loop.ModelError{Status: 500}),
			"ErrorAfter": plays(broken, answer),
			"GoesOnAfterAnError": func(_ context.Context, _ loop.ModelRequest, yield func(stream.Chunk, error) bool) {
				_ = yield(answer[0], broken) && yield(stream.Chunk{}, broken) && yield(answer[1], nil)
			},
			"Panic": func(_ context.Context, _ loop.ModelRequest, yield func(stream.Chunk, error) bool) {
				yield(answer[0], nil)
				panic(broken)
			},
			"IgnoresThatNobodyReads": func(_ context.Context, _ loop.ModelRequest, yield func(stream.Chunk, error) bool) {
				for _, c := range answer {
					yield(c, nil)
				}
			},
		} {
			for _, limit := range []int{1, 2, all} {
				want, wantPanic := read(inner.Stream(t.Context(), loop.ModelRequest{}), limit)
				for with, plugin := range map[string]any{"Failing": failing{}, "Keeping": &keeping{}} {
					r := registry(t, nil, plugin)
					provider := observed.Wrap(&looptest.Provider{Plays: inner}, r)
					for by, seq := range map[string]iter.Seq2[stream.Chunk, error]{
						"Model":    observed.Wrap(inner, r).Stream(t.Context(), loop.ModelRequest{}),
						"Provider": provider.Stream(t.Context(), loop.ModelRequest{}),
						"Sent":     provider.(loop.ProviderModel).Send(t.Context(), loop.ModelRequest{}, loop.ProviderRequest{}, nil),
					} {
						got, gotPanic := read(seq, limit)
						if !slices.Equal(got, want) || text(gotPanic) != text(wantPanic) {
							t.Errorf("%s by %s with %s, read up to %d:\n got %v, panic %v\nwant %v, panic %v", name, by, with, limit, got, gotPanic, want, wantPanic)
						}
					}
				}
			}
		}
	})
}

// text is that of a panic; those of the runtime are never the same.
func text(panicked any) string {
	switch v := panicked.(type) {
	case nil:
		return ""
	case error:
		return v.Error()
	}
	return "something else"
}

func TestARequestThatCannotBeWrittenIsNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		m, k := watched(t, &looptest.Provider{Writes: func(loop.ModelRequest) (loop.ProviderRequest, error) { return loop.ProviderRequest{}, broken }})
		got, _ := read(m.Stream(t.Context(), loop.ModelRequest{}), all)
		if !slices.Equal(got, []element{{err: broken}}) {
			t.Errorf("got %v", got)
		}
		if told := k.take(); told != nil {
			t.Errorf("plugins were told %v", told)
		}
	})
}

// TestWhoIsToldOfTheBeginningIsToldAsBefore: status and header reach the caller, and
// what it says of them ends the call.
func TestWhoIsToldOfTheBeginningIsToldAsBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := loop.ProviderResponse{Status: 201}
		no := errors.New("no")
		m, k := watched(t, &looptest.Provider{Plays: plays(nil, looptest.Finish(stream.FinishStop)), Begins: func(loop.ModelRequest) loop.ProviderResponse { return begin }})
		var seen loop.ProviderResponse
		received := func(_ context.Context, r loop.ProviderResponse) error { seen = r; return no }
		got, _ := read(m.(loop.ProviderModel).Send(t.Context(), loop.ModelRequest{}, loop.ProviderRequest{Body: "12345"}, received), all)
		if !slices.Equal(got, []element{{err: no}}) || seen.Status != 201 {
			t.Errorf("got %v, seen %+v", got, seen)
		}
		told := k.take()
		if told[0] != (observe.Request{Method: observe.MethodWrite, BodyBytes: 5}) {
			t.Errorf("told %+v", told[0])
		}
		if got, want := ending(t, told), "failed rejected, 201 2xx, 0 events, {Input:0 Output:0 Total:0 Estimated:false}"; got != want {
			t.Errorf("told %s", got)
		}
	})
}

// TestOneModelServesManyRequestsAtOnce under the race detector.
func TestOneModelServesManyRequestsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := &looptest.Provider{Plays: plays(nil, looptest.Text("a"), looptest.Text("b"), looptest.Finish(stream.FinishStop))}
		k := &keeping{}
		m := observed.Wrap(inner, registry(t, func(observe.Report) {}, failing{}, k, failing{}))
		var wait sync.WaitGroup
		for range 100 {
			wait.Go(func() {
				if got, _ := read(m.Stream(t.Context(), loop.ModelRequest{}), all); len(got) != 3 {
					t.Errorf("got %v", got)
				}
			})
		}
		wait.Wait()
		if n := len(k.take()); n != 100*5 {
			t.Errorf("told %d times", n)
		}
	})
}
