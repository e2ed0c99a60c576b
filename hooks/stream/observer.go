package stream

import "time"

// Class is what a model call is for.
type Class string

// The classes.
const (
	// ClassMain is the call of a turn.
	ClassMain       Class = "main"
	ClassCompaction Class = "compaction"
	ClassTitle      Class = "title"
	// ClassAny is every class, for a [Registration].
	ClassAny Class = "*"
)

// Call is one attempt of a model call.
type Call struct {
	Class   Class  `json:"class"`
	Attempt int    `json:"attempt"`
	Model   string `json:"model"`
	// TenantID and Agent are whose call it is.
	TenantID string `json:"tenant_id"`
	Agent    string `json:"agent"`
}

// Observer sees the chunks of one attempt, one after the other, in one goroutine.
//
// It is handed no context and must not block: no I/O, no lock that is held for
// long, no sleep. It keeps nothing of what it sees beyond the attempt.
type Observer interface {
	// OnChunk says what becomes of c. The same chunks get the same verdicts: the
	// clock is [Chunk].At.
	OnChunk(c Chunk) Verdict
	// OnEnd is called once, after the last chunk, however the attempt ended.
	OnEnd(s Summary)
}

// Cleaner is an observer that is also asked about what else a provider says: its own
// word for how an answer ended, and the texts of its errors, which may repeat what
// it was asked or has said. Of these, nothing is kept that a [Registration] with
// Redacting would have had to clean whose observer is no Cleaner, or has failed.
type Cleaner interface {
	Observer
	// Clean returns what is to be kept of a text, and false if that cannot be said.
	// A text that was too long ends with an ellipsis in the place of its rest. It is
	// called between the chunks and behind the last one.
	Clean(text string) (clean string, ok bool)
}

// Ending is how an attempt ended.
type Ending string

// The endings.
const (
	EndFinished Ending = "finished"
	// EndFailed: the provider's answer broke off, or the call failed.
	EndFailed Ending = "failed"
	// EndStopped: an observer stopped it.
	EndStopped Ending = "stopped"
	// EndCancelled: the run had to stop, or its worker.
	EndCancelled Ending = "cancelled"
)

// Summary is what an observer is told at the end of an attempt.
type Summary struct {
	Ending Ending
	// Chunks is how many came from the provider.
	Chunks int
	// Usage is zero if the provider has not said.
	Usage Usage
}

// StopPolicy is what follows when an observer stops an answer. What was accepted
// of it is kept in any case. The words are stored.
type StopPolicy string

// The policies.
const (
	// StopEndTurn ends the run as completed, with what was accepted as the answer.
	// It is what "" means.
	StopEndTurn StopPolicy = "end_turn"
	// StopFail fails the run.
	StopFail StopPolicy = "fail"
	// StopRetry asks the model again, once in a run, and tells it why it was
	// stopped; a further stop is [StopFail].
	StopRetry StopPolicy = "retry"
	// StopFallback asks the agent's next model; where there is none it is
	// [StopFail].
	StopFallback StopPolicy = "fallback"
)

// FailurePolicy is what follows when an observer fails: it panicked, took too
// long, or gave a verdict that is none. The words are stored.
type FailurePolicy string

// The policies.
const (
	// FailDetach leaves the observer out for the rest of the attempt; what it held
	// is given back as it was where that is known, and lost otherwise. It is what
	// "" means.
	FailDetach FailurePolicy = "detach"
	// FailStop stops the answer, as the observer's [StopPolicy] says.
	FailStop FailurePolicy = "stop"
)

// The limits of observers.
const (
	// MaxEnvelope is how many bytes an envelope may have, MaxEmissions how many an
	// observer may emit in an attempt.
	MaxEnvelope  = 4 << 10
	MaxEmissions = 1_000
	// MaxReason is how many bytes of a reason are kept.
	MaxReason = 1_000

	MaxThrottle      = 250 * time.Millisecond
	MaxThrottleTotal = 2 * time.Second

	// DefaultHoldBytes and DefaultHoldTime are how much an observer may hold with
	// [Hold], and for how long.
	DefaultHoldBytes = 64 << 10
	DefaultHoldTime  = 2 * time.Second

	// DefaultChunkTime and DefaultAttemptTime are how long an observer may take.
	DefaultChunkTime   = 2 * time.Millisecond
	DefaultAttemptTime = 250 * time.Millisecond
)
