package main

import (
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/pattern"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/hooks/stream/builtin"
)

// pieceBytes is how long a piece of an answer is, about five tokens.
const pieceBytes = 20

// prose is what observers look at: an answer in which nothing is found. It has
// no digits, which are those of stamps.
const prose = `The station in Oslo reports rain from the west for tomorrow, with some wind in the afternoon. You may want to take an umbrella, ` +
	`and if you go by train, leave a little earlier than usual. I have looked up the forecast for the evening too: it clears after sunset, ` +
	`the temperature stays well above zero, and the roads are dry again by night. Would you like me to remind you in the morning, or is this enough? `

// prosePiece is the i-th piece of a text that has no end.
func prosePiece(i int) string {
	from := i * pieceBytes % (len(prose) - pieceBytes)
	return prose[from : from+pieceBytes]
}

// observing is a kind of observers whose cost is measured.
type observing struct {
	name string
	set  *stream.Set
}

const (
	observersNone   = "none"
	observersOther  = "of other calls"
	observersRedact = "redact, 6 patterns"
	observersAll    = "all four"
)

// observings are what is compared, nobody first.
func observings() ([]observing, error) {
	titles := builtinObserver(builtin.Metrics(builtin.MetricsConfig{}))
	titles.reg.Class = stream.ClassTitle
	list := []observing{{name: observersNone}}
	for _, one := range []struct {
		name string
		made []built
	}{
		{observersOther, []built{titles}}, {observersRedact, []built{redacting()}}, {observersAll, builtins()},
	} {
		set, err := newSet(one.made)
		if err != nil {
			return nil, err
		}
		list = append(list, observing{one.name, set})
	}
	return list, nil
}

// built is what a constructor has returned.
type built struct {
	reg stream.Registration
	err error
}

func builtinObserver(r stream.Registration, err error) built { return built{r, err} }

// redacting looks for secrets, which are six patterns.
func redacting() built {
	return builtinObserver(builtin.Redact(builtin.RedactConfig{Patterns: []string{pattern.SetSecrets}}))
}

// builtins are the four observers that agentd has, in the order in which they
// should stand.
func builtins() []built {
	return []built{
		builtinObserver(builtin.NormalizeToolDialect(builtin.NormalizeToolDialectConfig{})),
		redacting(),
		builtinObserver(builtin.HaltOnPattern(builtin.HaltOnPatternConfig{})),
		builtinObserver(builtin.Metrics(builtin.MetricsConfig{})),
	}
}

func newSet(made []built) (*stream.Set, error) {
	var regs []stream.Registration
	for _, b := range made {
		if b.err != nil {
			return nil, b.err
		}
		regs = append(regs, b.reg)
	}
	return stream.NewSet(regs...)
}

// allObservers are the four in their order. Their process is stopped and goes on
// again under them, now and then in the middle of a chunk: no time is too long.
func allObservers() (*stream.Set, error) {
	four := builtins()
	for i := range four {
		r := &four[i].reg
		r.ChunkTime, r.AttemptTime, r.HoldTime = time.Hour, time.Hour, -1
	}
	return newSet(four)
}

// verdicts is an observer that tells when the one in it stops an answer.
type verdicts struct {
	stream.Observer
	stopped chan<- time.Time
}

// OnChunk implements [stream.Observer].
func (v verdicts) OnChunk(c stream.Chunk) stream.Verdict {
	verdict := v.Observer.OnChunk(c)
	if verdict.Action == stream.ActionStop {
		v.stopped <- time.Now()
	}
	return verdict
}
