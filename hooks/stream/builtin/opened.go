package builtin

import "github.com/seed-2ca4966b/agentd/hooks/stream"

// blockName names a block.
type blockName struct {
	lane stream.Lane
	id   string
}

// opened is what an observer has for each block that is open. An answer mostly goes
// on in the block in which it was, so that is kept beside the others. The zero value
// has none.
type opened[T any] struct {
	last blockName
	of   T
	had  bool
	all  map[blockName]T
}

func (o *opened[T]) get(name blockName) (of T, ok bool) {
	if o.had && o.last.id == name.id && o.last.lane == name.lane {
		return o.of, true
	}
	if of, ok = o.all[name]; ok {
		o.last, o.of, o.had = name, of, true
	}
	return of, ok
}

func (o *opened[T]) put(name blockName, of T) {
	if o.all == nil {
		o.all = map[blockName]T{}
	}
	o.all[name] = of
	o.last, o.of, o.had = name, of, true
}

func (o *opened[T]) drop(name blockName) {
	delete(o.all, name)
	if o.last == name {
		var none T
		o.of, o.had = none, false
	}
}
