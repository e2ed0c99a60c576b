package store

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// changes are the net effect of an append on the projections, one element per
// row. A field that is not valid leaves its column as it is.
type changes struct {
	session   sessionChange
	described []descriptionChange // at most one
	runs      []runChange
	turns     []turnChange
	messages  []messageRow
	joined    []joinedRow
	replaced  []replacedRow
	calls     []callChange
	approvals []approvalChange
	emissions []emissionRow
}

type sessionChange struct {
	owner      string // as session.created names it
	externalID pgtype.Text
	createdAt  time.Time
	updatedAt  time.Time
	deletedAt  pgtype.Timestamptz
	epoch      pgtype.Int8
}

type runChange struct {
	id                 pgtype.UUID
	created            bool
	status             pgtype.Text
	agent              string
	messageID          pgtype.UUID
	assistantMessageID pgtype.UUID
	idempotencyKey     pgtype.Text
	requestSHA256      pgtype.Text
	ticket             pgtype.Int8
	workerID           pgtype.UUID // zero bytes: none
	epoch              pgtype.Int8
	takeovers          pgtype.Int4
	takeoversMore      int32
	notBefore          pgtype.Timestamptz // infinitely long ago: none
	cancelRequestedAt  pgtype.Timestamptz // infinitely long ago: none
	cancelReason       pgtype.Text        // empty: none
	reason             pgtype.Text        // empty: none
	err                pgtype.Text        // empty: none
	hookSet            pgtype.Text        // empty: none
	createdAt          time.Time
	createdSeq         int64
	startedAt          pgtype.Timestamptz
	endedAt            pgtype.Timestamptz // infinitely long ago: none
	endedSeq           pgtype.Int8        // 0: none
	retriesMore        int32
}

// ends says that the run is over when the append is written.
func (r *runChange) ends() bool { return r.endedAt.Valid && r.endedAt != noTime }

type turnChange struct {
	runID       pgtype.UUID
	no          int32
	created     bool
	status      string
	attempt     pgtype.Int4
	model       pgtype.Text
	messageID   pgtype.UUID
	finish      pgtype.Text
	finishRaw   pgtype.Text
	inputMore   int64
	outputMore  int64
	costMore    int64
	startedAt   time.Time
	completedAt pgtype.Timestamptz
}

type messageRow struct {
	id        pgtype.UUID
	runID     pgtype.UUID
	turn      pgtype.Int4
	role      string
	parts     string
	partial   bool
	position  pgtype.Int8 // not valid: that of the call
	callID    pgtype.UUID
	seq       int64
	createdAt time.Time
	enqueued  bool
}

type callChange struct {
	id              pgtype.UUID
	created         bool
	runID           pgtype.UUID
	turn            int32
	no              int32
	name            string
	arguments       string
	providerID      pgtype.Text
	status          string
	attempt         pgtype.Int4
	success         pgtype.Bool
	sha256          pgtype.Text
	bytes           pgtype.Int8
	isError         pgtype.Bool
	reason          pgtype.Text
	resultMessageID pgtype.UUID
	approvalID      pgtype.UUID
	asked           pgtype.Text // the arguments that people were asked about, or gave
	final           pgtype.Text
	blockedBy       pgtype.Text
	position        int64
	proposedAt      time.Time
	startedAt       pgtype.Timestamptz
	executedAt      pgtype.Timestamptz
	doneAt          pgtype.Timestamptz
}

// project says what events, which have their seqs, do to the projections. It
// trusts them to be allowed: who appends has asked the transition table.
// Events of unknown types change nothing but the session's time.
func project(events []event.Event) (changes, error) {
	var p projector
	for _, e := range events {
		p.session.updatedAt = e.At
		if e.Type == event.TypeAssistantDelta {
			continue // the most frequent type, and it changes nothing
		}
		payload, err := event.Decode(e)
		if err != nil {
			return changes{}, err
		}
		if err := p.add(e, payload); err != nil {
			return changes{}, fmt.Errorf("%s at seq %d: %w", e.Type, e.Seq, err)
		}
	}
	return p.changes, p.err
}

// projector collects changes. The first id that is not a UUID is its err.
type projector struct {
	changes
	err error
}

