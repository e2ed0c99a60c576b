package hooks

import "context"

// Shadow has the hook asked and its answer recorded, and nothing more: the loop
// goes on as if the hook were not there, whatever it answers, changes, or fails
// at. It is for trying a policy on what really happens.
//
// The decision tells what the hook would have done in its place: its action, the
// patch, the digest of what it would have left, and of a failure what its policy
// would have made of it. Its FailurePolicy is [FailShadow], its Effective and
// FailedOpen are false.
//
// It is handed what it would be handed if it were in force: what the hooks
// before it made of the value. Of several, none sees what the others would have
// changed. It is not asked after a refusal either. It is asked while the hooks
// behind it are, so the gate takes as long as the slowest of its shadows and no
// longer; it does take that long, because the decisions are stored together.
// What is said of [Pure] hooks, and of those that are not, holds for it as well.
func Shadow() Option { return func(r *Registration) { r.Shadow = true } }

// Shadow reports whether the decision is that of a hook in shadow.
func (d Decision) Shadow() bool { return d.FailurePolicy == FailShadow }

// beside asks a shadow and does not wait for it.
func (s *asking[In, Out]) beside(ctx context.Context, a *asked[In, Out]) {
	s.shadows.Go(func() { a.call(ctx, s.asker) })
}

// join waits for the shadows, and completes their decisions unless ctx has ended.
func (s *asking[In, Out]) join(ctx context.Context) error {
	s.shadows.Wait()
	if ctx.Err() != nil {
		return ended(ctx)
	}
	for _, a := range s.asked {
		if a.hook.Shadow {
			s.complete(a)
		}
	}
	return nil
}
