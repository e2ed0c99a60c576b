package hooks

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Verdict is what a gate comes to once its hooks were asked.
type Verdict[In any] struct {
	// Action is the strongest answer: block and withhold over terminate,
	// handled, ask, transform, continue. It is transform if Value differs
	// from what was asked about and nothing stronger was said.
	Action Action
	// Value is what the loop goes on with: every accepted change is in it,
	// whatever the action. A withheld output is already replaced.
	Value In
	// Changed names the fields of Value that hooks changed.
	Changed []string
	// HookID is the first hook that answered Action, "" for continue.
	HookID string
	// Reason is that hook's. It may be shown to the user and the model: of a
	// failed hook it tells no more than that.
	Reason Reason
	// Outcome is not ok if the gate is closed because that hook failed.
	Outcome Outcome
	// Reply is the answer to a handled input.
	Reply string
	// Narrowed are the tools that hooks have left the run, in the order of the chain:
	// see [NarrowTools].
	Narrowed []Narrowing
}

// Asker asks hooks on behalf of one process. The zero value is ready. It is
// safe for concurrent use and must not be copied after the first.
type Asker struct {
	// Now is the clock; nil is time.Now. It is called from hooks' goroutines
	// too.
	Now func() time.Time
	// HookSet is the digest of [Hooks.Set], for the decisions.
	HookSet string

	mu   sync.Mutex
	left map[leftKey]int
}

func (a *Asker) now() time.Time {
	if a.Now == nil {
		return time.Now()
	}
	return a.Now()
}

// Ask asks the hooks behind f about in: those that may change it, each on what
// the ones before made of it, then those that only judge. It returns the
// verdict and one decision per hook that was asked, to be stored in the
// transaction of what follows from the verdict.
//
// Hooks get copies. A changed value has to pass check, which is nil if any
// value will do and is called for what a [Shadow] would have made too; one that
// does not pass is the failure of the hook that made it.
// When ctx ends, whatever a hook said by then is void: Ask returns an error
// that wraps ctx's cause, and no decisions. It returns no other error.
//
// A nil f asks nobody and costs nothing. Hooks that are registered for something
// else, see [Only], are not of the chain.
func Ask[In Input[In, Out], Out Result](ctx context.Context, a *Asker, f Func[In, Out], p Position, in In, check func(In) error) (Verdict[In], []Decision, error) {
	v := Verdict[In]{Action: ActionContinue, Value: in, Outcome: OutcomeOK}
	if f == nil {
		return v, nil, nil
	}
	p.Gate = in.gate()
	chain := covering(chainOf(f), in.about())
	if len(chain) == 0 {
		return v, nil, nil
	}
	s := asking[In, Out]{asker: a, position: p, check: check, rules: rulesOf[p.Gate], length: len(chain), verdict: v}
	s.asked = make([]*asked[In, Out], 0, len(chain))
	s.encoded = encode(in)
	for i, h := range chain {
		s.ask(ctx, i+1, h)
		if ctx.Err() != nil || s.verdict.Action.ends() {
			break
		}
	}
	if err := s.join(ctx); err != nil {
		return Verdict[In]{}, nil, fmt.Errorf("ask %s: %w", p.Gate, err)
	}
	return s.verdict, s.told(), nil
}

// Asks reports whether a hook is about in: if none is, [Ask] says that it goes on, at
// once and without a decision. It calls no hook.
func Asks[In Input[In, Out], Out Result](f Func[In, Out], in In) bool {
	about := in.about()
	return slices.ContainsFunc(chainOf(f), func(h *hook[In, Out]) bool { return h.Only.covers(about) })
}

// asking is one gate being asked.
type asking[In Input[In, Out], Out Result] struct {
	asker    *Asker
	position Position
	check    func(In) error
	rules    gateRules
	length   int
	verdict  Verdict[In]
	// encoded is verdict.Value as JSON.
	encoded []byte
	// decider is the index of the hook that the verdict is from.
	decider int
	asked   []*asked[In, Out]
	// shadows are those that have not answered yet.
	shadows sync.WaitGroup
}

// asked is one hook at the gate: what it was handed, and what it said.
type asked[In Input[In, Out], Out Result] struct {
	hook     *hook[In, Out]
	decision Decision
	value    In

	out Out
	err error
	// narrowed says that the hook has said which tools are left, and left is those.
	left     []string
	narrowed bool
}

