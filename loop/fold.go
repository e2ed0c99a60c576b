package loop

import (
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// Fold returns the state after e. It is pure: s is not changed, and the same
// input gives the same output. It is total: an event that the transition
// tables refuse, or that this binary cannot read, changes nothing but
// LastSeq.
func Fold(s State, e event.Event) State {
	if p, err := event.Decode(e); err == nil && allows(s, e, p) == nil {
		return s.after(e, p)
	}
	s.LastSeq = max(s.LastSeq, e.Seq)
	return s
}

// after is [Fold] for an event that is allowed and decoded to p.
func (s State) after(e event.Event, p event.Payload) State {
	s = apply(s, e, p)
	s.LastSeq = max(s.LastSeq, e.Seq)
	return s
}

// FoldAll folds events in order.
func FoldAll(s State, events []event.Event) State {
	for _, e := range events {
		s = Fold(s, e)
	}
	return s
}

func apply(s State, e event.Event, p event.Payload) State {
	switch p := p.(type) {
	case event.Unknown, event.InputHandled, event.InputBlocked, event.InputRejected:
		return s
	case event.SessionCreated:
		s.SessionID, s.TenantID, s.ExternalID = e.SessionID, p.TenantID, p.ExternalID
		s.Title, s.User = p.Title, p.User
		if len(p.Metadata) > 0 {
			s.Metadata = p.Metadata
		}
		return s
	case event.SessionUpdated:
		return s.updated(p)
	case event.SessionDeleted:
		s.Deleted = true
		return s
	case event.MessageCreated:
		m := hooks.Message{ID: p.MessageID, RunID: e.RunID, Role: p.Role, Parts: p.Parts, Position: e.Seq}
		if p.Enqueued {
			s.Enqueued = append(slices.Clip(s.Enqueued), m)
			return s
		}
		return s.withMessage(m)
	case event.MessagesReplaced:
		return s.withoutTail(p)
	case event.RunCreated:
		at := len(s.Runs)
		if next := s.nextIndex(); next >= 0 && p.Policy.First() {
			at = next
		}
		s.Runs = slices.Insert(slices.Clip(s.Runs), at, Run{ID: e.RunID, CreatedAt: e.At})
	case event.RunQueued:
		s = s.begun(e)
	case event.RunStarted:
		s.Epoch = p.Epoch
	case event.RunResumed:
		s.Epoch = p.Epoch
	case event.RunReleased:
		s.Epoch = p.Epoch
	case event.AssistantCompleted:
		s = s.withMessage(hooks.Message{ID: p.MessageID, RunID: e.RunID, Role: hooks.RoleAssistant, Parts: p.Parts, Position: e.Seq})
	case event.AssistantStopped:
		if p.MessageID != "" {
			s = s.withMessage(hooks.Message{
				ID: p.MessageID, RunID: e.RunID, Role: hooks.RoleAssistant, Parts: p.Parts, Partial: true, Position: e.Seq,
			})
		}
	case event.ToolResult:
		s = s.withResult(e, p)
	}
	i := s.runIndex(e.RunID)
	if i < 0 {
		return s
	}
	s.Runs = slices.Clone(s.Runs)
	s.Runs[i] = s.Runs[i].apply(e, p)
	return s
}

// updated merges p in.
func (s State) updated(p event.SessionUpdated) State {
	if p.Title != nil {
		s.Title = *p.Title
	}
	if len(p.Metadata) > 0 {
		s.Metadata = merge(s.Metadata, p.Metadata)
	}
	return s
}

// merge returns old with patch applied; nil for nothing.
func merge(old map[string]string, patch map[string]*string) map[string]string {
	out := maps.Clone(old)
	if out == nil {
		out = map[string]string{}
	}
	for k, v := range patch {
		if v == nil {
			delete(out, k)
		} else {
			out[k] = *v
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// withMessage inserts m in order of position, which is at the end but for a
// result that finished out of call order.
func (s State) withMessage(m hooks.Message) State {
	at := sort.Search(len(s.Messages), func(i int) bool { return s.Messages[i].Position > m.Position })
	s.Messages = slices.Insert(slices.Clip(s.Messages), at, m)
	return s
}

func (s State) withResult(e event.Event, p event.ToolResult) State {
	r, _ := s.Run(e.RunID)
	t, _ := r.Turn()
	i := t.callIndex(p.CallID)
	if i < 0 {
		return s
	}
	return s.withMessage(hooks.Message{
		ID: p.MessageID, RunID: e.RunID, Role: hooks.RoleTool, Position: t.Calls[i].Position,
		Parts: []hooks.Part{{Type: hooks.PartToolResult, ToolResult: &hooks.ToolResult{
			CallID: p.CallID, Content: p.Content, IsError: p.IsError, Reason: p.Reason,
		}}},
	})
}

func (r Run) apply(e event.Event, p event.Payload) Run {
	r.Status = runTransitions[r.Status][e.Type]
	switch p := p.(type) {
	case event.RunCreated:
		r.Agent, r.MessageID, r.AssistantMessageID = p.Agent, p.MessageID, p.AssistantMessageID
		r.IdempotencyKey, r.RequestSHA256 = p.IdempotencyKey, p.RequestSHA256
	case event.RunQueued:
		r.Ticket, r.NotBefore, r.QueuedFor = p.Ticket, nil, p.Cause
		if p.Cause == event.QueuedForRetry {
			r = r.retried()
		}
	case event.RunStarted:
		r.WorkerID, r.Epoch, r.Started, r.NotBefore, r.HookSet = p.WorkerID, p.Epoch, true, nil, p.HookSet
		r.HeldSince, r.Retrying = e.At, false
	case event.RunResumed:
		r.WorkerID, r.Epoch, r.NotBefore, r.HookSet = p.WorkerID, p.Epoch, nil, p.HookSet
		r.HeldSince, r.Retrying = e.At, false
	case event.RunPrepared:
		r.Prepared = &p
	case event.ToolsNarrowed:
		r.Narrowed = r.narrowed(e.Turn, p.Tools)
	case event.RunSuspended:
		r.WorkerID, r.ReleasedFor = "", ""
		r = r.letGo(e.At)
	case event.RunReleased:
		r.WorkerID, r.Epoch, r.Ticket, r.NotBefore = "", p.Epoch, p.Ticket, p.NotBefore
		r.ReleasedFor = p.Cause
		r = r.letGo(e.At)
		if p.Cause == event.ReleaseWorkerDead {
			r.Takeovers++
		}
	case event.RunCancelRequested:
		r.CancelRequested = true
		r.CancelReason = p.Reason
		r.RolledBack = r.RolledBack || p.Rollback
	case event.RunCompleted:
		return r.ended(e, string(p.Reason), "")
	case event.RunFailed:
		return r.ended(e, string(p.Reason), p.Error)
	case event.RunCancelled:
		return r.ended(e, p.Reason, "")
	case event.TurnStarted:
		r.Turns = append(slices.Clip(r.Turns), Turn{No: e.Turn, Status: TurnOpen})
	case event.AssistantCompleted, event.ToolExecuted:
		r.Takeovers = 0
	}
	if ofTurn(e.Type) && e.Type != event.TypeTurnStarted && len(r.Turns) > 0 {
		r.Turns = slices.Clone(r.Turns)
		r.Turns[len(r.Turns)-1] = r.Turns[len(r.Turns)-1].apply(e, p)
	}
	return r
}

// letGo ends a lease. Clocks that disagree never make the time shorter.
func (r Run) letGo(at time.Time) Run {
	if !r.HeldSince.IsZero() {
		r.Held += max(0, at.Sub(r.HeldSince))
	}
	r.HeldSince = time.Time{}
	return r
}

func (r Run) ended(e event.Event, reason, text string) Run {
	r.WorkerID, r.Reason, r.Error, r.NotBefore = "", reason, text, nil
	r.EndedAt, r.EndedSeq = e.At, e.Seq
	return r.letGo(e.At)
}

// retried is the run as if it had not failed. What was cut off then stays cut
// off, and a cancel that came too late is over.
func (r Run) retried() Run {
	r.Retries++
	r.Retrying, r.RetriedFrom = true, r.EndedSeq
	r.Reason, r.Error, r.EndedAt, r.EndedSeq = "", "", time.Time{}, 0
	r.Takeovers, r.ReleasedFor, r.CancelRequested, r.CancelReason = 0, "", false, ""
	if t, ok := r.Turn(); ok {
		t.Superseded, t.Failed = t.Status == TurnStopped, 0
		r.Turns = slices.Clone(r.Turns)
		r.Turns[len(r.Turns)-1] = t
	}
	return r
}

func (t Turn) apply(e event.Event, p event.Payload) Turn {
	t.Status = turnTransitions[t.Status][e.Type]
	switch p := p.(type) {
	case event.ModelRequested:
		t.Attempt, t.Model, t.Shown, t.FirstSeq, t.RetryAt = p.Attempt, p.Model, nil, 0, nil
	case event.AssistantDelta:
		if t.FirstSeq == 0 {
			t.FirstSeq = e.Seq
		}
		t.Shown = t.Shown.with(p)
	case event.AssistantDiscarded:
		t.Shown, t.FirstSeq = nil, 0
		if p.Reason != discardInterrupted {
			t.Failed++
			t.RetryAt = p.RetryAt
		}
		t = t.used(p.Usage, p.Cost)
	case event.AssistantCompleted:
		t.MessageID, t.Finish, t.FinishRaw = p.MessageID, p.Finish, p.FinishRaw
		t.Shown, t.FirstSeq = nil, 0
		t.Unreported = p.Usage == stream.Usage{}
		t = t.used(&p.Usage, p.Cost)
	case event.AssistantStopped:
		t.MessageID = p.MessageID
		t.Shown, t.FirstSeq = nil, 0
		t.Stop = stopOf(e, p)
		t = t.used(p.Usage, p.Cost)
	case event.ToolProposed:
		t.Calls = append(slices.Clip(t.Calls), Call{
			ToolCall: hooks.ToolCall{ID: p.CallID, ProviderID: p.ProviderCallID, Name: p.Name, Arguments: p.Arguments},
			Number:   p.Number, Position: e.Seq, Status: CallProposed,
		})
	}
	if id, ok := callID(p); ok && e.Type != event.TypeToolProposed {
		if i := t.callIndex(id); i >= 0 {
			t.Calls = slices.Clone(t.Calls)
			t.Calls[i] = t.Calls[i].apply(e, p)
		}
	}
	return t
}

func (c Call) apply(e event.Event, p event.Payload) Call {
	c.Status = callTransitions[c.Status][e.Type]
	switch p := p.(type) {
	case event.ApprovalRequested:
		if c.ApprovalID != "" {
			c.Earlier = append(slices.Clip(c.Earlier), c.Question)
		}
		c.Question = Question{ApprovalID: p.ApprovalID, Asked: p.Kind, ArgumentsSHA256: p.ArgumentsSHA256, Approvers: p.Approvers}
		c.DecisionReason = ""
		c = c.with(p.Arguments)
	case event.ApprovalDecided:
		c.Decision, c.DecisionReason, c.DecidedBy, c.DecidedAt = p.Decision, p.Reason, e.Actor, e.At
		c.Status = StatusAfter(p.Decision)
		if c.Status == CallEdited {
			c.EditedSHA256 = p.EditedSHA256
			c.Edits++
			c = c.with(*p.EditedArguments)
		}
	case event.ToolStarted:
		c.Attempt = p.Attempt
		if p.Arguments != nil {
			c.Final = p.Arguments
		}
	case event.ToolExecuted:
		c.Success, c.SHA256, c.Bytes = p.Success, p.SHA256, p.Bytes
	case event.ToolResult:
		c.IsError, c.Reason, c.ResultMessageID = p.IsError, p.Reason, p.MessageID
	}
	return c
}

// with is the call with these arguments, if they are not what the model wrote.
func (c Call) with(arguments string) Call {
	c.Final = nil
	if arguments != c.Arguments {
		c.Final = &arguments
	}
	return c
}

// shownParts turns what was shown of an answer into message parts.
func shownParts(blocks []PartialBlock) []hooks.Part {
	out := []hooks.Part{}
	for _, b := range blocks {
		t := hooks.PartText
		if b.Lane == stream.LaneReasoning {
			t = hooks.PartReasoning
		}
		if b.Text != "" {
			out = append(out, hooks.Part{Type: t, Text: b.Text})
		}
	}
	return out
}
