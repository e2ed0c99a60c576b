package hooks

import (
	"context"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"time"
)

// Position is one place in one run where a gate is asked. A decision is
// recorded once per position and hook.
type Position struct {
	TenantID  string
	SessionID string
	// RunID is "" where there is no run yet.
	RunID string
	// Turn is 0 outside a turn.
	Turn int
	// Gate is set by [Ask].
	Gate Gate
	// Subject is what is asked about: the input's id, the run's id, the
	// number of the model call, or agentd's id of the tool call.
	Subject string
	// Attempt counts from 1: the model call's attempt, the execution's
	// attempt, or the revision of the arguments.
	Attempt int
}

// Decision is what one hook answered at one position: a row of the ledger
// without the columns that only the writer of the row knows.
type Decision struct {
	// ID is the same whenever the same hook is asked at the same position.
	ID string
	// At is when the answer was there, in UTC, cut to microseconds, which is
	// what Postgres keeps.
	At time.Time
	Position
	Phase Phase
	// Index is the hook's place in the chain of the gate, from 1, and
	// ChainLength how many hooks the chain has. Those after a refusal are not
	// asked and have no decision.
	Index       int
	ChainLength int

	HookID      string
	HookKind    Kind
	HookVersion string
	HookDigest  string
	// HookSetDigest is that of all hooks of the process that asked.
	HookSetDigest string
	// RuleID is "" if the hook names no rule.
	RuleID string

	// Action is what the gate took from the hook: its answer, or what the
	// failure policy made of having none.
	Action Action
	// Effective is false if the answer led to nothing: a stronger one
	// overruled it, or something came between.
	Effective     bool
	Outcome       Outcome
	FailurePolicy FailurePolicy
	// FailedOpen says that the hook failed and that the loop went on.
	FailedOpen bool
	ReasonCode string
	// FieldsChanged names the fields that the hook changed.
	FieldsChanged []string

	// The digests and lengths are of the value as JSON, before and after.
	InputSHA256  [32]byte
	OutputSHA256 [32]byte
	InputBytes   int
	OutputBytes  int

	// Queue is how long the hook waited for its turn: before it was entered,
	// and where it says so itself, see [Queued]. Latency is how long the whole
	// call took, Deadline how long it might have.
	Queue    time.Duration
	Latency  time.Duration
	Deadline time.Duration
	// TraceID is "" outside a trace.
	TraceID string

	Payload Payload
}

type decisionKey struct{}

// DecisionID is the id of the decision that the hook called with ctx is about
// to make. It is the same when the hook is asked again because its answer was
// not stored, so a hook that has effects of its own can tell a repeat. It is ""
// in a context that no gate has given.
func DecisionID(ctx context.Context) string {
	id, _ := ctx.Value(decisionKey{}).(string)
	return id
}

// WithDecisionID returns a context whose hook makes the decision of that id. It is
// for who calls a hook in the place of a gate that is in another process; whatever
// [Ask] calls has the id of its own decision.
func WithDecisionID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, decisionKey{}, id)
}

// decisionSpace is the namespace of decision ids. It is never changed.
var decisionSpace = [16]byte{0x6b, 0x1c, 0x8a, 0x0e, 0x2d, 0x53, 0x4f, 0x7a, 0x9b, 0x64, 0x0d, 0xe1, 0xc5, 0x3f, 0x72, 0xa9}

// DecisionID is the id of what the hook at that place of the chain says at p.
func (p Position) DecisionID(phase Phase, index int, hookID string) string {
	return decisionID(p, phase, index, hookID)
}

// decisionID names the answer of a hook at a position.
func decisionID(p Position, phase Phase, index int, hookID string) string {
	var name []byte
	text := func(s string) {
		name = binary.BigEndian.AppendUint64(name, uint64(len(s)))
		name = append(name, s...)
	}
	number := func(n int) { name = binary.BigEndian.AppendUint64(name, uint64(n)) }
	text(p.SessionID)
	text(p.RunID)
	number(p.Turn)
	text(string(p.Gate))
	text(p.Subject)
	number(p.Attempt)
	text(string(phase))
	number(index)
	text(hookID)
	return uuid5(decisionSpace, name)
}

// uuid5 is a name-based UUID of version 5 (RFC 9562), which is made with SHA-1;
// nothing relies on its strength.
func uuid5(space [16]byte, name []byte) string {
	sum := sha1.Sum(append(space[:], name...))
	u := sum[:16]
	u[6] = u[6]&0x0f | 0x50
	u[8] = u[8]&0x3f | 0x80
	h := hex.EncodeToString(u)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
