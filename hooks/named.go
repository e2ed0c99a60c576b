package hooks

import (
	"context"
	"crypto/rand"
	"errors"
	"time"
)

// Phase is one of the two rounds of a gate. The words are stored.
type Phase string

// The phases, in order.
const (
	// PhaseMutate hooks may change the value; each sees what those before it
	// made of it.
	PhaseMutate Phase = "mutate"
	// PhaseValidate hooks see the value as it will be used, and cannot change
	// it.
	PhaseValidate Phase = "validate"
)

// Kind is what sort of thing a hook is. The words are stored.
type Kind string

// The kinds.
const (
	KindGo      Kind = "go"
	KindRule    Kind = "rule"
	KindPlugin  Kind = "plugin"
	KindWebhook Kind = "webhook"
	KindHost    Kind = "host"
	// KindObserver is an observer of a model's answer while it arrives. It is no
	// [Func]: see package hooks/stream.
	KindObserver Kind = "observer"
)

// FailurePolicy is what a failed hook comes to. The words are stored.
type FailurePolicy string

// The failure policies.
const (
	// FailClosed refuses: a check that could not be made was not passed.
	FailClosed FailurePolicy = "closed"
	// FailOpen goes on with the value as it was before the hook.
	FailOpen FailurePolicy = "open"
	// FailShadow is recorded of a hook in [Shadow], whose failure comes to
	// nothing. No hook is registered with it.
	FailShadow FailurePolicy = "shadow"
)

// DefaultTimeLimit is how long a hook has where nothing else is said.
const DefaultTimeLimit = 2 * time.Second

// Registration is who a hook is and how it is asked. Its JSON is what the
// digest of a hook set covers.
type Registration struct {
	Gate    Gate   `json:"gate"`
	ID      string `json:"id"`
	Version string `json:"version,omitempty"`
	Kind    Kind   `json:"kind"`
	Phase   Phase  `json:"phase"`
	// Digest is that of the hook's code, "" where nobody computes it.
	Digest string `json:"digest,omitempty"`
	// Config is what the hook was configured with, without secrets.
	Config    string        `json:"config,omitempty"`
	OnFailure FailurePolicy `json:"on_failure"`
	// TimeLimit is how long one call may take, in nanoseconds in JSON.
	TimeLimit time.Duration `json:"time_limit"`
	// QueueLimit is what [QueueLimit] declares, in nanoseconds in JSON.
	QueueLimit time.Duration `json:"queue_limit,omitempty"`
	// ReplyLimit is how many bytes an answer may have.
	ReplyLimit int `json:"reply_limit"`
	// Redacting marks a hook that takes secrets out: the patch of what it
	// changed holds digests and no values.
	Redacting bool `json:"redacting,omitempty"`
	// Pure is what [Pure] declares.
	Pure bool `json:"pure,omitempty"`
	// Only is what the hook is about, nil for everything.
	Only *Scope `json:"only,omitempty"`
	// Shadow is what [Shadow] declares.
	Shadow bool `json:"shadow,omitempty"`
}

// Option changes a [Registration] before it is used.
type Option func(*Registration)

// InPhase puts a hook into a phase; without it, it is [PhaseMutate].
func InPhase(p Phase) Option { return func(r *Registration) { r.Phase = p } }

// TimeLimit is how long one call may take. Zero and less are the default.
func TimeLimit(d time.Duration) Option { return func(r *Registration) { r.TimeLimit = d } }

// QueueLimit is how much longer a call may take because it waits for its turn: see
// [Queued]. It is for hooks that let only so many calls through at once, and that
// themselves give each of them no more than the time limit once it has its turn.
func QueueLimit(d time.Duration) Option { return func(r *Registration) { r.QueueLimit = max(d, 0) } }

// ReplyLimit is how many bytes an answer may have. Zero and less are the
// default: 1 MiB, and 8 MiB where the answer holds messages.
func ReplyLimit(n int) Option { return func(r *Registration) { r.ReplyLimit = n } }

// OnFailureOpen lets the loop go on without this hook when it fails. It is for
// the host to say of a hook that is not a guard: a guard with it guards
// nothing while it is down.
func OnFailureOpen() Option { return func(r *Registration) { r.OnFailure = FailOpen } }

// OnFailureClosed refuses when this hook fails. That is the default at every
// gate but AfterProviderResponse.
func OnFailureClosed() Option { return func(r *Registration) { r.OnFailure = FailClosed } }

