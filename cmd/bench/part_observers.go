package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
)

const (
	partObservers = "observers"
	oneChunk      = "one chunk"
	askedAlone    = "asking alone"
	addedAllocs   = "allocations added"
)

// measureObservers measures what observers cost: for each chunk, as time that an
// event comes later, and how soon a provider is left that one has stopped.
func (b *bench) measureObservers(ctx context.Context) error {
	if err := b.measureChunks(ctx); err != nil {
		return err
	}
	if err := b.measureObserved(ctx); err != nil {
		return err
	}
	return b.measureStops(ctx)
}

// measureChunks measures what the goroutine that reads the provider takes for a
// chunk, and what the process allocates meanwhile.
func (b *bench) measureChunks(ctx context.Context) error {
	list, err := observings()
	if err != nil {
		return err
	}
	for i, o := range list {
		if err := b.addChunks(ctx, o); err != nil {
			return fmt.Errorf("%s: %w", o.name, err)
		}
		if i > 0 {
			b.add(partObservers, o.name, addedAllocs, "", b.last(partObservers, o.name, allocs)-b.last(partObservers, observersNone, allocs))
		}
	}
	return nil
}

// addChunks plays runs with an answer that comes at once, one after the other.
func (b *bench) addChunks(ctx context.Context, o observing) (err error) {
	_, url, err := b.pg.database(ctx)
	if err != nil {
		return err
	}
	flood := &floodModel{n: b.flood}
	s, err := startStack(ctx, stackConfig{url: url, model: flood, observers: o.set})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	for from := time.Now(); len(flood.took) == 0 || time.Since(from) < b.time/2; {
		if err := s.playAlone(ctx); err != nil {
			return err
		}
	}
	n := float64(b.flood)
	b.add(partObservers, o.name, oneChunk, "ns", medianOf(flood.took)/n)
	b.add(partObservers, o.name, allocs, "", slices.Min(flood.mallocs)/n) // what others allocate only adds to it
	if took := askChunks(o.set, b.flood, b.time/4); len(took) > 0 {
		b.add(partObservers, o.name, askedAlone, "ns", medianOf(took)/n)
	}
	return nil
}

func medianOf(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return median(sorted)
}

// askChunks asks the observers alone about answers of n chunks, and returns how
// many nanoseconds each took; nothing if nobody is asked.
func askChunks(set *stream.Set, n int, d time.Duration) (took []float64) {
	call := stream.Call{Class: stream.ClassMain, Attempt: 1, Model: modelName, TenantID: tenantID, Agent: agentName}
	for begin := time.Now(); len(took) == 0 || time.Since(begin) < d; {
		from := time.Now()
		attempt := set.Begin(call)
		if attempt == nil {
			return nil
		}
		for i := range n {
			attempt.Push(floodChunk(i))
		}
		attempt.Push(stream.Chunk{Kind: stream.KindFinish, Finish: stream.Finish{Reason: stream.FinishStop}})
		attempt.End(stream.EndFinished)
		took = append(took, float64(time.Since(from).Nanoseconds()))
	}
	return took
}

func floodChunk(i int) stream.Chunk {
	return stream.Chunk{Kind: stream.KindDelta, Lane: stream.LaneText, BlockID: "0", Text: prosePiece(i)}
}

// floodModel yields n chunks as fast as they are taken, and notes how many
// nanoseconds and allocations each answer took. It makes one call at a time.
type floodModel struct {
	n             int
	took, mallocs []float64
}

// Stream implements loop.Model.
func (m *floodModel) Stream(context.Context, loop.ModelRequest) iter.Seq2[stream.Chunk, error] {
	return func(yield func(stream.Chunk, error) bool) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		from := time.Now()
		for i := range m.n {
			if !yield(floodChunk(i), nil) {
				return
			}
		}
		took := time.Since(from)
		runtime.ReadMemStats(&after)
		m.took = append(m.took, float64(took.Nanoseconds()))
		m.mallocs = append(m.mallocs, float64(after.Mallocs-before.Mallocs))
		yield(stream.Chunk{Kind: stream.KindFinish, Finish: stream.Finish{Reason: stream.FinishStop}}, nil)
	}
}
