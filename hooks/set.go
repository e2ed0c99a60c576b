package hooks

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
)

// HookSet is what is registered at the gates of a [Hooks], in the order of the
// gates and, within a gate, in the order of asking, and behind it what [HookSet.With]
// has added.
type HookSet struct {
	// Digest is the SHA-256 of Hooks as JSON, in hex. It is the same in every
	// process with the same hooks, versions, digests, configs and order. What
	// an anonymous func does is not in it.
	Digest string         `json:"digest"`
	Hooks  []Registration `json:"hooks"`
}

// Set lists the hooks of h. It calls none of them.
func (h Hooks) Set() HookSet {
	set := HookSet{Hooks: []Registration{}}
	list(&set, h.BeforeInput)
	list(&set, h.BeforeRunStart)
	list(&set, h.TransformContext)
	list(&set, h.BeforeProviderHeaders)
	list(&set, h.BeforeProviderRequest)
	list(&set, h.AfterProviderResponse)
	list(&set, h.BeforeToolCall)
	list(&set, h.BeforeExecute)
	list(&set, h.AfterToolCall)
	return set.digested()
}

// With returns s with more behind what is in it, such as the observers of a
// process, under the digest of all. Without any it is s.
func (s HookSet) With(more ...Registration) HookSet {
	if len(more) == 0 {
		return s
	}
	return HookSet{Hooks: slices.Concat(s.Hooks, more)}.digested()
}

func (s HookSet) digested() HookSet {
	sum := sha256.Sum256(encode(s.Hooks))
	s.Digest = hex.EncodeToString(sum[:])
	return s
}

func list[In Input[In, Out], Out Result](set *HookSet, f Func[In, Out]) {
	for _, h := range chainOf(f) {
		set.Hooks = append(set.Hooks, h.Registration)
	}
}