// OfKind says what sort of hook it is; without it, it is [KindGo]. The decisions
// of a [KindRule] that name no rule name the hook as it, also when it failed.
func OfKind(k Kind) Option { return func(r *Registration) { r.Kind = k } }

// WithDigest names the digest of the hook's code.
func WithDigest(digest string) Option { return func(r *Registration) { r.Digest = digest } }

// WithConfig records what the hook was configured with. It is stored in the
// clear: no secrets.
func WithConfig(config string) Option { return func(r *Registration) { r.Config = config } }

// Redacting marks a hook that takes secrets out, so that what it put in their
// place is stored as a digest. Its reasons and annotations are stored as they
// are.
func Redacting() Option { return func(r *Registration) { r.Redacting = true } }

// Named gives f an identity, a phase and limits: the decisions of the hook are
// recorded under id and version. A nil f gives nil. An f that is named or
// composed already becomes one hook with this name: what is inside it has no
// decisions of its own. An empty id is anonymous.
//
// Called outside [Ask], the result asks f under its limits and gives the
// verdict of that, so a failure that is not open is a refusal and no error.
func Named[In Input[In, Out], Out Result](id, version string, f Func[In, Out], opts ...Option) Func[In, Out] {
	if f == nil {
		return nil
	}
	h := register(id, version, f, opts)
	return wrap(func(c *collector[In, Out]) { c.add(h) })
}

// hook is one registered function. It is never changed once it is made.
type hook[In, Out any] struct {
	Registration
	call Func[In, Out]
}

func register[In Input[In, Out], Out Result](id, version string, f Func[In, Out], opts []Option) *hook[In, Out] {
	var zero In
	r := Registration{
		Gate: zero.gate(), ID: cleanText(id), Version: cleanText(version),
		Kind: KindGo, Phase: PhaseMutate, OnFailure: rulesOf[zero.gate()].policy,
	}
	for _, o := range opts {
		o(&r)
	}
	r.settle()
	return &hook[In, Out]{Registration: r, call: f}
}

// settle fills in what options left open, and refuses what cannot be.
func (r *Registration) settle() {
	// A hook in a phase that there is not would never be asked.
	if r.Phase != PhaseValidate {
		r.Phase = PhaseMutate
	}
	r.ID, r.Digest, r.Config = cleanText(r.ID), cleanText(r.Digest), cleanText(r.Config)
	if r.TimeLimit <= 0 {
		r.TimeLimit = DefaultTimeLimit
	}
	if r.ReplyLimit <= 0 {
		r.ReplyLimit = rulesOf[r.Gate].replyLimit
	}
}

// Compose joins hooks of one gate in argument order. Nil arguments are left
// out; of none it makes nil. Composing composed hooks gives the same chain as
// composing what is inside them.
//
// Called outside [Ask], the result asks the whole chain and gives its verdict.
// That a value was changed and that a person is to be asked do not fit into one
// result: both together are an error there.
func Compose[In Input[In, Out], Out Result](funcs ...Func[In, Out]) Func[In, Out] {
	var present []Func[In, Out]
	for _, f := range funcs {
		if f != nil {
			present = append(present, f)
		}
	}
	switch len(present) {
	case 0:
		return nil
	case 1:
		return present[0]
	}
	return wrap(func(c *collector[In, Out]) {
		for _, f := range present {
			collect(c, f)
		}
	})
}

// errBoth: a person would be asked about something else than what runs.
var errBoth = errors.New("one hook wants a change and another asks: register them at the gate, not inside a hook")

// alone asks f outside a run.
func alone[In Input[In, Out], Out Result](ctx context.Context, f Func[In, Out], in In) (Out, error) {
	var none Out
	v, _, err := Ask(ctx, &Asker{}, f, within(ctx), in, nil)
	if err != nil {
		return none, err
	}
	if v.Action == ActionAsk && len(v.Changed) > 0 {
		return none, errBoth
	}
	for _, n := range v.Narrowed {
		// Where nobody hears it, it was nobody's to say.
		_ = NarrowTools(ctx, n.Tools)
	}
	return in.merge(v), nil
}

// within is the position of hooks that another one asks, or that are asked
// outside a run: what they are asked about has an id of its own, as at a gate,
// and the same whenever the hook around them is asked again.
func within(ctx context.Context) Position {
	if id := DecisionID(ctx); id != "" {
		return Position{Subject: id}
	}
	return Position{Subject: rand.Text()}
}
