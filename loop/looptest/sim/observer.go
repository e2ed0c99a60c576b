package sim

import (
	"strings"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// observing is what observes the answers, if anything does.
type observing struct {
	// stops says that some are stopped, policy what follows.
	stops         bool
	policy        stream.StopPolicy
	emits, amends bool
	fallbacks     int
}

func (o observing) any() bool { return o.stops || o.emits || o.amends }

func drawObserving(src *source) observing {
	if !src.rarely(35) {
		return observing{}
	}
	return observing{
		stops: src.draw(4) > 0, emits: src.draw(2) == 1, amends: src.draw(2) == 1, fallbacks: src.draw(3),
		policy: []stream.StopPolicy{stream.StopEndTurn, stream.StopRetry, stream.StopFallback, stream.StopFail}[src.draw(4)],
	}
}

// observers has those that the script wants, nil for none.
func (o observing) observers(w *world) *stream.Set {
	var regs []stream.Registration
	if o.amends {
		regs = append(regs, looptest.Watches("amends", func() looptest.Observer {
			return func(c stream.Chunk) stream.Verdict {
				if c.Kind != stream.KindDelta || c.Lane != stream.LaneText {
					return stream.Continue()
				}
				c.Text = strings.ReplaceAll(c.Text, "said", "says")
				return stream.Amend(c)
			}
		}))
	}
	if o.emits {
		regs = append(regs, looptest.Watches("emits", func() looptest.Observer {
			return func(c stream.Chunk) stream.Verdict {
				if c.Kind == stream.KindEnd {
					return stream.Continue()
				}
				return stream.Emit("seen", []byte(`{"seen":true}`))
			}
		}))
	}
	if o.stops {
		r := looptest.Watches("stops", func() looptest.Observer {
			at := w.src.draw(8)
			return func(c stream.Chunk) stream.Verdict {
				if c.Kind == stream.KindEnd {
					return stream.Continue()
				}
				if at--; at == -1 {
					return stream.Stop("this is enough")
				}
				return stream.Continue()
			}
		})
		r.OnStop = o.policy
		regs = append(regs, r)
	}
	if regs == nil {
		return nil
	}
	set, err := stream.NewSet(regs...)
	if err != nil {
		panic(err) // they are those above
	}
	return set
}