// taken is what became of one hook's answer.
type taken[In any] struct {
	answer  answer
	changes []change
	// value is what the hook leaves.
	value   In
	failure *Failure
	// own says that the failure is told in the hook's own words.
	own bool
}

// ask asks a hook, and takes its answer unless it is a shadow.
func (s *asking[In, Out]) ask(ctx context.Context, index int, h *hook[In, Out]) {
	if ctx.Err() != nil {
		return
	}
	a := &asked[In, Out]{hook: h, decision: s.decision(index, h.Registration), value: s.verdict.Value}
	s.asked = append(s.asked, a)
	if h.Shadow {
		s.beside(ctx, a)
		return
	}
	if a.call(ctx, s.asker); ctx.Err() == nil {
		s.complete(a)
	}
}

func (a *asked[In, Out]) call(ctx context.Context, asker *Asker) {
	d, start := &a.decision, asker.now()
	ctx, tools := hearing(ctx, a.hook.Gate)
	a.out, d.Queue, a.err = call(WithDecisionID(ctx, d.ID), asker, a.hook, a.value.clone())
	a.left, a.narrowed = tools.Take()
	end := asker.now()
	d.At, d.Latency = end.UTC().Truncate(time.Microsecond), end.Sub(start)
}

// complete judges what a hook said. Only of a shadow it ends there.
func (s *asking[In, Out]) complete(a *asked[In, Out]) {
	var t taken[In]
	if a.err != nil {
		t = taken[In]{value: a.value, failure: failureOf(a.err), own: true}
	} else {
		t = s.take(a.hook.Registration, a.value, a.out)
	}
	d := &a.decision
	reason := s.settle(d, a.hook.Registration, t)
	left, encoded := t.value, []byte(nil)
	if d.Action.ends() {
		left = left.barred()
	}
	d.OutputSHA256, d.OutputBytes = d.InputSHA256, d.InputBytes
	if len(t.changes) > 0 || d.Action.ends() {
		encoded = encode(left)
		d.OutputSHA256, d.OutputBytes = sha256.Sum256(encoded), len(encoded)
	}
	if a.hook.Shadow {
		return
	}
	s.verdict.Value = left
	if encoded != nil {
		s.encoded = encoded
	}
	if a.narrowed && t.failure == nil {
		s.verdict.Narrowed = append(s.verdict.Narrowed, Narrowing{HookID: d.HookID, DecisionID: d.ID, Tools: a.left})
	}
	s.raise(*d, reason, cleanText(t.answer.reply))
}

// told are the decisions, in the order of the chain.
func (s *asking[In, Out]) told() []Decision {
	decisions := make([]Decision, 0, len(s.asked))
	for _, a := range s.asked {
		decisions = append(decisions, a.decision)
	}
	s.overrule(decisions)
	return decisions
}

// ended is why ctx ended; it is both the kind of end and its cause.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

func (s *asking[In, Out]) decision(index int, r Registration) Decision {
	d := Decision{
		ID:       decisionID(s.position, r.Phase, index, r.ID),
		Position: s.position, Phase: r.Phase, Index: index, ChainLength: s.length,
		HookID: r.ID, HookKind: r.Kind, HookVersion: r.Version, HookDigest: r.Digest, HookSetDigest: s.asker.HookSet,
		Effective: true, Outcome: OutcomeOK, FailurePolicy: r.OnFailure, Deadline: r.TimeLimit,
	}
	d.InputSHA256, d.InputBytes = sha256.Sum256(s.encoded), len(s.encoded)
	if r.Shadow {
		d.Effective, d.FailurePolicy = false, FailShadow
	}
	return d
}

// take judges an answer and makes the changes of value that it asks for.
func (s *asking[In, Out]) take(r Registration, value In, out Out) taken[In] {
	a := out.answer()
	if f := s.judge(r, a); f != nil {
		return taken[In]{value: value, failure: f}
	}
	if a.action != ActionTransform {
		return taken[In]{value: value, answer: a}
	}
	changed, changes, err := value.accept(out)
	if err == nil && s.check != nil && len(changes) > 0 {
		err = s.check(changed)
	}
	if err != nil {
		return taken[In]{value: value, failure: &Failure{Outcome: OutcomeUnappliable, Err: err}}
	}
	return taken[In]{value: changed, answer: a, changes: changes}
}

