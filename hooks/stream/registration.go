package stream

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// Registration is an observer and how it is asked.
type Registration struct {
	// ID is a name that [hooks.ValidName] takes. That of a plugin's rule stands behind
	// Plugin and a colon, so it is never one of somebody else's.
	ID      string
	Version string
	// Plugin is the id of the plugin whose rule it is, "" for none. Digest is that of
	// where it comes from, which is the plugin's bundle, "" where nobody computes it.
	Plugin string
	Digest string
	// Config is what it was configured with; it is stored in the clear.
	Config string
	// Class is of which calls; "" is ClassMain.
	Class Class
	// Only is about whose calls, nil for everybody's. Its tools are ignored.
	Only *hooks.Scope
	// New makes an observer for one attempt. It is called from several goroutines
	// at once.
	New func(Call) Observer
	// OnStop and OnFailure are the policies. One that takes secrets out has
	// OnFailure FailStop.
	OnStop    StopPolicy
	OnFailure FailurePolicy
	// Redacting says that it takes secrets out, so OnFailure is FailStop whatever
	// is said there. Its observers should be of type [Cleaner].
	Redacting bool

	// Limits; 0 is the default, and less than 0 is none.
	//
	// An observer has failed if it took longer than ChunkTime for three chunks in
	// a row, or 25 times as long for one, or longer than AttemptTime for all of an
	// attempt: a single late one happens on every loaded machine. It has also failed
	// if an answer has more than 4,000 blocks, whatever the limits are.
	ChunkTime   time.Duration
	AttemptTime time.Duration
	// HoldBytes and HoldTime are for each block. The time runs by [Chunk].At and
	// is looked at when a chunk of the block comes, so that an observer which
	// gives the text back with that chunk is in time.
	HoldBytes int
	HoldTime  time.Duration
}

// RegistrationError says which registration cannot be meant, and why.
type RegistrationError struct {
	// Index is its place in the list from 1, ID its id as it was given.
	Index int
	ID    string
	// Field is the field, such as Only.Agents[2].
	Field   string
	Problem string
}

// Error returns all of it as one line.
func (e *RegistrationError) Error() string {
	return fmt.Sprintf("observer %d (%.80q): %s: %s", e.Index, e.ID, e.Field, e.Problem)
}

// settled checks r and fills in what it leaves open. The error has no place yet.
func (r Registration) settled() (Registration, *RegistrationError) {
	r.Class = cmp.Or(r.Class, ClassMain)
	r.OnStop, r.OnFailure = cmp.Or(r.OnStop, StopEndTurn), cmp.Or(r.OnFailure, FailDetach)
	bad := func(field, format string, args ...any) (Registration, *RegistrationError) {
		return r, &RegistrationError{ID: r.ID, Field: field, Problem: fmt.Sprintf(format, args...)}
	}
	switch {
	case r.Plugin == "" && !hooks.ValidName(r.ID):
		return bad("ID", hooks.NameRule)
	case r.Plugin != "" && !r.namedByPlugin():
		return bad("ID", "must be the plugin's id, a colon and a name that "+hooks.NameRule)
	case !storable(r.Version):
		return bad("Version", "must be UTF-8 without U+0000")
	case !storable(r.Digest):
		return bad("Digest", "must be UTF-8 without U+0000")
	case !storable(r.Config):
		return bad("Config", "must be UTF-8 without U+0000")
	case !slices.Contains([]Class{ClassMain, ClassCompaction, ClassTitle, ClassAny}, r.Class):
		return bad("Class", "%.80q is none of main, compaction, title and *", r.Class)
	case r.New == nil:
		return bad("New", "must be set")
	case !slices.Contains([]StopPolicy{StopEndTurn, StopFail, StopRetry, StopFallback}, r.OnStop):
		return bad("OnStop", "%.80q is none of end_turn, fail, retry and fallback", r.OnStop)
	case r.OnFailure != FailDetach && r.OnFailure != FailStop:
		return bad("OnFailure", "%.80q is neither detach nor stop", r.OnFailure)
	}
	if r.Redacting {
		r.OnFailure = FailStop
	}
	only, field, glob := ownScope(r.Only, "Only")
	if field != "" {
		return bad(field, "%.80q is no glob, such as support-*", glob)
	}
	r.Only = only
	r.ChunkTime = cmp.Or(r.ChunkTime, DefaultChunkTime)
	r.AttemptTime = cmp.Or(r.AttemptTime, DefaultAttemptTime)
	r.HoldBytes = cmp.Or(r.HoldBytes, DefaultHoldBytes)
	r.HoldTime = cmp.Or(r.HoldTime, DefaultHoldTime)
	return r, nil
}

