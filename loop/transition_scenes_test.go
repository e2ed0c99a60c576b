package loop_test

import (
	"slices"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// status is where the run "run", its last turn and its call "c1" stand.
type status struct {
	run  loop.RunStatus
	turn loop.TurnStatus
	call loop.CallStatus
}

func statusOf(s loop.State) status {
	r, _ := s.Run("run")
	t, _ := r.Turn()
	out := status{run: r.Status, turn: t.Status}
	for _, c := range t.Calls {
		if c.ID == "c1" {
			out.call = c.Status
		}
	}
	return out
}

// scene is a state and what it allows: each event type that may follow, with
// the status that it leads to. Everything else is refused.
type scene struct {
	log    []event.Payload // what led here, after session.created
	status status
	allows map[event.Type]status
}

var (
	created   = event.RunCreated{Agent: "demo", MessageID: "m", AssistantMessageID: "am"}
	queued    = event.RunQueued{Ticket: 1}
	started   = event.RunStarted{WorkerID: "w", Epoch: 1, Ticket: 1}
	requested = event.ModelRequested{Attempt: 1, Model: "x", MessageIDs: []string{"m"}}
	answered  = event.AssistantCompleted{Attempt: 1, MessageID: "a", Parts: []hooks.Part{}, Finish: stream.FinishStop}
	stopped   = event.AssistantStopped{Attempt: 1, Reason: "cancelled"}
	proposed  = event.ToolProposed{CallID: "c1", Number: 1, Name: "look", Arguments: "{}"}
	toolStart = event.ToolStarted{CallID: "c1", Attempt: 1}
	executed  = event.ToolExecuted{CallID: "c1", Attempt: 1, Success: true}
	result    = event.ToolResult{CallID: "c1", MessageID: "t", Name: "look", Content: "seen"}
	released  = event.RunReleased{Cause: event.ReleaseWorkerDead, WorkerID: "w", Epoch: 2, Ticket: 2}
	completed = event.RunCompleted{Reason: stream.FinishStop}
	failed    = event.RunFailed{Reason: event.FailModel, Error: "no"}
	cancelled = event.RunCancelled{Reason: "enough"}
	prepared  = event.RunPrepared{System: new("be brief")}
	blocked   = event.ToolBlocked{CallID: "c1", By: "BeforeToolCall", ReasonCode: "no"}
	asked     = event.ApprovalRequested{ApprovalID: "ap1", CallID: "c1", Name: "look", Arguments: `{"n":1}`, By: "permission"}
	approved  = event.ApprovalDecided{ApprovalID: "ap1", CallID: "c1", Decision: event.DecisionApproved}
	denied    = event.ApprovalDecided{ApprovalID: "ap1", CallID: "c1", Decision: event.DecisionDenied, Reason: "no"}
	edited    = event.ApprovalDecided{ApprovalID: "ap1", CallID: "c1", Decision: event.DecisionEdited, EditedArguments: new(`{"n":2}`), EditedSHA256: "00ff"}
	expired   = event.ApprovalDecided{ApprovalID: "ap1", CallID: "c1", Decision: event.DecisionExpired}
	unsure    = event.ApprovalRequested{ApprovalID: "ap2", Kind: event.ApprovalOfOutcome, CallID: "c1", Name: "look", Arguments: "{}", By: "on_unknown"}
	happened  = event.ApprovalDecided{ApprovalID: "ap2", CallID: "c1", Decision: event.DecisionHappened}
	missed    = event.ApprovalDecided{ApprovalID: "ap2", CallID: "c1", Decision: event.DecisionDidNotHappen}
	suspended = event.RunSuspended{Reason: "approval", ApprovalIDs: []string{"ap1"}}
	cutOff    = event.AssistantStopped{Attempt: 1, MessageID: "a", Parts: []hooks.Part{{Type: hooks.PartText, Text: "so f"}}, Reason: "model_error"}
	replaced  = event.MessagesReplaced{FromMessageID: "a", MessageIDs: []string{"a"}}
	retried   = event.RunQueued{Ticket: 2, Cause: event.QueuedForRetry}
	later     = event.MessageCreated{MessageID: "m", Role: hooks.RoleUser, Parts: []hooks.Part{{Type: hooks.PartText, Text: "and then?"}}, Enqueued: true}
	behind    = event.RunCreated{Agent: "demo", MessageID: "m", AssistantMessageID: "am", Policy: event.PolicyEnqueue}
	begins    = event.RunQueued{Ticket: 1, Cause: event.QueuedNext}
	withdrawn = event.MessagesReplaced{FromMessageID: "m", MessageIDs: []string{"m"}}
)

// stoppedBy is an answer that an observer has stopped.
func stoppedBy(policy stream.StopPolicy) event.AssistantStopped {
	p := event.AssistantStopped{Attempt: 1, MessageID: "a", Parts: []hooks.Part{{Type: hooks.PartText, Text: "so f"}}, Reason: event.StoppedByObserver}
	p.Observer, p.Chunk, p.Accepted, p.Policy = "watch", 2, 4, policy
	if policy == stream.StopRetry || policy == stream.StopFallback {
		p.Notice = &event.PreparedMessage{MessageID: "n", Role: hooks.RoleSystem, Text: "it was stopped"}
	}
	return p
}

// another is an event of the run "another".
type another struct{ event.Payload }

// to is what every scene with a live session allows besides its own.
func to(base status, own map[event.Type]status) map[event.Type]status {
	out := map[event.Type]status{
		event.TypeSessionUpdated: base, event.TypeMessageCreated: base, event.TypeInputHandled: base, event.TypeInputBlocked: base, event.TypeInputRejected: base,
	}
	for k, v := range own {
		out[k] = v
	}
	return out
}

func log(pieces ...any) []event.Payload {
	var out []event.Payload
	for _, p := range pieces {
		switch p := p.(type) {
		case []event.Payload:
			out = append(out, p...)
		case event.Payload:
			out = append(out, p)
		}
	}
	return out
}

func scenes() map[string]scene {
	const (
		enq, que, run               = loop.RunEnqueued, loop.RunQueued, loop.RunRunning
		com, fai, can               = loop.RunCompleted, loop.RunFailed, loop.RunCancelled
		open, calling, ans, stp, tc = loop.TurnOpen, loop.TurnCalling, loop.TurnAnswered, loop.TurnStopped, loop.TurnCompleted
		pro, sta, exe, done         = loop.CallProposed, loop.CallStarted, loop.CallExecuted, loop.CallDone
		wai, blo                    = loop.RunWaiting, loop.CallBlocked
		awa, app, den, con          = loop.CallAwaiting, loop.CallApproved, loop.CallDenied, loop.CallConfirmed
		edi                         = loop.CallEdited
	)
	toQueued := log(created, queued)
	toEnqueued := log(another{event.RunCreated{Agent: "demo", MessageID: "m0"}}, another{queued}, later, behind)
	toRunning := log(toQueued, started)
	toCalling := log(toRunning, event.TurnStarted{}, requested)
	toAnswered := log(toCalling, answered)
	toProposed := log(toAnswered, proposed)
	toStarted := log(toProposed, toolStart)
	toUnsure := log(toStarted, unsure)
	toExecuted := log(toStarted, executed)
	toDone := log(toExecuted, result)
	toTurnEnd := log(toDone, event.TurnCompleted{})
	toAwaiting := log(toProposed, asked)
	toFailed := log(toCalling, cutOff, failed)
	resumed := event.RunResumed{WorkerID: "w2", Epoch: 2, Ticket: 2, Cause: event.ResumeRetry}
	toWaiting := log(toAwaiting, suspended)
	// ends is what a running run with nothing open allows.
	ends := func(s status, own map[event.Type]status) map[event.Type]status {
		own[event.TypeRunReleased] = status{que, s.turn, s.call}
		own[event.TypeRunCancelRequested], own[event.TypeToolsNarrowed] = s, s
		if s.turn != calling && (s.call == "" || s.call == done) {
			own[event.TypeRunFailed] = status{fai, s.turn, s.call}
			own[event.TypeRunCancelled] = status{can, s.turn, s.call}
		}
		return to(s, own)
	}
	type row = map[event.Type]status
	return map[string]scene{
		"no run": {nil, status{}, to(status{}, row{
			event.TypeRunCreated: {run: enq}, event.TypeSessionDeleted: {},
		})},
		"enqueued": {log(created), status{run: enq}, to(status{run: enq}, row{
			event.TypeRunQueued: {run: que}, event.TypeSessionDeleted: {run: enq},
			event.TypeRunCancelRequested: {run: enq}, event.TypeRunCancelled: {run: can}, event.TypeRunFailed: {run: fai},
		})},
		"enqueued behind a run": {toEnqueued, status{run: enq}, to(status{run: enq}, row{
			event.TypeRunCancelRequested: {run: enq}, event.TypeMessagesReplaced: {run: enq},
		})},
		"withdrawn behind a run": {log(toEnqueued, withdrawn), status{run: enq}, to(status{run: enq}, row{
			event.TypeRunCancelRequested: {run: enq}, event.TypeRunCancelled: {run: can}, event.TypeRunFailed: {run: fai},
		})},
		"the next one": {log(toEnqueued, another{cancelled}), status{run: enq}, to(status{run: enq}, row{
			event.TypeRunQueued: {run: que}, event.TypeRunCancelRequested: {run: enq}, event.TypeMessagesReplaced: {run: enq}, event.TypeSessionDeleted: {run: enq},
		})},
		"queued behind a run": {log(toEnqueued, another{cancelled}, begins), status{run: que}, to(status{run: que}, row{
			event.TypeRunQueued: {run: que}, event.TypeRunStarted: {run: run}, event.TypeRunCancelRequested: {run: que},
			event.TypeRunFailed: {run: fai}, event.TypeRunCancelled: {run: can},
		})},
		"queued": {toQueued, status{run: que}, to(status{run: que}, row{
			event.TypeRunQueued: {run: que}, event.TypeRunStarted: {run: run}, event.TypeRunCancelRequested: {run: que},
			event.TypeRunFailed: {run: fai}, event.TypeRunCancelled: {run: can},
		})},
		"queued again in a model call": {log(toCalling, released), status{que, calling, ""}, to(status{que, calling, ""}, row{
			event.TypeRunQueued: {que, calling, ""}, event.TypeRunResumed: {run, calling, ""},
			event.TypeRunCancelRequested: {que, calling, ""}, event.TypeAssistantStopped: {que, stp, ""},
		})},
		"queued again with an open call": {log(toStarted, released), status{que, ans, sta}, to(status{que, ans, sta}, row{
			event.TypeRunQueued: {que, ans, sta}, event.TypeRunResumed: {run, ans, sta},
			event.TypeRunCancelRequested: {que, ans, sta}, event.TypeToolResult: {que, ans, done},
		})},
		"running": {toRunning, status{run: run}, ends(status{run: run}, row{
			event.TypeTurnStarted: {run, open, ""}, event.TypeRunPrepared: {run: run},
		})},
		"prepared": {log(toRunning, prepared), status{run: run}, ends(status{run: run}, row{event.TypeTurnStarted: {run, open, ""}})},
		"turn open": {log(toRunning, event.TurnStarted{}), status{run, open, ""}, ends(status{run, open, ""}, row{
			event.TypeModelRequested: {run, calling, ""},
		})},
		"turn calling": {toCalling, status{run, calling, ""}, ends(status{run, calling, ""}, row{
			event.TypeAssistantDelta: {run, calling, ""}, event.TypeAssistantDiscarded: {run, open, ""},
			event.TypeAssistantCompleted: {run, ans, ""}, event.TypeAssistantStopped: {run, stp, ""}, event.TypeEmission: {run, calling, ""},
		})},
		"turn answered": {toAnswered, status{run, ans, ""}, ends(status{run, ans, ""}, row{
			event.TypeToolProposed: {run, ans, pro}, event.TypeTurnCompleted: {run, tc, ""},
		})},
		"turn stopped":         {log(toCalling, stopped), status{run, stp, ""}, ends(status{run, stp, ""}, row{})},
		"turn stopped to fail": {log(toCalling, stoppedBy(stream.StopFail)), status{run, stp, ""}, ends(status{run, stp, ""}, row{})},
		"turn stopped to end": {log(toCalling, stoppedBy(stream.StopEndTurn)), status{run, stp, ""}, ends(status{run, stp, ""}, row{
			event.TypeTurnCompleted: {run, tc, ""},
		})},
		"turn stopped to be asked again": {log(toCalling, stoppedBy(stream.StopRetry)), status{run, stp, ""}, ends(status{run, stp, ""}, row{
			event.TypeTurnCompleted: {run, tc, ""},
		})},
		"asked again": {log(toCalling, stoppedBy(stream.StopFallback), event.TurnCompleted{}), status{run, tc, ""}, ends(status{run, tc, ""}, row{
			event.TypeTurnStarted: {run, open, ""}, event.TypeRunCompleted: {com, tc, ""},
		})},
		"queued again after a stop": {log(toCalling, stoppedBy(stream.StopRetry), released), status{que, stp, ""}, to(status{que, stp, ""}, row{
			event.TypeRunQueued: {que, stp, ""}, event.TypeRunResumed: {run, stp, ""}, event.TypeRunCancelRequested: {que, stp, ""},
			event.TypeRunFailed: {fai, stp, ""}, event.TypeRunCancelled: {can, stp, ""},
		})},
		"taken up again in the place of a stop": {log(toCalling, stoppedBy(stream.StopRetry), failed, retried, resumed), status{run, stp, ""}, ends(status{run, stp, ""}, row{
			event.TypeTurnStarted: {run, open, ""},
		})},
		"turn completed": {toTurnEnd, status{run, tc, done}, ends(status{run, tc, done}, row{
			event.TypeTurnStarted: {run, open, ""}, event.TypeRunCompleted: {com, tc, done},
		})},
		"call proposed": {toProposed, status{run, ans, pro}, ends(status{run, ans, pro}, row{
			event.TypeToolStarted: {run, ans, sta}, event.TypeToolResult: {run, ans, done},
			event.TypeToolBlocked: {run, ans, blo}, event.TypeApprovalRequested: {run, ans, awa},
		})},
		"call blocked": {log(toProposed, blocked), status{run, ans, blo}, ends(status{run, ans, blo}, row{
			event.TypeToolResult: {run, ans, done},
		})},
		"call awaiting": {toAwaiting, status{run, ans, awa}, ends(status{run, ans, awa}, row{
			event.TypeApprovalDecided: {run, ans, app}, event.TypeRunSuspended: {wai, ans, awa},
		})},
		"call approved": {log(toAwaiting, approved), status{run, ans, app}, ends(status{run, ans, app}, row{
			event.TypeToolStarted: {run, ans, sta}, event.TypeToolBlocked: {run, ans, blo}, event.TypeToolResult: {run, ans, done},
		})},
		"call denied": {log(toAwaiting, denied), status{run, ans, den}, ends(status{run, ans, den}, row{
			event.TypeToolResult: {run, ans, done},
		})},
		"call edited": {log(toAwaiting, edited), status{run, ans, edi}, ends(status{run, ans, edi}, row{
			event.TypeToolStarted: {run, ans, sta}, event.TypeToolBlocked: {run, ans, blo}, event.TypeToolResult: {run, ans, done},
			event.TypeApprovalRequested: {run, ans, awa},
		})},
		"call expired": {log(toAwaiting, expired), status{run, ans, den}, ends(status{run, ans, den}, row{
			event.TypeToolResult: {run, ans, done},
		})},
		"waiting and edited": {log(toWaiting, edited), status{wai, ans, edi}, to(status{wai, ans, edi}, row{
			event.TypeRunQueued: {que, ans, edi}, event.TypeRunCancelRequested: {wai, ans, edi}, event.TypeToolResult: {wai, ans, done},
		})},
		"waiting": {toWaiting, status{wai, ans, awa}, to(status{wai, ans, awa}, row{
			event.TypeApprovalDecided: {wai, ans, app}, event.TypeRunCancelRequested: {wai, ans, awa},
		})},
		"waiting and approved": {log(toWaiting, approved), status{wai, ans, app}, to(status{wai, ans, app}, row{
			event.TypeRunQueued: {que, ans, app}, event.TypeRunCancelRequested: {wai, ans, app}, event.TypeToolResult: {wai, ans, done},
		})},
		"waiting and denied": {log(toWaiting, denied), status{wai, ans, den}, to(status{wai, ans, den}, row{
			event.TypeRunQueued: {que, ans, den}, event.TypeRunCancelRequested: {wai, ans, den}, event.TypeToolResult: {wai, ans, done},
		})},
		"waiting and settled": {log(toWaiting, denied, result), status{wai, ans, done}, to(status{wai, ans, done}, row{
			event.TypeRunQueued: {que, ans, done}, event.TypeRunCancelRequested: {wai, ans, done}, event.TypeRunCancelled: {can, ans, done},
			event.TypeRunFailed: {fai, ans, done},
		})},
		"queued again after an approval": {log(toWaiting, approved, event.RunQueued{Ticket: 2, Cause: "approval"}), status{que, ans, app}, to(status{que, ans, app}, row{
			event.TypeRunQueued: {que, ans, app}, event.TypeRunResumed: {run, ans, app},
			event.TypeRunCancelRequested: {que, ans, app}, event.TypeToolResult: {que, ans, done},
		})},
		"queued again with an open approval": {log(toAwaiting, released), status{que, ans, awa}, to(status{que, ans, awa}, row{
			event.TypeRunQueued: {que, ans, awa}, event.TypeRunResumed: {run, ans, awa},
			event.TypeRunCancelRequested: {que, ans, awa}, event.TypeApprovalDecided: {que, ans, app},
		})},
		"call started": {toStarted, status{run, ans, sta}, ends(status{run, ans, sta}, row{
			event.TypeToolStarted: {run, ans, sta}, event.TypeToolExecuted: {run, ans, exe}, event.TypeToolResult: {run, ans, done},
			event.TypeToolBlocked: {run, ans, blo}, event.TypeApprovalRequested: {run, ans, awa}, event.TypeToolProgress: {run, ans, sta},
		})},
		"call of unknown outcome": {toUnsure, status{run, ans, awa}, ends(status{run, ans, awa}, row{
			event.TypeApprovalDecided: {run, ans, app}, event.TypeRunSuspended: {wai, ans, awa},
		})},
		"call confirmed": {log(toUnsure, happened), status{run, ans, con}, ends(status{run, ans, con}, row{
			event.TypeToolResult: {run, ans, done},
		})},
		"call that did not happen": {log(toUnsure, missed), status{run, ans, app}, ends(status{run, ans, app}, row{
			event.TypeToolStarted: {run, ans, sta}, event.TypeToolBlocked: {run, ans, blo}, event.TypeToolResult: {run, ans, done},
		})},
		"waiting and confirmed": {log(toUnsure, suspended, happened), status{wai, ans, con}, to(status{wai, ans, con}, row{
			event.TypeRunQueued: {que, ans, con}, event.TypeRunCancelRequested: {wai, ans, con}, event.TypeToolResult: {wai, ans, done},
		})},
		"call executed": {toExecuted, status{run, ans, exe}, ends(status{run, ans, exe}, row{
			event.TypeToolStarted: {run, ans, sta}, event.TypeToolResult: {run, ans, done}, event.TypeToolBlocked: {run, ans, blo},
		})},
		"call done": {toDone, status{run, ans, done}, ends(status{run, ans, done}, row{
			event.TypeTurnCompleted: {run, tc, done},
		})},
		"completed": {log(toTurnEnd, completed), status{com, tc, done}, to(status{com, tc, done}, row{
			event.TypeSessionDeleted: {com, tc, done}, event.TypeMessagesReplaced: {com, tc, done},
		})},
		"failed": {log(toRunning, failed), status{run: fai}, to(status{run: fai}, row{
			event.TypeSessionDeleted: {run: fai}, event.TypeRunQueued: {run: que},
		})},
		"failed in an answer": {toFailed, status{fai, stp, ""}, to(status{fai, stp, ""}, row{
			event.TypeSessionDeleted: {fai, stp, ""}, event.TypeMessagesReplaced: {fai, stp, ""}, event.TypeRunQueued: {que, stp, ""},
		})},
		"failed behind a turn": {log(toTurnEnd, failed), status{fai, tc, done}, to(status{fai, tc, done}, row{
			event.TypeSessionDeleted: {fai, tc, done}, event.TypeMessagesReplaced: {fai, tc, done}, event.TypeRunQueued: {que, tc, done},
		})},
		"refused by a check": {log(toRunning, event.RunFailed{Reason: event.FailBlocked, Error: "no"}), status{run: fai}, to(status{run: fai}, row{
			event.TypeSessionDeleted: {run: fai},
		})},
		"queued for a retry": {log(toFailed, replaced, retried), status{que, stp, ""}, to(status{que, stp, ""}, row{
			event.TypeRunQueued: {que, stp, ""}, event.TypeRunResumed: {run, stp, ""}, event.TypeRunCancelRequested: {que, stp, ""},
			event.TypeRunFailed: {fai, stp, ""}, event.TypeRunCancelled: {can, stp, ""},
		})},
		"taken up again": {log(toFailed, replaced, retried, resumed), status{run, stp, ""}, ends(status{run, stp, ""}, row{
			event.TypeTurnStarted: {run, open, ""},
		})},
		"taken up again behind a turn": {log(toTurnEnd, failed, retried, resumed), status{run, tc, done}, ends(status{run, tc, done}, row{
			event.TypeTurnStarted: {run, open, ""}, event.TypeRunCompleted: {com, tc, done},
		})},
		"cancelled": {log(toQueued, cancelled), status{run: can}, to(status{run: can}, row{event.TypeSessionDeleted: {run: can}})},
		"deleted":   {log(event.SessionDeleted{}), status{}, map[event.Type]status{}},
	}
}

// build folds a scene's log.
func (sc scene) build(t testing.TB) loop.State {
	t.Helper()
	s := loop.Fold(loop.State{}, numbered(fact(t, 0, event.SessionCreated{TenantID: "t"}), 1))
	for _, p := range sc.log {
		of, ofAnother := p.(another)
		if ofAnother {
			p = of.Payload
		}
		e := numbered(candidateFor(t, s, p), s.LastSeq+1)
		if ofAnother {
			e.RunID = "another"
		}
		if err := loop.Allows(s, e); err != nil {
			t.Fatalf("the scene's own log: %v", err)
		}
		s = loop.Fold(s, e)
	}
	return s
}

func numbered(e event.Event, seq int64) event.Event {
	e.Seq = seq
	return e
}

// candidateFor puts p into the turn where it could belong.
func candidateFor(t testing.TB, s loop.State, p event.Payload) event.Event {
	r, _ := s.Run("run")
	turn, _ := r.Turn()
	no := turn.No
	if p.EventType() == event.TypeTurnStarted {
		no++
	}
	return fact(t, no, p)
}

// candidate is the event of that type that has the best chance in s: with the
// right ticket, epoch, turn and attempt, on the run "run" and the call "c1".
func candidate(t testing.TB, s loop.State, typ event.Type) event.Event {
	t.Helper()
	r, _ := s.Run("run")
	turn, _ := r.Turn()
	queue, last := event.RunQueued{Ticket: r.Ticket + 1}, ""
	if r.Status == loop.RunFailed {
		queue.Cause = event.QueuedForRetry
	}
	if n := len(s.Messages); n > 0 {
		last = s.Messages[n-1].ID
	}
	if len(s.Enqueued) > 0 {
		last, queue.Cause = s.Enqueued[0].ID, event.QueuedNext
	}
	question, answer := asked, approved
	if st := statusOf(s).call; st == loop.CallStarted {
		question = unsure
	} else if i := slices.IndexFunc(turn.Calls, func(c loop.Call) bool { return c.Asked == event.ApprovalOfOutcome }); i >= 0 {
		answer = missed
	}
	attempt := 0
	for _, c := range turn.Calls {
		attempt = c.Attempt
	}
	for _, p := range []event.Payload{
		event.ToolsNarrowed{Required: true, By: "policy", Tools: []string{}}, event.ToolProgress{CallID: "c1", Attempt: attempt, Number: 1, Text: "half"},
		event.SessionCreated{TenantID: "t"}, event.SessionUpdated{Title: new("hi")}, event.SessionDeleted{},
		event.MessagesReplaced{FromMessageID: last, MessageIDs: []string{last}},
		event.MessageCreated{MessageID: "m2", Role: hooks.RoleUser, Parts: []hooks.Part{{Type: hooks.PartText, Text: "hi"}}},
		created, queue,
		event.RunStarted{WorkerID: "w", Epoch: s.Epoch + 1, Ticket: r.Ticket},
		event.RunResumed{WorkerID: "w2", Epoch: s.Epoch + 1, Ticket: r.Ticket, Cause: event.ResumeTakeover},
		event.RunReleased{Cause: event.ReleaseShutdown, WorkerID: "w", Epoch: s.Epoch + 1, Ticket: r.Ticket + 1},
		event.TurnStarted{}, event.ModelRequested{Attempt: turn.Attempt + 1, Model: "x"},
		event.AssistantDelta{Attempt: turn.Attempt, Lane: stream.LaneText, BlockID: "0", Text: "x"},
		event.Emission{Attempt: turn.Attempt, Observer: "watch", Channel: "seen", Envelope: []byte("{}"), Chunk: 1},
		event.AssistantDiscarded{Attempt: turn.Attempt, Reason: "interrupted"},
		event.AssistantCompleted{Attempt: turn.Attempt, MessageID: "a2", Finish: stream.FinishStop},
		event.AssistantStopped{Attempt: turn.Attempt, Reason: "cancelled"},
		proposed, event.ToolStarted{CallID: "c1", Attempt: 2}, executed, result, event.TurnCompleted{},
		event.RunCancelRequested{}, completed, failed, cancelled,
		event.InputHandled{InputID: "i", Reply: "hello"}, event.InputBlocked{InputID: "i", ReasonCode: "no"}, event.InputRejected{InputID: "i", Policy: "reject"},
		prepared, suspended, blocked, question, answer,
	} {
		if p.EventType() == typ {
			return numbered(candidateFor(t, s, p), s.LastSeq+1)
		}
	}
	t.Fatalf("no candidate for %s: a new event type needs one here, and a place in the scenes", typ)
	return event.Event{}
}
