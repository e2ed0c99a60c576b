package looptest

import "github.com/seed-2ca4966b/agentd/hooks/stream"

// Observer is a stream.Observer that a function plays. It is told of no end.
type Observer func(c stream.Chunk) stream.Verdict

var _ stream.Observer = Observer(nil)

// OnChunk implements stream.Observer.
func (o Observer) OnChunk(c stream.Chunk) stream.Verdict { return o(c) }

// OnEnd implements stream.Observer.
func (o Observer) OnEnd(stream.Summary) {}

// Watches is an observer of all main calls, which has no time limits. New makes
// what is asked in each attempt, so that nothing is shared.
func Watches(id string, fresh func() Observer) stream.Registration {
	return stream.Registration{
		ID: id, Version: "1", ChunkTime: -1, AttemptTime: -1,
		New: func(stream.Call) stream.Observer { return fresh() },
	}
}
