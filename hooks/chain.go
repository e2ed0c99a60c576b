package hooks

import (
	"context"
	"reflect"
	"strconv"
	"sync"
)

// A gate's field holds one func, and behind it may be a chain. To list the
// chain, a func that this package made is called with a collector in its ctx
// and adds itself, without running a hook. A func of somebody else would not
// know the collector and just run, so it must never be called that way.
//
// ours tells the two apart by code pointer: every func that lists itself is a
// closure of the one literal in wrap, and each that is made enters its code
// pointer here. The set has one entry per gate. A foreign func has other code,
// so it is never in the set; a closure of ours always is.
var ours sync.Map // of uintptr

// collector gathers the hooks of a chain in registration order.
type collector[In, Out any] struct {
	hooks []*hook[In, Out]
}

type collectorKey struct{}

// wrap makes a func that lists hooks when it is asked to, and otherwise asks
// them.
func wrap[In Input[In, Out], Out Result](list func(*collector[In, Out])) Func[In, Out] {
	var self Func[In, Out]
	self = func(ctx context.Context, in In) (Out, error) {
		if c, ok := ctx.Value(collectorKey{}).(*collector[In, Out]); ok {
			list(c)
			var none Out
			return none, nil
		}
		return alone(ctx, self, in)
	}
	ours.Store(codeOf(self), true)
	return self
}

func codeOf(f any) uintptr { return reflect.ValueOf(f).Pointer() }

func (c *collector[In, Out]) add(h *hook[In, Out]) { c.hooks = append(c.hooks, h) }

// collect adds what is behind f; a func of somebody else is one hook without
// a name.
func collect[In Input[In, Out], Out Result](c *collector[In, Out], f Func[In, Out]) {
	if _, ok := ours.Load(codeOf(f)); !ok {
		c.add(register("", "", f, nil))
		return
	}
	var nothing In
	_, _ = f(context.WithValue(context.Background(), collectorKey{}, c), nothing)
}

// chainOf lists the hooks behind f in the order in which they are asked: by
// phase, then as registered. One without a name is called by its place in the
// order of registration.
func chainOf[In Input[In, Out], Out Result](f Func[In, Out]) []*hook[In, Out] {
	if f == nil {
		return nil
	}
	var c collector[In, Out]
	collect(&c, f)
	chain := make([]*hook[In, Out], 0, len(c.hooks))
	for _, p := range []Phase{PhaseMutate, PhaseValidate} {
		for i, h := range c.hooks {
			if h.ID == "" {
				h = &hook[In, Out]{Registration: h.Registration, call: h.call}
				h.ID = "anonymous/" + strconv.Itoa(i+1)
			}
			if h.Phase == p {
				chain = append(chain, h)
			}
		}
	}
	return chain
}
