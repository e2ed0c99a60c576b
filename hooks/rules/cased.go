package rules

import (
	"fmt"
	"strings"
	"unicode"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/seed-2ca4966b/agentd/hooks/yamlfile"
)

// newPlain is an object whose members are found by their names alone.
func newPlain(_ *object, members map[string]any) ref.Val {
	return types.NewStringInterfaceMap(adapter, members)
}

// cased is an object of a call's arguments. To look for a member is an error if
// there is one, or another one, whose name has the same letters in another case:
// many readers of JSON, those of Go among them, take it for the one that is looked
// for. A rule would see a harmless amount, or none, and the tool pay Amount.
type cased struct {
	traits.Mapper
	// names are those of the members by their letters, nil of letters that several
	// have.
	names map[string]*string
}

var _ types.AggregateSizeVisitor = cased{}

func newCased(o *object, members map[string]any) ref.Val {
	c := cased{Mapper: types.NewStringInterfaceMap(adapter, members), names: make(map[string]*string, len(members))}
	for i := range o.members {
		name := &o.members[i].name
		l := letters(*name)
		if _, taken := c.names[l]; taken {
			name = nil
		}
		c.names[l] = name
	}
	return c
}

// letters are those of a name as encoding/json compares it: each the first of
// those that differ from it in case only.
func letters(name string) string {
	return strings.Map(func(r rune) rune {
		for {
			next := unicode.SimpleFold(r)
			if next <= r {
				return next
			}
			r = next
		}
	}, name)
}

// Find implements [traits.Mapper].
func (c cased) Find(key ref.Val) (ref.Val, bool) {
	if name, ok := key.(types.String); ok {
		if there, some := c.names[letters(string(name))]; some && (there == nil || *there != string(name)) {
			return types.WrapErr(errCase(string(name))), false
		}
	}
	return c.Mapper.Find(key)
}

// Get implements [traits.Indexer].
func (c cased) Get(key ref.Val) ref.Val {
	if v, found := c.Find(key); found || v != nil {
		return v
	}
	return c.Mapper.Get(key)
}

// Contains implements [traits.Container].
func (c cased) Contains(key ref.Val) ref.Val {
	v, found := c.Find(key)
	if !found && v != nil {
		return v
	}
	return types.Bool(found)
}

// AggregateSize implements [types.AggregateSizeVisitor].
func (c cased) AggregateSize(sizer types.AggregateSizer) uint32 {
	return sizer.AggregateSize(c.Mapper)
}

func errCase(name string) error {
	return fmt.Errorf("the arguments have %q in other letters: a tool may take it for that", yamlfile.Cut(name, yamlfile.MaxIDBytes))
}

// sameLetters refuses to change a member beside another one whose name differs from
// it in case only: what the tool takes may be that one.
func sameLetters(target, patch value) error {
	if target.object == nil || patch.object == nil {
		return nil
	}
	by := make(map[string][]member, len(target.object.members))
	for _, m := range target.object.members {
		by[letters(m.name)] = append(by[letters(m.name)], m)
	}
	for _, p := range patch.object.members {
		for _, m := range by[letters(p.name)] {
			if m.name != p.name {
				return errCase(p.name)
			}
			if err := sameLetters(m.value, p.value); err != nil {
				return err
			}
		}
	}
	return nil
}
