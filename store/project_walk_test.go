package store_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// walk is one session's log.
type walk struct {
	t       *rapid.T
	log     loop.Log
	clock   time.Time
	id      string
	state   loop.State
	events  []event.Event
	pending []event.Event
	// withdrawn counts the runs that never began.
	withdrawn int
}

// wander writes a log of some length, which leaves nobody waiting for nobody.
func (w *walk) wander() {
	w.next(w.session())
	if rapid.Bool().Draw(w.t, "in the middle of a turn") {
		w.toolCall()
	}
	for range rapid.SampledFrom([]int{40, 60, 20, 5, 1}).Draw(w.t, "events") {
		candidates := w.candidates()
		if len(candidates) == 0 {
			break // the session was deleted
		}
		w.next(rapid.SampledFrom(candidates).Draw(w.t, "event"))
		if anyActive(w.state.Runs) && w.oneIn(8, "enqueue") {
			w.enqueue()
		}
		if len(w.state.Enqueued) > 0 && !w.state.Deleted && w.oneIn(8, "withdraw") {
			w.withdraw()
		}
		if w.oneIn(4, "commit") {
			w.commit()
		}
	}
	w.queueNext()
	w.commit()
}

// enqueue says something for later.
func (w *walk) enqueue() {
	run, message := looptest.NewID(), looptest.NewID()
	policy := rapid.SampledFrom(event.Policies()[1:]).Draw(w.t, "policy")
	w.next(candidate{run, 0, event.MessageCreated{MessageID: message, Role: hooks.RoleUser, Parts: w.parts(), Enqueued: true}})
	w.next(candidate{run, 0, event.RunCreated{Agent: "a", MessageID: message, AssistantMessageID: looptest.NewID(), Policy: policy}})
}

// withdraw takes back what was said for later.
func (w *walk) withdraw() {
	m := rapid.SampledFrom(w.state.Enqueued).Draw(w.t, "withdrawn")
	w.next(candidate{m.RunID, 0, event.MessagesReplaced{FromMessageID: m.ID, MessageIDs: []string{m.ID}}})
	w.next(candidate{m.RunID, 0, event.RunCancelled{}})
	w.withdrawn++
}

// queueNext leaves no run behind that nobody would ever begin.
func (w *walk) queueNext() {
	if anyActive(w.state.Runs) || w.state.Deleted {
		return
	}
	for _, r := range w.state.Runs {
		for _, c := range w.ofRun(r) {
			if _, ok := c.payload.(event.RunQueued); ok && r.Status == loop.RunEnqueued && w.allows(c) {
				w.next(c)
				return
			}
		}
	}
}

// toolCall leads to where most events are allowed.
func (w *walk) toolCall() {
	run := looptest.NewID()
	w.next(candidate{run, 0, event.RunCreated{Agent: "a", MessageID: looptest.NewID(), AssistantMessageID: looptest.NewID()}})
	for _, p := range []event.Payload{event.RunQueued{Ticket: 1}, event.RunStarted{WorkerID: looptest.NewID(), Epoch: 1, Ticket: 1}} {
		w.next(candidate{run, 0, p})
	}
	first, second := looptest.NewID(), looptest.NewID()
	turn := []event.Payload{
		event.TurnStarted{}, event.ModelRequested{Attempt: 1, Model: "m"},
		event.AssistantCompleted{Attempt: 1, MessageID: looptest.NewID(), Parts: w.parts(), Finish: stream.FinishToolCalls},
		event.ToolProposed{CallID: first, Number: 1, Name: "look"}, event.ToolProposed{CallID: second, Number: 2, Name: "look"},
	}
	if w.oneIn(3, "approvals") {
		for _, id := range []string{first, second} {
			turn = append(turn, event.ApprovalRequested{ApprovalID: looptest.NewID(), CallID: id, Name: "look", ArgumentsSHA256: digestOf(""), By: "permission", TimeoutMS: 1500})
		}
	}
	for _, p := range turn {
		w.next(candidate{run, 1, p})
	}
}

func digestOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

type candidate struct {
	runID   string
	turn    int
	payload event.Payload
}

func (w *walk) session() candidate {
	c := event.SessionCreated{
		TenantID: looptest.Tenant, ExternalID: rapid.SampledFrom([]string{"", "ext " + w.id}).Draw(w.t, "external id"),
		Title: rapid.SampledFrom([]string{"", "ÖL & <oil>"}).Draw(w.t, "title"), User: rapid.SampledFrom([]string{"", "u 1"}).Draw(w.t, "user"),
	}
	if w.oneIn(2, "metadata") {
		c.Metadata = map[string]string{"a": "1", `b "ü"`: ""}
	}
	return candidate{payload: c}
}