func (p *projector) add(e event.Event, payload event.Payload) error {
	switch v := payload.(type) {
	case event.SessionCreated:
		p.session.owner, p.session.createdAt, p.session.externalID = v.TenantID, e.At, text(v.ExternalID)
		p.describeNew(v)
	case event.SessionUpdated:
		p.describe(v)
	case event.SessionDeleted:
		p.session.deletedAt = at(e.At)
	case event.MessageCreated:
		p.message(e, v.MessageID, v.Role, v.Parts, false)
		p.messages[len(p.messages)-1].enqueued = v.Enqueued
	case event.MessagesReplaced:
		for _, id := range v.MessageIDs {
			p.replaced = append(p.replaced, replacedRow{id: p.id(id), seq: e.Seq})
		}
	case event.AssistantCompleted:
		p.message(e, v.MessageID, hooks.RoleAssistant, v.Parts, false)
		p.finishStep(e)
	case event.AssistantStopped:
		if v.MessageID != "" {
			p.message(e, v.MessageID, hooks.RoleAssistant, v.Parts, true)
		}
	case event.ToolExecuted:
		p.finishStep(e)
	case event.Emission:
		p.emissions = append(p.emissions, emissionRow{seq: e.Seq})
	}
	p.addToRun(e, payload)
	p.addToTurn(e, payload)
	p.addToCall(e, payload)
	p.addToApproval(e, payload)
	return p.err
}

func (p *projector) addToRun(e event.Event, payload event.Payload) {
	switch v := payload.(type) {
	case event.RunCreated:
		r := p.run(e)
		r.created, r.createdAt, r.createdSeq = true, e.At, e.Seq
		r.status, r.agent = runStatus(loop.RunEnqueued), v.Agent
		r.messageID, r.assistantMessageID = p.id(v.MessageID), p.id(v.AssistantMessageID)
		r.idempotencyKey, r.requestSHA256 = text(v.IdempotencyKey), text(v.RequestSHA256)
		if v.Policy.First() {
			p.putFirst(r.messageID)
		}
	case event.RunQueued:
		r := p.run(e)
		r.status, r.ticket, r.notBefore = runStatus(loop.RunQueued), bigint(v.Ticket), noTime
		switch v.Cause {
		case event.QueuedForRetry:
			r.retry()
		case event.QueuedNext:
			p.joined = append(p.joined, joinedRow{runID: r.id, seq: e.Seq})
		}
	case event.RunStarted:
		p.claim(e, v.WorkerID, v.Epoch, v.HookSet).startedAt = at(e.At)
	case event.RunResumed:
		p.claim(e, v.WorkerID, v.Epoch, v.HookSet)
	case event.RunSuspended:
		r := p.run(e)
		r.status, r.workerID = runStatus(loop.RunWaiting), noUUID
	case event.RunReleased:
		r := p.run(e)
		r.status, r.ticket, r.epoch, r.workerID = runStatus(loop.RunQueued), bigint(v.Ticket), bigint(v.Epoch), noUUID
		p.session.epoch, r.notBefore = bigint(v.Epoch), noTime
		if v.NotBefore != nil {
			r.notBefore = at(*v.NotBefore)
		}
		if v.Cause == event.ReleaseWorkerDead {
			r.takeoversMore++
		}
	case event.RunCancelRequested:
		r := p.run(e)
		r.cancelRequestedAt, r.cancelReason = at(e.At), pgtype.Text{String: v.Reason, Valid: true}
	case event.RunCompleted:
		p.end(e, loop.RunCompleted, string(v.Reason), "")
	case event.RunFailed:
		p.end(e, loop.RunFailed, string(v.Reason), v.Error)
	case event.RunCancelled:
		p.end(e, loop.RunCancelled, v.Reason, "")
	}
}

// retry makes the run as if it had not failed.
func (r *runChange) retry() {
	r.retriesMore++
	r.takeovers, r.takeoversMore = integer(0), 0
	r.cancelRequestedAt, r.cancelReason = noTime, noText
	r.reason, r.err, r.endedAt, r.endedSeq = noText, noText, noTime, bigint(0)
}

func (p *projector) finishStep(e event.Event) {
	r := p.run(e)
	r.takeovers, r.takeoversMore = integer(0), 0
}

func (p *projector) claim(e event.Event, workerID string, epoch int64, hookSet string) *runChange {
	r := p.run(e)
	r.hookSet = pgtype.Text{String: hookSet, Valid: true}
	r.status, r.workerID, r.epoch, r.notBefore = runStatus(loop.RunRunning), p.id(workerID), bigint(epoch), noTime
	p.session.epoch = bigint(epoch)
	return r
}

func (p *projector) end(e event.Event, status loop.RunStatus, reason, problem string) {
	r := p.run(e)
	r.status, r.workerID, r.notBefore = runStatus(status), noUUID, noTime
	r.reason, r.err = pgtype.Text{String: reason, Valid: true}, pgtype.Text{String: problem, Valid: true}
	r.endedAt, r.endedSeq = at(e.At), bigint(e.Seq)
}