// ownScope is a copy of s without its tools. Of the first glob that is none it returns
// the place, within what s is called, and the text.
func ownScope(s *hooks.Scope, called string) (own *hooks.Scope, field, glob string) {
	if s == nil {
		return nil, "", ""
	}
	for i, g := range slices.Concat(s.Tenants, s.Agents) {
		if _, err := hooks.MatchName(g, ""); err == nil {
			continue
		}
		field := fmt.Sprintf("%s.Tenants[%d]", called, i)
		if i >= len(s.Tenants) {
			field = fmt.Sprintf("%s.Agents[%d]", called, i-len(s.Tenants))
		}
		return nil, field, g
	}
	and, field, glob := ownScope(s.And, called+".And")
	return &hooks.Scope{Tenants: slices.Clone(s.Tenants), Agents: slices.Clone(s.Agents), And: and}, field, glob
}

// namedByPlugin reports whether the id is that of a rule of the plugin.
func (r Registration) namedByPlugin() bool {
	name, ok := strings.CutPrefix(r.ID, r.Plugin+":")
	return ok && hooks.ValidName(name) && storable(r.Plugin) && !strings.Contains(r.Plugin, ":")
}

func storable(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// observes reports whether the observer is for c.
func (r *Registration) observes(c Call) bool {
	return (r.Class == ClassAny || r.Class == cmp.Or(c.Class, ClassMain)) && r.Only.Covers(c.TenantID, c.Agent)
}

// settings are what a hook set says of an observer beyond what it says of every
// hook. Less than 0 stands for no limit; times are in nanoseconds.
type settings struct {
	Class     Class           `json:"class"`
	OnStop    StopPolicy      `json:"on_stop"`
	ChunkTime time.Duration   `json:"chunk_time"`
	HoldBytes int             `json:"hold_bytes"`
	HoldTime  time.Duration   `json:"hold_time"`
	Config    json.RawMessage `json:"config,omitempty"`
}

// At is the observer as one of the hooks of a set, at [hooks.GateOnChunk] or
// [hooks.GateOnEnd]: always the same for the same registration. Its config holds
// the class, the stop policy and the limits too.
func (r Registration) At(g hooks.Gate) hooks.Registration {
	s := settings{Class: r.Class, OnStop: r.OnStop, ChunkTime: r.ChunkTime, HoldBytes: r.HoldBytes, HoldTime: r.HoldTime}
	switch {
	case r.Config == "":
	case json.Valid([]byte(r.Config)):
		s.Config = json.RawMessage(r.Config)
	default:
		s.Config, _ = json.Marshal(r.Config) // a text always encodes
	}
	text, _ := json.Marshal(s) // what it holds is valid
	return hooks.Registration{
		Gate: g, ID: r.ID, Version: r.Version, Kind: hooks.KindObserver, Phase: hooks.PhaseMutate, Digest: r.Digest, Config: string(text),
		OnFailure: hooks.FailurePolicy(r.OnFailure), TimeLimit: max(r.AttemptTime, 0), ReplyLimit: MaxEnvelope,
		Redacting: r.Redacting, Only: r.Only,
	}
}
