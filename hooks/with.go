package hooks

// With returns h with every hook at a gate registered as it is, and with these
// options too, which have the last word: for a host that configures hooks which
// somebody else has made. Notifications stay as they are. A func without a name
// becomes a hook of its own, which the options may name.
func (h Hooks) With(opts ...Option) Hooks {
	h.BeforeInput = with(h.BeforeInput, opts)
	h.BeforeRunStart = with(h.BeforeRunStart, opts)
	h.TransformContext = with(h.TransformContext, opts)
	h.BeforeProviderHeaders = with(h.BeforeProviderHeaders, opts)
	h.BeforeProviderRequest = with(h.BeforeProviderRequest, opts)
	h.AfterProviderResponse = with(h.AfterProviderResponse, opts)
	h.BeforeToolCall = with(h.BeforeToolCall, opts)
	h.BeforeExecute = with(h.BeforeExecute, opts)
	h.AfterToolCall = with(h.AfterToolCall, opts)
	return h
}

func with[In Input[In, Out], Out Result](f Func[In, Out], opts []Option) Func[In, Out] {
	if f == nil {
		return nil
	}
	var c collector[In, Out]
	collect(&c, f)
	var all []Func[In, Out]
	for _, h := range c.hooks {
		again := &hook[In, Out]{Registration: h.Registration, call: h.call}
		for _, o := range opts {
			o(&again.Registration)
		}
		again.settle()
		all = append(all, wrap(func(c *collector[In, Out]) { c.add(again) }))
	}
	return Compose(all...)
}