func (p *projector) addToTurn(e event.Event, payload event.Payload) {
	switch v := payload.(type) {
	case event.TurnStarted:
		t := p.turn(e, loop.TurnOpen)
		t.created, t.startedAt = true, e.At
	case event.ModelRequested:
		t := p.turn(e, loop.TurnCalling)
		t.attempt, t.model = integer(v.Attempt), pgtype.Text{String: v.Model, Valid: true}
	case event.AssistantDiscarded:
		p.turn(e, loop.TurnOpen).use(v.Usage, v.Cost)
	case event.AssistantCompleted:
		t := p.turn(e, loop.TurnAnswered)
		t.messageID, t.finish, t.finishRaw = p.id(v.MessageID), text(string(v.Finish)), text(v.FinishRaw)
		t.use(&v.Usage, v.Cost)
	case event.AssistantStopped:
		t := p.turn(e, loop.TurnStopped)
		t.use(v.Usage, v.Cost)
		if v.MessageID != "" {
			t.messageID = p.id(v.MessageID)
		}
	case event.TurnCompleted:
		p.turn(e, loop.TurnCompleted).completedAt = at(e.At)
	}
}

// use adds what a model call took.
func (t *turnChange) use(u *stream.Usage, c *event.Cost) {
	if u != nil {
		t.inputMore += u.InputTokens
		t.outputMore += u.OutputTokens
	}
	if c != nil {
		t.costMore += c.Micros
	}
}

func (p *projector) addToCall(e event.Event, payload event.Payload) {
	switch v := payload.(type) {
	case event.ToolProposed:
		c := p.call(v.CallID, loop.CallProposed)
		c.created, c.runID, c.turn, c.no = true, p.id(e.RunID), int32(e.Turn), int32(v.Number)
		c.name, c.arguments, c.providerID = v.Name, v.Arguments, text(v.ProviderCallID)
		c.position, c.proposedAt = e.Seq, e.At
	case event.ToolStarted:
		c := p.call(v.CallID, loop.CallStarted)
		c.attempt, c.startedAt = integer(v.Attempt), at(e.At)
		if v.Arguments != nil {
			c.final = pgtype.Text{String: *v.Arguments, Valid: true}
		}
	case event.ToolBlocked:
		p.call(v.CallID, loop.CallBlocked).blockedBy = pgtype.Text{String: v.By, Valid: true}
	case event.ToolExecuted:
		c := p.call(v.CallID, loop.CallExecuted)
		c.success, c.executedAt = boolean(v.Success), at(e.At)
		c.sha256, c.bytes = pgtype.Text{String: v.SHA256, Valid: true}, bigint(v.Bytes)
	case event.ToolResult:
		c := p.call(v.CallID, loop.CallDone)
		c.isError, c.reason, c.resultMessageID, c.doneAt = boolean(v.IsError), text(string(v.Reason)), p.id(v.MessageID), at(e.At)
		p.message(e, v.MessageID, hooks.RoleTool, []hooks.Part{{Type: hooks.PartToolResult, ToolResult: &hooks.ToolResult{
			CallID: v.CallID, Content: v.Content, IsError: v.IsError, Reason: v.Reason,
		}}}, false)
		m := &p.messages[len(p.messages)-1]
		m.position, m.callID = pgtype.Int8{}, c.id
		if c.created {
			m.position = bigint(c.position)
		}
	}
}

func (p *projector) message(e event.Event, id string, role hooks.Role, parts []hooks.Part, partial bool) {
	m := messageRow{
		id: p.id(id), role: string(role), parts: encodeParts(parts), partial: partial,
		position: bigint(e.Seq), seq: e.Seq, createdAt: e.At,
	}
	if e.RunID != "" {
		m.runID = p.id(e.RunID)
	}
	if e.Turn != 0 {
		m.turn = integer(e.Turn)
	}
	p.messages = append(p.messages, m)
}

// run, turn and call return the change of one row, so that an append has at
// most one for each. An append holds few: they are searched from the end. The
// pointer holds until the next call.
func (p *projector) run(e event.Event) *runChange {
	id := p.id(e.RunID)
	for i := len(p.runs) - 1; i >= 0; i-- {
		if p.runs[i].id == id {
			return &p.runs[i]
		}
	}
	p.runs = append(p.runs, runChange{id: id})
	return &p.runs[len(p.runs)-1]
}

func (p *projector) turn(e event.Event, status loop.TurnStatus) *turnChange {
	id, no := p.id(e.RunID), int32(e.Turn)
	for i := len(p.turns) - 1; i >= 0; i-- {
		if t := &p.turns[i]; t.runID == id && t.no == no {
			t.status = string(status)
			return t
		}
	}
	p.turns = append(p.turns, turnChange{runID: id, no: no, status: string(status)})
	return &p.turns[len(p.turns)-1]
}

func (p *projector) call(callID string, status loop.CallStatus) *callChange {
	id := p.id(callID)
	for i := len(p.calls) - 1; i >= 0; i-- {
		if c := &p.calls[i]; c.id == id {
			c.status = string(status)
			return c
		}
	}
	p.calls = append(p.calls, callChange{id: id, status: string(status)})
	return &p.calls[len(p.calls)-1]
}

func (p *projector) id(s string) pgtype.UUID {
	id, err := parseID(s)
	if err != nil && p.err == nil {
		p.err = err
	}
	return id
}
