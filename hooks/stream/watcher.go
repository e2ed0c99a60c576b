package stream

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// The outcomes of a [Failure].
const (
	outcomePanic     = string(hooks.OutcomePanic)
	outcomeTimeout   = string(hooks.OutcomeTimeout)
	outcomeMalformed = string(hooks.OutcomeMalformed)
	outcomeOversize  = string(hooks.OutcomeOversize)
)

const (
	// lateInARow is how many late chunks in a row are a failure, farTooLate how
	// many times the limit one alone may take.
	lateInARow = 3
	farTooLate = 25
	// maxGivenBack is how often the end of one block is sent, maxOwn how many
	// blocks of its own an observer may open.
	maxGivenBack = 1_000
	maxOwn       = 1_000
	// maxBlocks is how many blocks an observer is asked about in an attempt: it
	// keeps something for each until the answer has ended.
	maxBlocks = 4_000
)

// watcher is an observer at work. What each chunk needs stands in front: with many
// answers at once, all of it has to be fetched anew for each.
type watcher struct {
	// observer is nil once it is left out.
	observer Observer
	// block is that of which it saw something last, if it saw any.
	block blockRef
	// late counts late chunks in a row.
	late int
	// called says that it opened a tool call of its own.
	saw, called bool
	lanes       laneSet
	held        holding
	report      Report
	// blocks came to it, in the order in which they were opened; own are those
	// that it opened itself.
	blocks []blockRef
	own    []ownBlock
}

// blockRef names a block.
type blockRef struct {
	lane Lane
	id   string
}

func refOf(c *Chunk) blockRef { return blockRef{c.Lane, c.BlockID} }

// ownBlock is a block that an observer opened. Everybody behind it knows it by
// name, which no provider gives a block.
type ownBlock struct {
	blockRef
	name string
}

// begin makes the observer of r. That it cannot be made stands in its report.
func begin(r *Registration, c Call, index, length int) (w watcher) {
	w.report = Report{Registration: r, Index: index, ChainLength: length}
	defer func() {
		if recover() != nil {
			w.report.Failure = &Failure{Outcome: outcomePanic, Text: "New panicked"}
		}
	}()
	if w.observer = r.New(c); w.observer == nil {
		w.report.Failure = &Failure{Outcome: outcomeMalformed, Text: "New made no observer"}
	}
	return w
}

// ended tells the observer of the end, and reports false if it panicked.
func (w *watcher) ended(s Summary) (ok bool) {
	defer func() {
		if !ok {
			_ = recover()
		}
	}()
	w.observer.OnEnd(s)
	return true
}

// enter notes that a chunk has come to the observer, unless that is one too many.
func (w *watcher) enter(c *Chunk) *Failure {
	if c.Kind == KindEnd {
		return nil
	}
	w.report.Chunks++
	w.report.Bytes += len(c.Text)
	if c.Kind == KindFinish {
		return nil
	}
	if w.saw && w.block.id == c.BlockID && w.block.lane == c.Lane {
		return nil
	}
	w.block, w.saw = refOf(c), true
	if slices.Contains(w.blocks, w.block) {
		return nil
	}
	if len(w.blocks) == maxBlocks {
		return failf(outcomeOversize, "the answer has more than %d blocks", maxBlocks)
	}
	w.blocks = append(w.blocks, w.block)
	return nil
}

// spent takes in how long the observer took for a chunk.
func (w *watcher) spent(took time.Duration) *Failure {
	r := w.report.Registration
	w.report.Took += took
	if r.AttemptTime > 0 && w.report.Took > r.AttemptTime {
		return failf(outcomeTimeout, "it took more than %v in the attempt", r.AttemptTime)
	}
	if r.ChunkTime <= 0 || took <= r.ChunkTime {
		w.late = 0
		return nil
	}
	w.late++
	switch {
	case took/farTooLate > r.ChunkTime:
		return failf(outcomeTimeout, "it took more than %v for a chunk", farTooLate*r.ChunkTime)
	case w.late >= lateInARow:
		return failf(outcomeTimeout, "it took more than %v for each of %d chunks in a row", r.ChunkTime, lateInARow)
	}
	return nil
}

// ownName is the name by which those behind the observer know its own block, and
// whether it is new; "" if it has too many.
func (w *watcher) ownName(ref blockRef) (name string, fresh bool) {
	for i := range w.own {
		if w.own[i].blockRef == ref {
			return w.own[i].name, false
		}
	}
	if len(w.own) == maxOwn {
		return "", false
	}
	name = w.report.Registration.ID + ":" + ref.id
	w.own = append(w.own, ownBlock{ref, name})
	return name, true
}

func failf(outcome, format string, args ...any) *Failure {
	return &Failure{Outcome: outcome, Text: fmt.Sprintf(format, args...)}
}
