package hooks

import "context"

// Hooks is the set of functions that the loop calls. A nil field is skipped
// and costs nothing; the zero value is a loop without hooks. Fields are set
// before the loop starts and never changed after.
//
// There are two sorts of fields. The gates are asked before the loop acts, and
// what they answer binds it: see [Func], [Named] and [Ask]. The notifications,
// from OnRunStart on, are called synchronously, at the place that each one
// names, and cannot change what the loop does. A panic in one is recovered and
// logged. They are called again when a step is taken again after a crash, so a
// counter kept in one counts attempts, not facts; the facts are in the log.
type Hooks struct {
	// BeforeInput is asked about a user's message before a run is made of it.
	BeforeInput BeforeInputFunc
	// BeforeRunStart is asked once per run, under the lease (pure hooks while it
	// is taken), before its first turn and before OnRunStart.
	BeforeRunStart BeforeRunStartFunc
	// TransformContext is asked before each attempt of a model call.
	TransformContext TransformContextFunc
	// BeforeProviderHeaders, BeforeProviderRequest and AfterProviderResponse
	// are asked about the HTTP request of each attempt of a model call, and
	// about what comes back before its body is read. A model that speaks no
	// HTTP asks none of them.
	BeforeProviderHeaders BeforeProviderHeadersFunc
	BeforeProviderRequest BeforeProviderRequestFunc
	AfterProviderResponse AfterProviderResponseFunc
	// BeforeToolCall is asked about a call with valid arguments, before
	// anybody is asked to approve it.
	BeforeToolCall BeforeToolCallFunc
	// BeforeExecute is asked before each execution of a call, after its
	// approval.
	BeforeExecute BeforeExecuteFunc
	// AfterToolCall is asked about a tool's output before it is stored.
	AfterToolCall AfterToolCallFunc

	// OnRunStart is called when a worker took up a run for the first time,
	// before its first turn.
	OnRunStart func(context.Context, RunStart)
	// OnTurnStart is called before a model call, for new turns and for turns
	// that are taken up again, and when a worker goes on with the tool calls of
	// a turn, after people have answered or another worker has let go.
	OnTurnStart func(context.Context, TurnStart)
	// OnToolExecutionStart is called before a tool runs, once per attempt.
	OnToolExecutionStart func(context.Context, ToolExecutionStart)
	// OnTurnEnd is called before turn.completed is written.
	OnTurnEnd func(context.Context, TurnEnd)
	// OnRunEnd is called after the terminal event of a run was committed,
	// whatever the terminal state, by the process that committed it: that of
	// the worker, or the one that ended a run which nobody held.
	OnRunEnd func(context.Context, RunEnd)
}

// RunRef names a run.
type RunRef struct {
	TenantID  string `json:"tenant_id"`
	SessionID string `json:"session_id"`
	RunID     string `json:"run_id"`
	Agent     string `json:"agent"`
}

// RunStart is what OnRunStart sees.
type RunStart struct{ RunRef }

// TurnStart is what OnTurnStart sees.
type TurnStart struct {
	RunRef
	// Turn counts from 1 in the run.
	Turn int
	// Attempt counts the model calls of this turn from 1.
	Attempt int
	// Resumed is true if there was an earlier attempt of this turn, which was cut
	// off or failed, maybe in this process; or if its tool calls are gone on with.
	Resumed bool
}

// ToolExecutionStart is what OnToolExecutionStart sees.
type ToolExecutionStart struct {
	RunRef
	Turn    int
	Attempt int
	Call    ToolCall
}

// TurnEnd is what OnTurnEnd sees.
type TurnEnd struct {
	RunRef
	Turn int
	// ToolCalls is how many calls the turn asked for.
	ToolCalls int
}

// RunEnd is what OnRunEnd sees.
type RunEnd struct {
	RunRef
	// Status is completed, failed or cancelled.
	Status string
	// Reason is the machine-readable reason of the terminal event.
	Reason string
}

// Then returns a set that calls first h's function and then next's, field by
// field. A field that is nil in both stays nil.
func (h Hooks) Then(next Hooks) Hooks {
	return Hooks{
		BeforeInput:           Compose(h.BeforeInput, next.BeforeInput),
		BeforeRunStart:        Compose(h.BeforeRunStart, next.BeforeRunStart),
		TransformContext:      Compose(h.TransformContext, next.TransformContext),
		BeforeProviderHeaders: Compose(h.BeforeProviderHeaders, next.BeforeProviderHeaders),
		BeforeProviderRequest: Compose(h.BeforeProviderRequest, next.BeforeProviderRequest),
		AfterProviderResponse: Compose(h.AfterProviderResponse, next.AfterProviderResponse),
		BeforeToolCall:        Compose(h.BeforeToolCall, next.BeforeToolCall),
		BeforeExecute:         Compose(h.BeforeExecute, next.BeforeExecute),
		AfterToolCall:         Compose(h.AfterToolCall, next.AfterToolCall),

		OnRunStart:           ComposeNotify(h.OnRunStart, next.OnRunStart),
		OnTurnStart:          ComposeNotify(h.OnTurnStart, next.OnTurnStart),
		OnToolExecutionStart: ComposeNotify(h.OnToolExecutionStart, next.OnToolExecutionStart),
		OnTurnEnd:            ComposeNotify(h.OnTurnEnd, next.OnTurnEnd),
		OnRunEnd:             ComposeNotify(h.OnRunEnd, next.OnRunEnd),
	}
}

// ComposeNotify joins notifications of one kind in argument order. Nil
// arguments are left out; of none it makes nil. A panic in one keeps none of
// the others from being called, and reaches the caller after the last.
func ComposeNotify[T any](funcs ...func(context.Context, T)) func(context.Context, T) {
	var all func(context.Context, T)
	for i := len(funcs) - 1; i >= 0; i-- {
		f, rest := funcs[i], all
		switch {
		case f == nil:
		case rest == nil:
			all = f
		default:
			all = func(ctx context.Context, in T) {
				defer rest(ctx, in)
				f(ctx, in)
			}
		}
	}
	return all
}
