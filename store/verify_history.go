package store

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/audit"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// history is the log of one session, folded, and with it what the state leaves
// out: when things happened, and in which event.
type history struct {
	sessionID string
	report    *Report
	state     loop.State
	appendID  string // of the last event
	ledger    *chain
	// audit asks more of it; nil asks nothing.
	audit *audit.Auditor

	createdAt, updatedAt, deletedAt time.Time
	runs                            map[string]*runTimes
	turns                           map[turnKey]*turnTimes
	calls                           map[string]*callTimes
	messages                        map[string]messageTimes
	replaced                        []hooks.Message
	approvals                       map[string]columns
	emissions                       table
}

type runTimes struct {
	createdSeq               int64
	started, cancelRequested time.Time
}

type turnKey struct {
	runID string
	no    int
}

type turnTimes struct{ started, completed time.Time }

type callTimes struct {
	proposed, started, executed, done time.Time
	blockedBy                         string
}

type messageTimes struct {
	seq, replaced int64
	turn          int
	at            time.Time
	// enqueued says that its run has not begun, first that it begins before
	// others that are older.
	enqueued, first bool
}

func newHistory(sessionID string, report *Report, sets hookSets) *history {
	return &history{
		sessionID: sessionID, report: report, ledger: newChain(sessionID, report, sets), approvals: map[string]columns{}, emissions: table{},
		runs: map[string]*runTimes{}, turns: map[turnKey]*turnTimes{}, calls: map[string]*callTimes{}, messages: map[string]messageTimes{},
	}
}

// logged is an event with the columns that are not part of it.
type logged struct {
	event.Event
	tenantID string
	appendID string
}

func (h *history) read(ctx context.Context, tx pgx.Tx) error {
	rows, _ := tx.Query(ctx, `
		SELECT seq, type, run_id::text, turn_no, at, actor_kind, actor_id, payload, tenant_id, append_id::text
		FROM agentd.events WHERE session_id = $1 ORDER BY seq`, h.sessionID) // rows has the error
	_, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
		e := logged{Event: event.Event{SessionID: h.sessionID}}
		var runID *string
		var turn *int
		var payload []byte
		err := row.Scan(&e.Seq, &e.Type, &runID, &turn, &e.At, &e.Actor.Kind, &e.Actor.ID, &payload, &e.tenantID, &e.appendID)
		e.RunID, e.Turn, e.At, e.Payload = orZero(runID), orZero(turn), e.At.UTC(), payload
		h.add(e)
		return struct{}{}, err
	})
	return err
}

func (h *history) add(e logged) {
	h.report.Events++
	if e.appendID != h.appendID {
		h.ledger.judge(h.state.LastSeq)
	}
	h.ledger.committed(e.Seq)
	at := Difference{Table: "events", Row: h.sessionID + "/" + strconv.FormatInt(e.Seq, 10)}
	if e.Seq != h.state.LastSeq+1 && !h.mayMissDeltas() {
		at.Column, at.Got, at.Want = "seq", strconv.FormatInt(e.Seq, 10), strconv.FormatInt(h.state.LastSeq+1, 10)
		h.report.add(at)
	}
	after := loop.Fold(h.state, e.Event)
	if err := loop.Allows(h.state, e.Event); err != nil {
		at.Column, at.Got, at.Want = "type", string(e.Type), "an event that is allowed here: "+err.Error()
		h.report.add(at)
	} else if p, err := event.Decode(e.Event); err == nil { // it is what Allows asked
		h.note(e.Event, p)
		h.ledger.note(h.state, e.Event, p)
		if h.audit != nil {
			h.audit.Note(h.state, after, e.Event, p)
		}
	}
	h.state = after
	h.state.LastSeq = e.Seq
	if e.tenantID != h.state.TenantID {
		at.Column, at.Got, at.Want = "tenant_id", e.tenantID, h.state.TenantID
		h.report.add(at)
	}
	if h.createdAt.IsZero() {
		h.createdAt = e.At
	}
	h.updatedAt, h.appendID = e.At, e.appendID
}

// finish is for what only the whole log can tell.
func (h *history) finish() {
	h.ledger.judge(h.state.LastSeq)
	h.ledger.finish(h.state)
	h.finishApprovals()
	h.finishQueue()
	h.finishAudit()
}

// WantRule is what is wanted in the place of what breaks a rule.
const WantRule = "a log that keeps to this rule"

// finishAudit reports what breaks a rule.
func (h *history) finishAudit() {
	if h.audit == nil {
		return
	}
	for _, v := range h.audit.Finish(h.state) {
		at := Difference{Table: "events", Row: h.sessionID + "/" + strconv.FormatInt(v.Seq, 10), Column: string(v.Rule), Got: v.Problem, Want: WantRule}
		if v.LedgerSeq > 0 {
			at.Table, at.Row = "hook_decisions", h.ledger.key(v.LedgerSeq)
		}
		h.report.add(at)
	}
}

