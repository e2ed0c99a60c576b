package stream

import (
	"encoding/json"
	"time"
)

// Attempt asks the observers of one attempt of a model call. It belongs to the
// goroutine that reads the provider; only Stuck may be called from another.
type Attempt struct{}

// Output is what the observers made of a chunk.
type Output struct {
	// Chunks go on, in this order, and then Emissions. Both are valid until the
	// next call.
	Chunks    []Chunk
	Emissions []Emission
	// Pause is how long nothing more is to be read.
	Pause time.Duration
	// Stop is set if the answer ends here: then there are no chunks.
	Stop *Stopped
}

// Emission is an envelope that an observer emitted.
type Emission struct {
	Observer string
	Channel  string
	Envelope json.RawMessage
	// Chunk is the number of the provider's chunk with which it was emitted, from 1.
	Chunk int
}

// Stopped is an answer that an observer has stopped.
type Stopped struct {
	// Observer is its id, Policy what follows.
	Observer string
	Policy   StopPolicy
	Reason   string
	// Failed says that the observer did not ask for it but failed.
	Failed bool
	// Chunk is the number of the provider's chunk that is not accepted, from 1.
	Chunk int
	// Accepted is how many bytes of text, reasoning and arguments went on before
	// it.
	Accepted int
}

// Push takes a chunk of the provider. Behind [KindFinish] nothing is pushed: it
// first ends all blocks. Behind an output with Stop nothing is pushed either.
func (a *Attempt) Push(c Chunk) Output { panic("to be built") }

// End calls OnEnd of the observers and returns what each of them has done. Nothing
// is called behind it.
func (a *Attempt) End(how Ending) []Report { panic("to be built") }

// Stuck reports since when the observers have not come back from a chunk; zero if
// they are not at work. It is safe for concurrent use.
func (a *Attempt) Stuck() time.Duration { panic("to be built") }

// Report is what one observer has done in an attempt.
type Report struct {
	// Registration is the observer, Index its place from 1, ChainLength how many
	// were asked.
	Registration *Registration
	Index        int
	ChainLength  int
	// Chunks and Bytes are what it was handed, BytesOut what went on from it.
	Chunks   int
	Bytes    int
	BytesOut int
	// How often it did what.
	Amended, Emitted, Held, Throttled int
	// Lanes are those in which it changed something, sorted.
	Lanes []Lane
	// Paused is for how long reading was paused for it.
	Paused time.Duration
	// Took is how long it took, all in all.
	Took time.Duration
	// Stopped is set if it stopped the answer, by its verdict or by failing.
	Stopped *Stopped
	// Failure is why it failed, nil if it did not. The text of a panic is not in
	// it: it may hold what the observer saw.
	Failure *Failure
}

// Failure is how an observer failed.
type Failure struct {
	// Outcome is one of hooks.Outcome: panic, timeout, malformed, oversize.
	Outcome string
	Text    string
	// Chunk is the number of the provider's chunk, from 1; 0 if it could not be made.
	Chunk int
}
