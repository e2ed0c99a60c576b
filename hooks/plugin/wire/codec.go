package wire

import (
	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
)

// Codec turns what the hooks of one gate are handed and answer into messages and
// back. Its functions are pure and safe for concurrent use, and share no memory
// with what they are given but that of texts.
type Codec[In, Out any] struct {
	// Gate is the gate in words, Number its number in the protocol.
	Gate   hooks.Gate
	Number pluginv1.Gate

	// Ask is for the host, Asked for the plugin: what it returns is false if the
	// question is about another gate.
	Ask   func(In) *pluginv1.EvaluateRequest
	Asked func(*pluginv1.EvaluateRequest) (In, bool)

	// Answer is for the plugin. A result of an action that there is not becomes no
	// answer.
	Answer func(Out) *pluginv1.EvaluateResponse
	// Answered is for the host. Its error is a [hooks.Failure]: the plugin's own, or
	// one that says that the answer is malformed. Whether the gate takes the action
	// is not looked at.
	Answered func(*pluginv1.EvaluateResponse) (Out, error)
}

// codec makes the four functions of a gate from what differs: see and seen are for
// its input, tell and told for its result.
func codec[In, Out any, Q, A any](
	gate hooks.Gate, number pluginv1.Gate,
	see func(In) *pluginv1.EvaluateRequest, asked func(*pluginv1.EvaluateRequest) *Q, seen func(*Q) In,
	tell func(Out) *pluginv1.EvaluateResponse, answered func(*pluginv1.EvaluateResponse) *A, told func(*pluginv1.Verdict, *A) Out,
) Codec[In, Out] {
	return Codec[In, Out]{
		Gate: gate, Number: number, Ask: see, Answer: tell,
		Asked: func(q *pluginv1.EvaluateRequest) (In, bool) {
			about := asked(q)
			if about == nil {
				var none In
				return none, false
			}
			return seen(about), true
		},
		Answered: func(a *pluginv1.EvaluateResponse) (Out, error) {
			var none Out
			if f := a.GetFailure(); f != nil {
				return none, failure(f)
			}
			result := answered(a)
			if result == nil && a.GetResult() != nil {
				return none, malformed("the answer is to another gate than %s", gate)
			}
			return told(a.GetVerdict(), result), nil
		},
	}
}

// numbers are the gates in the order of the protocol.
var numbers = []hooks.Gate{
	pluginv1.Gate_GATE_UNSPECIFIED:             "",
	pluginv1.Gate_GATE_BEFORE_INPUT:            hooks.GateBeforeInput,
	pluginv1.Gate_GATE_BEFORE_RUN_START:        hooks.GateBeforeRunStart,
	pluginv1.Gate_GATE_TRANSFORM_CONTEXT:       hooks.GateTransformContext,
	pluginv1.Gate_GATE_BEFORE_PROVIDER_HEADERS: hooks.GateBeforeProviderHeaders,
	pluginv1.Gate_GATE_BEFORE_PROVIDER_REQUEST: hooks.GateBeforeProviderRequest,
	pluginv1.Gate_GATE_AFTER_PROVIDER_RESPONSE: hooks.GateAfterProviderResponse,
	pluginv1.Gate_GATE_BEFORE_TOOL_CALL:        hooks.GateBeforeToolCall,
	pluginv1.Gate_GATE_BEFORE_EXECUTE:          hooks.GateBeforeExecute,
	pluginv1.Gate_GATE_AFTER_TOOL_CALL:         hooks.GateAfterToolCall,
}

// GateOf is the gate in words, "" for one that this build does not know.
func GateOf(g pluginv1.Gate) hooks.Gate {
	if g < 0 || int(g) >= len(numbers) {
		return ""
	}
	return numbers[g]
}

// Number is the gate's number in the protocol, unspecified for a word that is none.
func Number(g hooks.Gate) pluginv1.Gate {
	for i, word := range numbers {
		if word == g {
			return pluginv1.Gate(i)
		}
	}
	return pluginv1.Gate_GATE_UNSPECIFIED
}