// mayMissDeltas says that deltas could stand here, and so may have been
// removed: some run is in the middle of a model call.
func (h *history) mayMissDeltas() bool {
	for _, r := range h.state.Runs {
		if t, ok := r.Turn(); ok && r.Status == loop.RunRunning && t.Status == loop.TurnCalling {
			return true
		}
	}
	return false
}

func (h *history) note(e event.Event, p event.Payload) {
	switch p := p.(type) {
	case event.SessionDeleted:
		h.deletedAt = e.At
	case event.MessageCreated:
		h.noteMessage(e, p.MessageID)
		h.noteEnqueued(p.MessageID, p.Enqueued)
	case event.MessagesReplaced:
		h.noteReplaced(e, p)
	case event.RunCreated:
		h.runs[e.RunID] = &runTimes{createdSeq: e.Seq}
		h.noteFirst(p)
	case event.RunQueued:
		switch p.Cause {
		case event.QueuedForRetry:
			h.runs[e.RunID].cancelRequested = time.Time{}
		case event.QueuedNext:
			r, _ := h.state.Run(e.RunID)
			h.noteEnqueued(r.MessageID, false)
		}
	case event.RunStarted:
		h.runs[e.RunID].started = e.At
	case event.RunCancelRequested:
		h.runs[e.RunID].cancelRequested = e.At
	case event.TurnStarted:
		h.turns[turnKey{e.RunID, e.Turn}] = &turnTimes{started: e.At}
	case event.TurnCompleted:
		h.turns[turnKey{e.RunID, e.Turn}].completed = e.At
	case event.AssistantCompleted:
		h.noteMessage(e, p.MessageID)
	case event.AssistantStopped:
		h.noteMessage(e, p.MessageID)
	case event.ToolProposed:
		h.calls[p.CallID] = &callTimes{proposed: e.At}
	case event.ToolStarted:
		h.calls[p.CallID].started = e.At
		h.checkStart(e, p)
	case event.ToolExecuted:
		h.calls[p.CallID].executed = e.At
	case event.ToolBlocked:
		h.calls[p.CallID].blockedBy = p.By
	case event.ApprovalRequested:
		h.noteRequest(e, p)
	case event.ApprovalDecided:
		h.noteAnswer(e, p)
	case event.Emission:
		h.emissions[h.sessionID+"/"+strconv.FormatInt(e.Seq, 10)] = columns{"tenant_id": h.state.TenantID}
	case event.ToolResult:
		h.calls[p.CallID].done = e.At
		h.noteMessage(e, p.MessageID)
	}
}

func (h *history) noteMessage(e event.Event, id string) {
	h.messages[id] = messageTimes{seq: e.Seq, turn: e.Turn, at: e.At}
}

func (h *history) noteEnqueued(id string, enqueued bool) {
	t := h.messages[id]
	t.enqueued = enqueued
	h.messages[id] = t
}

func (h *history) noteFirst(p event.RunCreated) {
	t := h.messages[p.MessageID]
	t.first = p.Policy.First()
	h.messages[p.MessageID] = t
}

// noteReplaced keeps the messages that are about to leave the conversation, or
// the queue.
func (h *history) noteReplaced(e event.Event, p event.MessagesReplaced) {
	if i := slices.IndexFunc(h.state.Enqueued, func(m hooks.Message) bool { return m.ID == p.FromMessageID }); i >= 0 {
		m := h.state.Enqueued[i]
		m.Position = e.Seq
		h.replaced = append(h.replaced, m)
	} else {
		h.replaced = append(h.replaced, h.state.Messages[len(h.state.Messages)-len(p.MessageIDs):]...)
	}
	for _, id := range p.MessageIDs {
		t := h.messages[id]
		t.replaced = e.Seq
		h.messages[id] = t
	}
}

// want returns what the projections of that name have to be.
func (h *history) want(name string) table {
	if h.state.SessionID == "" {
		return nil // there is no session: not one row may name it
	}
	switch name {
	case "sessions":
		return h.wantSession()
	case "runs":
		return h.wantRuns()
	case "turns":
		return h.wantTurns()
	case "messages":
		return h.wantMessages()
	case "approvals":
		return h.approvals
	case "emission_order":
		return h.emissions
	default:
		return h.wantCalls()
	}
}

func (h *history) wantSession() table {
	s := h.state
	r := columns{"tenant_id": s.TenantID, "append_id": h.appendID}
	r.text("external_id", s.ExternalID)
	r.text("title", s.Title)
	r.text("title_search", searchable(s.Title))
	r.text("user_id", s.User)
	r["metadata"] = encodeMetadata(s.Metadata)
	r.time("created_at", h.createdAt)
	r.time("updated_at", h.updatedAt)
	r.time("deleted_at", h.deletedAt)
	r.number("last_seq", s.LastSeq)
	r.number("run_epoch", s.Epoch)
	r.number("ledger_seq", h.ledger.links.seq)
	if h.ledger.links.seq > 0 {
		r["ledger_head"] = h.ledger.links.hash
	}
	return table{s.SessionID: r}
}