// description changes what the session's client says of it.
func (w *walk) description() candidate {
	var u event.SessionUpdated
	if w.oneIn(2, "retitle") {
		u.Title = new(rapid.SampledFrom([]string{"", "two", "ÖL"}).Draw(w.t, "new title"))
	}
	for _, k := range []string{"a", `b "ü"`, "c"} {
		if w.oneIn(2, "key") {
			continue
		}
		if u.Metadata == nil {
			u.Metadata = map[string]*string{}
		}
		u.Metadata[k] = rapid.SampledFrom([]*string{nil, new("1"), new("2\n")}).Draw(w.t, "value")
	}
	return candidate{payload: u}
}

// replacement takes the end of the conversation out of it.
func (w *walk) replacement(runID string) candidate {
	m := w.state.Messages
	if len(m) == 0 {
		return candidate{payload: future{N: 2}}
	}
	m = m[len(m)-rapid.IntRange(1, len(m)).Draw(w.t, "replaced"):]
	p := event.MessagesReplaced{FromMessageID: m[0].ID}
	for _, old := range m {
		p.MessageIDs = append(p.MessageIDs, old.ID)
	}
	return candidate{runID, 0, p}
}

type future struct {
	N int `json:"n"`
}

func (future) EventType() event.Type { return "from.the.future" }

// candidates are events that may follow. Those that lead deeper come first,
// since rapid prefers what comes first.
func (w *walk) candidates() []candidate {
	s := w.state
	fresh := candidate{runID: looptest.NewID(), payload: event.RunCreated{
		Agent: "a", MessageID: looptest.NewID(), AssistantMessageID: looptest.NewID(), IdempotencyKey: "k", RequestSHA256: "d",
	}}
	var all []candidate
	rare, aside := w.oneIn(5, "rare"), w.oneIn(4, "aside")
	for _, r := range s.Runs {
		all = append(all, w.ofTurn(r)...)
		all = append(all, w.ofRun(r)...)
		if rare {
			all = append(all, w.interruptions(r)...)
		}
	}
	if !anyActive(s.Runs) || aside {
		all = append(all, fresh, candidate{payload: future{N: 1}}, candidate{payload: event.MessageCreated{
			MessageID: looptest.NewID(), Role: hooks.RoleUser, Parts: w.parts(),
		}})
	}
	if rare || aside {
		all = append(all, w.description(), w.replacement(rapid.SampledFrom([]string{"", fresh.runID}).Draw(w.t, "replacing run")))
	}
	if rare {
		all = append(all, candidate{payload: event.InputHandled{InputID: looptest.NewID(), Agent: "a", Reply: "later", IdempotencyKey: "k"}},
			candidate{payload: event.InputBlocked{InputID: looptest.NewID(), Agent: "a", ReasonCode: "no"}},
			candidate{payload: event.InputRejected{InputID: looptest.NewID(), Agent: "a", Policy: "reject", ActiveRunID: looptest.NewID()}})
	}
	waits := func(r loop.Run) bool { return r.Status == loop.RunEnqueued }
	if len(w.events) > 20 && !slices.ContainsFunc(s.Runs, waits) { // no command would, and the audit says so
		all = append(all, candidate{payload: event.SessionDeleted{}})
	}
	var allowed []candidate
	for _, c := range all {
		if w.allows(c) {
			allowed = append(allowed, c)
		}
	}
	return allowed
}

func (w *walk) allows(c candidate) bool {
	r, _ := w.state.Run(c.runID)
	if _, queued := c.payload.(event.RunQueued); queued && r.Status == loop.RunEnqueued && anyActive(w.state.Runs) {
		return false // one active run at a time
	}
	return loop.Allows(w.state, w.encode(c)) == nil
}

func anyActive(runs []loop.Run) bool {
	for _, r := range runs {
		if r.Status.Active() {
			return true
		}
	}
	return false
}

