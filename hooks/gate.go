package hooks

import "context"

// Gate names a place where the loop asks before it acts. The names are stored
// in decisions: a value is never renamed.
type Gate string

// The gates, in the order in which a run meets them.
const (
	GateBeforeInput           Gate = "BeforeInput"
	GateBeforeRunStart        Gate = "BeforeRunStart"
	GateTransformContext      Gate = "TransformContext"
	GateBeforeProviderHeaders Gate = "BeforeProviderHeaders"
	GateBeforeProviderRequest Gate = "BeforeProviderRequest"
	GateAfterProviderResponse Gate = "AfterProviderResponse"
	GateBeforeToolCall        Gate = "BeforeToolCall"
	GateBeforeExecute         Gate = "BeforeExecute"
	GateAfterToolCall         Gate = "AfterToolCall"
)

// The places where observers of a model's answer act. They are stored as gates
// are, and no [Func] is asked there.
const (
	// GateOnChunk is where an observer stopped an answer.
	GateOnChunk Gate = "OnChunk"
	// GateOnEnd is the end of an attempt, for what an observer did in all of it.
	GateOnEnd Gate = "OnEnd"
)

// Func is a hook: it is handed a copy of what the loop is about to act on and
// says what should become of it. In and Out are the pair of one gate, such as
// [BeforeToolCall] and [BeforeToolCallResult].
//
// A hook may be called from several goroutines at once, and again for the same
// position if its answer was not stored. It should return soon after ctx ends:
// one that does not is left behind and its answer is never read. An error is a
// failed check, not a no: see [FailurePolicy].
type Func[In, Out any] func(ctx context.Context, in In) (Out, error)

// Input is what the hooks of one gate are handed. Only types of this package
// implement it: what the loop does at a gate is not open to extension.
type Input[In, Out any] interface {
	BeforeInput | BeforeRunStart | TransformContext |
		BeforeProviderHeaders | BeforeProviderRequest | AfterProviderResponse |
		BeforeToolCall | BeforeExecute | AfterToolCall

	gate() Gate
	// about is what scopes look at. No hook can change it.
	about() subject
	// clone returns a deep copy.
	clone() In
	// accept returns the value with the changes of out, which names at least
	// one, and what they are. It leaves the receiver, also what it points to,
	// as it is.
	accept(out Out) (In, []change, error)
	// barred is the value once a hook refused it: what must not pass is gone.
	barred() In
	// merge puts v, which started from the receiver, as one result.
	merge(v Verdict[In]) Out
}

// Result is what a hook of one gate answers. Only types of this package
// implement it.
type Result interface {
	answer() answer
}

// gateRules is what may be answered at a gate.
type gateRules struct {
	allowed map[Action]bool
	// closed is what a failed hook comes to.
	closed     Action
	replyLimit int
	// policy is that of a hook which names none.
	policy FailurePolicy
	// discreet keeps what a hook says when it fails out of the ledger: it may
	// be a value that is never stored.
	discreet bool
}

const (
	textReplyLimit     = 1 << 20
	messagesReplyLimit = 8 << 20
)

var rulesOf = map[Gate]gateRules{
	GateBeforeInput:           rules(ActionBlock, textReplyLimit, ActionContinue, ActionTransform, ActionHandled),
	GateBeforeRunStart:        rules(ActionBlock, textReplyLimit, ActionContinue, ActionTransform),
	GateTransformContext:      rules(ActionBlock, messagesReplyLimit, ActionContinue, ActionTransform),
	GateBeforeProviderHeaders: discreet(rules(ActionBlock, textReplyLimit, ActionContinue, ActionTransform)),
	GateBeforeProviderRequest: rules(ActionBlock, messagesReplyLimit, ActionContinue, ActionTransform),
	GateAfterProviderResponse: failsOpen(rules(ActionBlock, textReplyLimit, ActionContinue)),
	GateBeforeToolCall:        rules(ActionBlock, textReplyLimit, ActionContinue, ActionTransform, ActionAsk, ActionTerminate),
	GateBeforeExecute:         rules(ActionBlock, textReplyLimit, ActionContinue),
	GateAfterToolCall:         rules(ActionWithhold, textReplyLimit, ActionContinue, ActionTransform),
}

func rules(closed Action, replyLimit int, others ...Action) gateRules {
	r := gateRules{allowed: map[Action]bool{closed: true}, closed: closed, replyLimit: replyLimit, policy: FailClosed}
	for _, a := range others {
		r.allowed[a] = true
	}
	return r
}

func failsOpen(r gateRules) gateRules {
	r.policy = FailOpen
	return r
}

func discreet(r gateRules) gateRules {
	r.discreet = true
	return r
}

// allows reports whether a may be answered in phase p.
func (r gateRules) allows(a Action, p Phase) bool {
	return r.allowed[a] && (p == PhaseMutate || a != ActionTransform)
}
