package stream

// Asked is an observer that was asked something.
type Asked struct {
	// Registration is nil where nobody was asked yet.
	Registration *Registration
	// Index and ChainLength are as in [Report].
	Index       int
	ChainLength int
}

// Asked says which observer was asked last: if they are stuck, in which. It is safe
// for concurrent use.
func (a *Attempt) Asked() Asked {
	i := int(a.at.Load())
	if i == 0 {
		return Asked{}
	}
	// Neither is changed once the attempt has begun.
	r := &a.watchers[i-1].report
	return Asked{Registration: r.Registration, Index: r.Index, ChainLength: r.ChainLength}
}