func (w *walk) ofRun(r loop.Run) []candidate {
	worker, next := looptest.NewID(), w.state.Epoch+1
	payloads := []event.Payload{
		event.RunStarted{WorkerID: worker, Epoch: next, Ticket: r.Ticket, HookSet: noHooks.Digest},
		event.RunResumed{WorkerID: worker, Epoch: next, Ticket: r.Ticket, Cause: event.ResumeTakeover, HookSet: strings.Repeat(noHooks.Digest, int(next%2))},
		event.RunCompleted{Reason: stream.FinishStop},
		event.RunSuspended{Reason: "approval", ApprovalIDs: []string{}},
		event.RunPrepared{Messages: []event.PreparedMessage{{MessageID: looptest.NewID(), Role: hooks.RoleSystem, Text: "be kind"}}},
	}
	if r.Status == loop.RunWaiting {
		payloads = append(payloads, event.RunQueued{Ticket: r.Ticket + 1, Cause: "approval"})
	}
	if w.oneIn(4, "fails") {
		payloads = append(payloads, event.RunFailed{Reason: event.FailModel, Error: "refused"})
	}
	if r.Status == loop.RunFailed {
		payloads = append(payloads, event.RunQueued{Ticket: r.Ticket + 1, Cause: event.QueuedForRetry})
	}
	if r.Status == loop.RunEnqueued {
		payloads = append(payloads, event.RunQueued{Ticket: r.Ticket + 1}, event.RunQueued{Ticket: r.Ticket + 1, Cause: event.QueuedNext})
	}
	return of(r.ID, 0, payloads)
}

// interruptions would leave little of a run if they came as often as the rest.
func (w *walk) interruptions(r loop.Run) []candidate {
	later := w.clock.Add(time.Minute)
	next := w.state.Epoch + 1
	cause := rapid.SampledFrom([]event.ReleaseCause{event.ReleaseWorkerDead, event.ReleaseShutdown}).Draw(w.t, "cause")
	reason := rapid.SampledFrom([]string{"", "enough"}).Draw(w.t, "reason")
	return of(r.ID, 0, []event.Payload{
		event.RunReleased{Cause: cause, WorkerID: r.WorkerID, Epoch: next, Ticket: r.Ticket + 1},
		event.RunReleased{Cause: cause, WorkerID: r.WorkerID, Epoch: next, Ticket: r.Ticket + 1, NotBefore: &later},
		event.RunQueued{Ticket: r.Ticket + 1, Cause: "job_lost"},
		event.RunCancelRequested{Reason: reason}, event.RunCancelRequested{Reason: reason, Rollback: true},
		event.RunFailed{Reason: event.FailModel, Error: "refused"},
		event.RunCancelled{Reason: reason},
	})
}

// oneIn is true for one of n draws. Integers that rapid draws are mostly small.
func (w *walk) oneIn(n int, label string) bool {
	answers := make([]bool, n)
	answers[n-1] = true
	return rapid.SampledFrom(answers).Draw(w.t, label)
}

func of(runID string, turn int, payloads []event.Payload) (out []candidate) {
	for _, p := range payloads {
		out = append(out, candidate{runID, turn, p})
	}
	return out
}

func (w *walk) ofTurn(r loop.Run) []candidate {
	t, _ := r.Turn()
	silent := event.AssistantStopped{Attempt: t.Attempt, Reason: "cancelled"}
	shown := silent
	shown.MessageID, shown.Parts = looptest.NewID(), w.parts()
	usage := stream.Usage{InputTokens: 3, OutputTokens: 5}
	cost := &event.Cost{Micros: 90, InputPrice: 2_500_000, OutputPrice: 15_000_000}
	shown.Usage, shown.Cost = &stream.Usage{InputTokens: 3}, &event.Cost{Micros: 8, InputPrice: 2_500_000, OutputPrice: 15_000_000}
	var payloads []event.Payload
	for _, c := range t.Calls {
		payloads = append(payloads, w.ofApproval(c)...)
		payloads = append(payloads,
			event.ToolExecuted{CallID: c.ID, Attempt: c.Attempt, Success: c.Number%2 == 0, SHA256: "ab", Bytes: 7},
			event.ToolResult{CallID: c.ID, MessageID: looptest.NewID(), Name: "look", Content: "<seen>"},
			event.ToolResult{CallID: c.ID, MessageID: looptest.NewID(), Name: "look", IsError: true, Reason: hooks.ReasonOutcomeUnknown},
		)
	}
	payloads = append(payloads,
		event.TurnCompleted{},
		event.ToolProposed{CallID: looptest.NewID(), Number: len(t.Calls) + 1, Name: "look", Arguments: "{\"q\": <1>", ProviderCallID: "p"},
		event.AssistantCompleted{Attempt: t.Attempt, MessageID: looptest.NewID(), Parts: w.parts(), Finish: stream.FinishStop, FinishRaw: "end", Usage: usage, Cost: cost},
		event.AssistantCompleted{Attempt: t.Attempt, MessageID: looptest.NewID(), Finish: stream.FinishToolCalls},
		event.AssistantDelta{Attempt: t.Attempt, Lane: stream.LaneText, BlockID: "0", Text: "so "},
		event.AssistantDelta{Attempt: t.Attempt, Lane: stream.LaneReasoning, BlockID: "1", Text: "hm"},
		event.AssistantDiscarded{Attempt: t.Attempt, Reason: "interrupted"},
		event.AssistantDiscarded{Attempt: t.Attempt, Reason: "failed", Usage: &usage, Cost: cost}, silent, shown,
		event.ModelRequested{Attempt: t.Attempt + 1, Model: fmt.Sprint("model ", t.Attempt), MessageIDs: []string{}},
	)
	return append(of(r.ID, t.No, payloads), of(r.ID, t.No+1, []event.Payload{event.TurnStarted{}})...)
}

