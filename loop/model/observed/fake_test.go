package observed_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/observe"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/loop/model/observed"
)

// The tests run in bubbles, whose clock stands while somebody works: on a loaded
// machine a plugin may be late that does nothing.

// keeping is a plugin that keeps all that it is told. It is safe for concurrent use.
type keeping struct {
	mu   sync.Mutex
	kept []any
}

func (k *keeping) keep(p any) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept = append(k.kept, p)
	return nil
}

func (k *keeping) take() []any {
	k.mu.Lock()
	defer k.mu.Unlock()
	kept := k.kept
	k.kept = nil
	return kept
}

func (k *keeping) BeforeRequest(p observe.Request) error { return k.keep(p) }
func (k *keeping) AfterEvent(p observe.Event) error      { return k.keep(p) }
func (k *keeping) OnComplete(p observe.Completion) error { return k.keep(p) }
func (k *keeping) OnError(p observe.Failure) error       { return k.keep(p) }

// failing is a plugin that fails in each of its ways.
type failing struct{}

func (failing) BeforeRequest(observe.Request) error { return nil }
func (failing) AfterEvent(e observe.Event) error {
	if e.Number > 1 {
		panic("no")
	}
	return nil
}
func (failing) OnComplete(observe.Completion) error { return errors.New("no") }
func (failing) OnError(observe.Failure) error       { return errors.New("no") }

// registry has plugins, the first of which is called p0.
func registry(t testing.TB, report func(observe.Report), plugins ...any) *observe.Registry {
	t.Helper()
	r := observe.NewRegistry(report)
	for i, p := range plugins {
		if err := r.Register(fmt.Sprintf("p%d", i), p); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// watched is m with a plugin that keeps what it is told.
func watched(t testing.TB, m loop.Model) (loop.Model, *keeping) {
	t.Helper()
	k := &keeping{}
	return observed.Wrap(m, registry(t, nil, k)), k
}

// plays is a model that yields chunks, and then err unless that is nil.
func plays(err error, pieces ...any) looptest.Model {
	chunks := looptest.Answer(pieces...)
	return func(_ context.Context, _ loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		for _, c := range chunks {
			if !yield(c, nil) {
				return
			}
		}
		if err != nil {
			yield(stream.Chunk{}, err)
		}
	}
}

// element is one element of an answer.
type element struct {
	chunk stream.Chunk
	err   error
}

// read reads at most limit elements of an answer, and what it panicked with.
func read(seq iter.Seq2[stream.Chunk, error], limit int) (elements []element, panicked any) {
	defer func() { panicked = recover() }()
	for c, err := range seq {
		elements = append(elements, element{c, err})
		if len(elements) == limit {
			break
		}
	}
	return elements, nil
}

const all = 1 << 20

// ending is what a plugin was told at the end: a class, the status and how many
// events there were.
func ending(t *testing.T, payloads []any) string {
	t.Helper()
	ends := 0
	line := ""
	for i, p := range payloads {
		switch p := p.(type) {
		case observe.Completion:
			ends++
			line = fmt.Sprintf("complete %s, %d %s, %d events, %+v", p.Class, p.Status, p.StatusClass, p.Events, p.Usage)
		case observe.Failure:
			ends++
			line = fmt.Sprintf("failed %s, %d %s, %d events, %+v", p.Class, p.Status, p.StatusClass, p.Events, p.Usage)
		case observe.Request:
			if i != 0 {
				t.Errorf("a request was begun as payload %d", i)
			}
		case observe.Event:
			if int(p.Number) != i {
				t.Errorf("event %d has the number %d", i, p.Number)
			}
		}
	}
	if ends != 1 {
		t.Errorf("it ended %d times: %+v", ends, payloads)
	}
	return line
}