func (h *history) wantRuns() table {
	out := table{}
	for _, run := range h.state.Runs {
		t := h.runs[run.ID]
		r := columns{"tenant_id": h.state.TenantID, "status": string(run.Status), "agent": run.Agent}
		r.text("message_id", run.MessageID)
		r.text("assistant_message_id", run.AssistantMessageID)
		r.text("idempotency_key", run.IdempotencyKey)
		r.text("request_sha256", run.RequestSHA256)
		r.text("worker_id", run.WorkerID)
		r.text("hook_set", run.HookSet)
		r.text("cancel_reason", run.CancelReason)
		r.text("reason", run.Reason)
		r.text("error", run.Error)
		r.number("ticket", run.Ticket)
		r.number("epoch", run.Epoch)
		r.number("takeovers", int64(run.Takeovers))
		r.number("created_seq", t.createdSeq)
		r.number("retries", int64(run.Retries))
		if run.EndedSeq != 0 {
			r.number("ended_seq", run.EndedSeq)
		}
		r.time("not_before", orZero(run.NotBefore))
		r.time("cancel_requested_at", t.cancelRequested)
		r.time("created_at", run.CreatedAt)
		r.time("started_at", t.started)
		r.time("ended_at", run.EndedAt)
		out[run.ID] = r
	}
	return out
}

func (h *history) wantTurns() table {
	out := table{}
	for _, run := range h.state.Runs {
		for _, turn := range run.Turns {
			t := h.turns[turnKey{run.ID, turn.No}]
			r := columns{"tenant_id": h.state.TenantID, "status": string(turn.Status)}
			r.text("model", turn.Model)
			r.text("message_id", turn.MessageID)
			r.text("finish_reason", string(turn.Finish))
			r.text("finish_raw", turn.FinishRaw)
			r.number("attempt", int64(turn.Attempt))
			r.number("input_tokens", turn.Usage.InputTokens)
			r.number("output_tokens", turn.Usage.OutputTokens)
			r.number("cost_micros", turn.CostMicros)
			r.time("started_at", t.started)
			r.time("completed_at", t.completed)
			out[run.ID+"/"+strconv.Itoa(turn.No)] = r
		}
	}
	return out
}

func (h *history) wantMessages() table {
	out := table{}
	for _, m := range slices.Concat(h.replaced, h.state.Messages, h.state.Enqueued) {
		out[m.ID] = h.wantMessage(m)
	}
	return out
}

func (h *history) wantMessage(m hooks.Message) columns {
	t := h.messages[m.ID]
	r := columns{"tenant_id": h.state.TenantID, "role": string(m.Role), "partial": strconv.FormatBool(m.Partial)}
	r["parts"] = encodeParts(m.Parts)
	r.text("run_id", m.RunID)
	if t.turn != 0 {
		r.number("turn_no", int64(t.turn))
	}
	if t.enqueued && t.first && t.replaced == 0 {
		m.Position = -m.Position
	}
	r.number("position", m.Position)
	r.number("seq", t.seq)
	if t.replaced != 0 {
		r.number("replaced_seq", t.replaced)
	}
	r["enqueued"] = strconv.FormatBool(t.enqueued)
	r.time("created_at", t.at)
	return r
}

func (h *history) wantCalls() table {
	out := table{}
	for _, run := range h.state.Runs {
		for _, turn := range run.Turns {
			for _, call := range turn.Calls {
				r := h.wantCall(call)
				r["run_id"] = run.ID
				r.number("turn_no", int64(turn.No))
				out[call.ID] = r
			}
		}
	}
	return out
}

func (h *history) wantCall(call loop.Call) columns {
	t := h.calls[call.ID]
	r := columns{"tenant_id": h.state.TenantID, "name": call.Name, "arguments": call.Arguments, "status": string(call.Status)}
	r.text("provider_call_id", call.ProviderID)
	r.text("approval_id", call.ApprovalID)
	r.text("blocked_by", t.blockedBy)
	if call.Final != nil {
		r["final_arguments"] = *call.Final
	}
	r.number("call_no", int64(call.Number))
	r.number("attempt", int64(call.Attempt))
	r.number("position", call.Position)
	if !t.executed.IsZero() {
		r["success"], r["output_sha256"] = strconv.FormatBool(call.Success), call.SHA256
		r.number("output_bytes", call.Bytes)
	}
	if call.Status == loop.CallDone {
		r["is_error"] = strconv.FormatBool(call.IsError)
		r.text("result_reason", string(call.Reason))
		r.text("result_message_id", call.ResultMessageID)
	}
	r.time("proposed_at", t.proposed)
	r.time("started_at", t.started)
	r.time("executed_at", t.executed)
	r.time("done_at", t.done)
	return r
}

// text leaves out "", which is stored as NULL.
func (c columns) text(name, value string) {
	if value != "" {
		c[name] = value
	}
}

func (c columns) number(name string, value int64) { c[name] = strconv.FormatInt(value, 10) }

// time leaves out the zero time, and writes as utc does.
func (c columns) time(name string, value time.Time) {
	if !value.IsZero() {
		c[name] = value.UTC().Format("2006-01-02 15:04:05.000000")
	}
}