func (w *walk) ofApproval(c loop.Call) []event.Payload {
	final := c.Arguments
	if c.Final != nil {
		final = *c.Final
	}
	arguments := final
	if c.ApprovalID == "" { // else it is what people were asked about that runs
		arguments = rapid.SampledFrom([]string{c.Arguments, `{"q": "changed"}`}).Draw(w.t, "arguments")
	}
	digest := digestOf(arguments)
	decisions := []event.ApprovalDecision{
		event.DecisionApproved, event.DecisionEdited, event.DecisionDenied, event.DecisionCancelled, event.DecisionExpired,
	}
	if c.Asked == event.ApprovalOfOutcome {
		decisions = []event.ApprovalDecision{event.DecisionDidNotHappen, event.DecisionHappened, event.DecisionCancelled}
	}
	answer := event.ApprovalDecided{
		ApprovalID: c.ApprovalID, CallID: c.ID, Decision: rapid.SampledFrom(decisions).Draw(w.t, "decision"), ArgumentsSHA256: digest, Reason: "so",
	}
	if answer.Decision == event.DecisionEdited {
		answer.EditedArguments = new(rapid.SampledFrom([]string{c.Arguments, `{"q": "edited"}`, ""}).Draw(w.t, "edited"))
		answer.EditedSHA256 = digestOf(*answer.EditedArguments)
	}
	question := event.ApprovalRequested{
		ApprovalID: looptest.NewID(), CallID: c.ID, Name: c.Name, Arguments: arguments, ArgumentsSHA256: digest, By: "permission", TimeoutMS: 1500,
	}
	if c.Edits > 0 {
		question.ChangedFrom, question.Approvers = &final, []string{"local", `a"b,{}*`}
	}
	return []event.Payload{
		question,
		event.ApprovalRequested{
			ApprovalID: looptest.NewID(), Kind: event.ApprovalOfOutcome, CallID: c.ID, Name: c.Name, Arguments: final, ArgumentsSHA256: digestOf(final), By: "on_unknown",
		},
		answer,
		event.ToolStarted{CallID: c.ID, Attempt: c.Attempt + 1, Arguments: &arguments, ArgumentsSHA256: digest},
		event.ToolStarted{CallID: c.ID, Attempt: c.Attempt + 1, ArgumentsSHA256: digestOf(final)},
		event.ToolBlocked{CallID: c.ID, By: "BeforeExecute", ReasonCode: "no"},
	}
}

func (w *walk) parts() []hooks.Part {
	return []hooks.Part{{Type: hooks.PartText, Text: "a < b & \u2028 é 🙂"}, {Type: hooks.PartToolCall, ToolCall: &hooks.ToolCall{ID: w.id, Name: "look"}}}
}

func (w *walk) encode(c candidate) event.Event {
	e, err := event.New(event.Scope{SessionID: w.id, RunID: c.runID, Turn: c.turn, At: w.clock, Actor: looptest.Tester}, c.payload)
	if err != nil {
		w.t.Fatal(err)
	}
	e.Seq = int64(len(w.events) + len(w.pending) + 1)
	return e
}

func (w *walk) next(c candidate) {
	w.clock = w.clock.Add(1234567 * time.Microsecond)
	e := w.encode(c)
	if err := loop.Allows(w.state, e); err != nil {
		w.t.Fatal(err)
	}
	w.state = loop.Fold(w.state, e)
	w.pending = append(w.pending, e)
}

func (w *walk) commit() {
	if len(w.pending) == 0 {
		return
	}
	a := appendOf(w.id, int64(len(w.events)), w.pending...)
	for range rapid.IntRange(0, 2).Draw(w.t, "decisions") {
		a = with(a, w.state.Ledger, sparse(hooks.GateBeforeInput, "i"))
		w.state.Ledger = loop.LedgerHead{Seq: a.Ledger[len(a.Ledger)-1].LedgerSeq, Hash: a.Ledger[len(a.Ledger)-1].Hash}
	}
	if _, err := w.log.Append(context.Background(), a); err != nil {
		w.t.Fatalf("append %v: %v", looptest.Types(w.pending), err)
	}
	w.events, w.pending = append(w.events, w.pending...), nil
}
