package hooks

import (
	"context"
	"maps"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// A gate's field holds one func, and behind it may be a chain. To list the
// chain, a func that this package made is called with a listing as its ctx and
// tells its hooks, without running one. A func of somebody else would not know
// the listing and just run, so it must never be called that way.
//
// ours tells the two apart by code pointer: every func that lists itself is a
// closure of the one literal in wrap, and each that is made enters its code
// pointer here. The set has one entry per gate. A foreign func has other code,
// so it is never in the set; a closure of ours always is.
var ours codes

// codes is a set of code pointers that only grows. It is safe for concurrent
// use, and asking it allocates nothing.
type codes struct {
	mu  sync.Mutex
	set atomic.Pointer[map[uintptr]bool]
}

func (c *codes) has(code uintptr) bool {
	set := c.set.Load()
	return set != nil && (*set)[code]
}

func (c *codes) add(code uintptr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.has(code) {
		return
	}
	more := map[uintptr]bool{code: true}
	if set := c.set.Load(); set != nil {
		maps.Copy(more, *set)
	}
	c.set.Store(&more)
}

func codeOf(f any) uintptr { return reflect.ValueOf(f).Pointer() }

// chain is what is behind a func. It is not changed.
type chain[In, Out any] struct {
	// hooks are in the order of registration, ordered in that of asking, where each
	// has a name.
	hooks, ordered []*hook[In, Out]
}

// listing is a context in which a func of ours tells its chain, a *chain. It never
// ends.
type listing struct{ chain any }

var _ context.Context = (*listing)(nil)

type listingKey struct{}

// Deadline implements context.Context.
func (*listing) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done implements context.Context.
func (*listing) Done() <-chan struct{} { return nil }

// Err implements context.Context.
func (*listing) Err() error { return nil }

// Value implements context.Context.
func (l *listing) Value(key any) any {
	if key == (listingKey{}) {
		return l
	}
	return nil
}

// listings are for the next who lists: every question at a gate does.
var listings = sync.Pool{New: func() any { return &listing{} }}

// collector gathers the hooks of a chain in registration order.
type collector[In, Out any] struct {
	hooks []*hook[In, Out]
}

func (c *collector[In, Out]) add(h *hook[In, Out]) { c.hooks = append(c.hooks, h) }

// collect adds what is behind f.
func collect[In Input[In, Out], Out Result](c *collector[In, Out], f Func[In, Out]) {
	c.hooks = append(c.hooks, behind(f).hooks...)
}

// wrap makes a func that lists hooks when it is asked to, and otherwise asks
// them. What list adds is always the same.
func wrap[In Input[In, Out], Out Result](list func(*collector[In, Out])) Func[In, Out] {
	var self Func[In, Out]
	whole := sync.OnceValue(func() *chain[In, Out] {
		var c collector[In, Out]
		list(&c)
		return c.chain()
	})
	self = func(ctx context.Context, in In) (Out, error) {
		if l, ok := ctx.Value(listingKey{}).(*listing); ok {
			l.chain = whole()
			var none Out
			return none, nil
		}
		return alone(ctx, self, in)
	}
	ours.add(codeOf(self))
	return self
}

// behind lists what is behind f; a func of somebody else is one hook without
// a name.
func behind[In Input[In, Out], Out Result](f Func[In, Out]) *chain[In, Out] {
	if !ours.has(codeOf(f)) {
		c := collector[In, Out]{hooks: []*hook[In, Out]{register("", "", f, nil)}}
		return c.chain()
	}
	l := listings.Get().(*listing)
	var nothing In
	_, _ = f(l, nothing)
	listed := l.chain.(*chain[In, Out])
	l.chain = nil
	listings.Put(l)
	return listed
}

// chain orders the hooks as they are asked: by phase, then as registered. One
// without a name is called by its place in the order of registration.
func (c *collector[In, Out]) chain() *chain[In, Out] {
	out := &chain[In, Out]{hooks: c.hooks, ordered: make([]*hook[In, Out], 0, len(c.hooks))}
	for _, p := range []Phase{PhaseMutate, PhaseValidate} {
		for i, h := range c.hooks {
			if h.ID == "" {
				h = &hook[In, Out]{Registration: h.Registration, call: h.call}
				h.ID = "anonymous/" + strconv.Itoa(i+1)
			}
			if h.Phase == p {
				out.ordered = append(out.ordered, h)
			}
		}
	}
	return out
}

// chainOf lists the hooks behind f in the order in which they are asked. The
// slice is read only: others have it too.
func chainOf[In Input[In, Out], Out Result](f Func[In, Out]) []*hook[In, Out] {
	if f == nil {
		return nil
	}
	return behind(f).ordered
}

// covering are those of a chain that are about it.
func covering[In, Out any](chain []*hook[In, Out], about subject) []*hook[In, Out] {
	n := 0
	for _, h := range chain {
		if h.Only.covers(about) {
			n++
		}
	}
	switch n {
	case 0:
		return nil
	case len(chain):
		return chain
	}
	some := make([]*hook[In, Out], 0, n)
	for _, h := range chain {
		if h.Only.covers(about) {
			some = append(some, h)
		}
	}
	return some
}