// maxCode bounds reason codes and rule names, in bytes: they are columns.
const maxCode = 128

// judge refuses what is no answer, or not one for this gate and phase.
func (s *asking[In, Out]) judge(r Registration, a answer) *Failure {
	switch {
	case a.bytes() > r.ReplyLimit:
		return failf(OutcomeOversize, "the answer has %d bytes, of %d allowed", a.bytes(), r.ReplyLimit)
	case a.action.rank() == 0:
		return failf(OutcomeMalformed, "no such action: %q", shorten(string(a.action), maxCode))
	case !s.rules.allows(a.action, r.Phase):
		return failf(OutcomeIllegalAction, "%s is not an answer at %s in phase %s", a.action, r.Gate, r.Phase)
	case a.changes && a.action != ActionTransform:
		return failf(OutcomeMalformed, "%s with changed fields", a.action)
	case !a.changes && a.action == ActionTransform:
		return failf(OutcomeMalformed, "transform without a field")
	case a.reply != "" && a.action != ActionHandled:
		return failf(OutcomeMalformed, "%s with a reply", a.action)
	case len(a.reason.Code) > maxCode, len(a.reason.Rule) > maxCode:
		return failf(OutcomeMalformed, "a reason code or rule of more than %d bytes", maxCode)
	}
	return nil
}

// settle completes the decision with what became of the answer. It returns the
// reason that users and models may read.
func (s *asking[In, Out]) settle(d *Decision, r Registration, t taken[In]) Reason {
	reason := Reason{Code: cleanText(t.answer.reason.Code), Text: cleanText(t.answer.reason.Text), Rule: cleanText(t.answer.reason.Rule)}
	d.Action, d.ReasonCode, d.RuleID = t.answer.action, reason.Code, reason.Rule
	d.FieldsChanged = fieldsOf(t.changes)
	d.Payload = Payload{
		Reason: reason.Text, Patch: patchOf(t.changes, r.Redacting), Annotations: annotations(t.answer.annotations),
	}
	if f := t.failure; f != nil {
		d.Action, d.Outcome, d.ReasonCode = s.rules.closed, f.Outcome, f.code()
		d.Payload.Reason = shorten(cleanText(f.Error()), maxFailureText)
		if r.Redacting || t.own && s.rules.discreet {
			// What it stumbled over may be what it was to take out, or to set.
			d.Payload.Reason = string(f.Outcome)
		}
		reason = f.shown(r.ID)
		if r.OnFailure == FailOpen {
			d.Action, d.FailedOpen = ActionContinue, !r.Shadow
		}
	}
	if d.RuleID == "" && r.Kind == KindRule {
		d.RuleID = shorten(r.ID, maxCode)
	}
	return reason
}

// maxFailureText bounds what is recorded of a failure, in bytes.
const maxFailureText = 4096

func annotations(given map[string]string) string {
	if len(given) == 0 {
		return ""
	}
	clean := make(map[string]string, len(given))
	for k, v := range given {
		clean[cleanText(k)] = cleanText(v)
	}
	return string(encode(clean))
}

// raise lets the decision decide if it is stronger than what was said before.
func (s *asking[In, Out]) raise(d Decision, reason Reason, reply string) {
	v := &s.verdict
	for _, field := range d.FieldsChanged {
		if !slices.Contains(v.Changed, field) {
			v.Changed = append(v.Changed, field)
		}
	}
	action := d.Action
	if action == ActionTransform && len(d.FieldsChanged) == 0 {
		return
	}
	if action.rank() > v.Action.rank() {
		s.decider = d.Index
		v.Action, v.HookID, v.Reason, v.Outcome, v.Reply = action, d.HookID, reason, d.Outcome, reply
	}
}

// overrule marks the answers that a stronger one, or an earlier one of the
// same kind, left without effect. A transform keeps its effect: what others
// judged is what it made.
func (s *asking[In, Out]) overrule(decisions []Decision) {
	for i := range decisions {
		d := &decisions[i]
		if d.Shadow() {
			continue
		}
		switch d.Action {
		case ActionAsk:
			d.Effective = s.verdict.Action == ActionAsk
		case ActionHandled, ActionTerminate:
			d.Effective = s.verdict.Action == d.Action && s.decider == d.Index
		case ActionContinue, ActionTransform, ActionBlock, ActionWithhold, ActionStop:
		}
	}
}
