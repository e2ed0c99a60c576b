package loop

import (
	"context"
	"errors"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// errVoid ends the asking for a step that will not be taken: the run was
// cancelled, its time is over, or its worker has to let go at once. What the
// hooks had said by then is neither a yes nor a no. Plan again.
var errVoid = errors.New("the step is void")

// ruling is what a gate came to at one position.
type ruling[In any] struct {
	verdict   hooks.Verdict[In]
	decisions []hooks.Decision
}

// askOnce asks the hooks of a gate, or remembers what they said: a step that
// is planned again after a conflict asks nobody twice. It returns errVoid if
// the run has to stop meanwhile.
func askOnce[In hooks.Input[In, Out], Out hooks.Result](
	ctx context.Context, r *runner, f hooks.Func[In, Out], p hooks.Position, in In, check func(In) error,
) (ruling[In], error) {
	if said, ok := r.said[p].(ruling[In]); ok {
		return said, nil
	}
	if !hooks.Asks(f, in) {
		v, _, err := hooks.Ask(ctx, r.asks.Asker, f, p, in, check)
		return ruling[In]{verdict: v}, err
	}
	var said ruling[In]
	err := r.attend(ctx, func(ctx context.Context) (err error) {
		said.verdict, said.decisions, err = hooks.Ask(ctx, r.asks.Asker, f, p, in, check)
		return err
	})
	if err != nil {
		return ruling[In]{}, err
	}
	r.said[p] = said
	if p.Gate != hooks.GateAfterToolCall {
		r.asked = append(r.asked, said.decisions...)
	}
	return said, nil
}
