package sim

import (
	"regexp"
	"slices"
	"strings"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// checkAppend asks what has to hold of each append that was written: was is the
// state before it.
func (w *world) checkAppend(a *actor, was loop.State, s *session, app loop.Append, epoch int64, events []event.Event) {
	if a.worker != "" {
		w.checkLease(a, was, epoch, events)
	}
	if found := s.audit.Found(); len(found) > 0 {
		w.violated("log: "+string(found[0].Rule), "%s", found[0])
		return
	}
	w.checkTogether(app, events)
}

// checkLease: who writes under a lease has it.
func (w *world) checkLease(a *actor, was loop.State, epoch int64, events []event.Event) {
	r, _ := was.Run(a.job.RunID)
	if epoch != 0 && (was.Epoch != epoch || r.Status != loop.RunRunning || r.WorkerID != a.worker) {
		w.violated("zombie", "%s writes %s under epoch %d, and the session is at %d: %s has the run, which is %s",
			a.name, told(events), epoch, was.Epoch, r.WorkerID, r.Status)
	}
	if t := events[0].Type; epoch == 0 && t != event.TypeRunStarted && t != event.TypeRunResumed {
		w.violated("zombie", "%s writes %s without a lease", a.name, told(events))
	}
}

// checkTogether: what follows from a decision is written with it, and what a
// shadow says leads to nothing.
func (w *world) checkTogether(app loop.Append, events []event.Event) {
	has := func(g hooks.Gate, subject string, attempt int, said []hooks.Action) bool {
		return slices.ContainsFunc(app.Ledger, func(r loop.LedgerRow) bool {
			return !r.Shadow() && r.Gate == g && (subject == "" || r.Subject == subject) && (attempt == 0 || r.Attempt == attempt) &&
				(said == nil || slices.Contains(said, r.Action))
		})
	}
	for _, e := range events {
		p, err := event.Decode(e)
		if err != nil {
			w.violated("codec", "%v", err)
			return
		}
		if !w.checkObserved(app, e, p) {
			return
		}
		if p, ok := p.(event.ToolsNarrowed); ok && p.DecisionID != "" && !slices.ContainsFunc(app.Ledger, func(r loop.LedgerRow) bool { return r.ID == p.DecisionID && !r.Shadow() }) {
			w.violated("decision", "%s is written without the decision %s", e.Type, p.DecisionID)
		}
		var gate hooks.Gate
		var subject string
		var said []hooks.Action // nil is whatever it is
		attempt := 0
		switch p := p.(type) {
		case event.InputBlocked:
			gate, subject, said = hooks.GateBeforeInput, p.InputID, []hooks.Action{hooks.ActionBlock}
		case event.InputHandled:
			gate, subject, said = hooks.GateBeforeInput, p.InputID, []hooks.Action{hooks.ActionHandled}
		case event.RunPrepared:
			gate, subject, said = hooks.GateBeforeRunStart, e.RunID, []hooks.Action{hooks.ActionTransform}
		case event.ModelRequested:
			gate, attempt = hooks.GateTransformContext, p.Attempt
		case event.ToolStarted:
			gate, subject, attempt = hooks.GateBeforeExecute, p.CallID, p.Attempt
		case event.ToolBlocked:
			gate, subject, said = hooks.Gate(p.By), p.CallID, []hooks.Action{hooks.ActionBlock, hooks.ActionTerminate, hooks.ActionAsk}
		case event.ApprovalRequested:
			gate, subject, said = hooks.Gate(p.By), p.CallID, []hooks.Action{hooks.ActionAsk, hooks.ActionTransform}
		case event.ToolResult:
			if r := p.Reason; r == "" || r == hooks.ReasonToolError || r == hooks.ReasonWithheld {
				gate, subject = hooks.GateAfterToolCall, p.CallID
			}
		}
		if _, asked := w.script.gates[gate]; asked && !has(gate, subject, attempt, said) {
			w.violated("decision", "%s is written without what %s said of it", e.Type, gate)
		}
	}
}

// checkObserved: what observers did in an attempt is written with its end, and a
// stop with the answer that it cut off.
func (w *world) checkObserved(app loop.Append, e event.Event, p event.Payload) bool {
	if !w.script.observing.any() {
		return true
	}
	has := func(g hooks.Gate, attempt int) bool {
		return slices.ContainsFunc(app.Ledger, func(r loop.LedgerRow) bool { return r.Gate == g && r.Attempt == attempt && r.RunID == e.RunID })
	}
	missing := false
	switch p := p.(type) {
	case event.AssistantCompleted:
		missing = !has(hooks.GateOnEnd, p.Attempt)
	case event.AssistantStopped:
		missing = p.Observer != "" && (!has(hooks.GateOnEnd, p.Attempt) || !has(hooks.GateOnChunk, p.Attempt))
	}
	if missing {
		w.violated("decision", "%s is written without what observers did", e.Type)
	}
	return !missing
}

// modelCalled: a request is valid, was announced, and is made once; an answer
// that is there is not asked for again.
func (w *world) modelCalled(a *actor, req loop.ModelRequest) {
	if err := looptest.CheckRequest(req); err != nil {
		w.violated("request", "turn %d of %s: %v", req.Turn, req.RunID, err)
	}
	name := tag(req.RunID, req.Turn, req.Attempt)
	if w.modelled[name] {
		w.violated("model", "the model is called twice for %s", name)
	}
	w.modelled[name] = true
	announced, void := false, []string{}
	for _, e := range w.sessions[req.SessionID].events {
		if e.RunID != req.RunID {
			continue
		}
		p, err := event.Decode(e)
		if err != nil {
			continue
		}
		switch p := p.(type) {
		case event.ModelRequested:
			announced = announced || e.Turn == req.Turn && p.Attempt == req.Attempt
		case event.AssistantCompleted:
			if e.Turn == req.Turn && p.Attempt < req.Attempt {
				w.violated("model", "turn %d of %s is answered, and the model is called again", req.Turn, req.RunID)
			}
		case event.AssistantStopped:
			if e.Turn == req.Turn && p.Attempt < req.Attempt {
				w.violated("model", "the answer of turn %d of %s is stopped, and the model is called again", req.Turn, req.RunID)
			}
		case event.AssistantDiscarded:
			void = append(void, tag(e.RunID, e.Turn, p.Attempt))
		}
	}
	if !announced {
		w.violated("model", "the model is called for %s, which the log does not announce", name)
	}
	for _, m := range req.Messages {
		for _, v := range void {
			if strings.Contains(m.Text(), v) {
				w.violated("text", "the model is sent %s, which was discarded", v)
			}
		}
	}
}

// toolEntered: a tool is entered only for a start that is in the log, by who had
// the run when it last heard of the log, and takes effect once.
func (w *world) toolEntered(a *actor, name string, idempotent, held bool, in loop.ToolInput) {
	started, again := false, 0
	for _, e := range w.sessions[in.SessionID].events {
		if e.Type != event.TypeToolStarted && e.Type != event.TypeApprovalDecided {
			continue
		}
		p, err := event.Decode(e)
		if err != nil {
			continue
		}
		switch p := p.(type) {
		case event.ToolStarted:
			started = started || p.CallID == in.CallID && p.Attempt == in.Attempt
		case event.ApprovalDecided:
			if p.CallID == in.CallID && p.Decision == event.DecisionDidNotHappen {
				again++
			}
		}
	}
	if !started {
		w.violated("entry", "%s enters %s for attempt %d of call %s, and the log has no such start", a.name, name, in.Attempt, in.CallID)
	}
	if !held {
		w.violated("entry", "%s enters %s for call %s, and had lost the run by what the log told it last", a.name, name, in.CallID)
	}
	w.effects[in.CallID] = append(w.effects[in.CallID], effect{a.worker, in.Attempt})
	if n := len(w.effects[in.CallID]); !idempotent && n > 1 {
		w.violated("effect", "%s took effect %d times for call %s: %v", name, n, in.CallID, w.effects[in.CallID])
	}
	w.say("%s takes effect, for %s", name, in.CallID)
}

// hookAsked: what was recorded is not asked again by anybody who knows.
func (w *world) hookAsked(a *actor, g hooks.Gate, id string, known int64) {
	for _, s := range w.sessions {
		if at, ok := s.recorded[id]; ok && at <= known {
			w.violated("asked", "%s asks %s again for decision %s, which was recorded with event %d, and it has read to %d", a.name, g, id, at, known)
		}
	}
}

// runEnded counts calls of OnRunEnd.
func (w *world) runEnded(in hooks.RunEnd) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runEnds[in.RunID]++
}

var anyTag = regexp.MustCompile(`\[[^ \]]+\.\d+\.\d+\]`)

// finalChecks are those of the whole log.
func (w *world) finalChecks() {
	for _, id := range w.ids {
		s := w.sessions[id]
		if found := s.audit.Finish(s.state); len(found) > 0 {
			w.violated("log: "+string(found[0].Rule), "%s", found[0])
		}
		if err := looptest.CheckLedger(s.events, w.log.Ledger(id)); err != nil {
			w.violated("ledger", "%v", err)
		}
		w.checkTexts(s)
		w.checkRuns(s)
	}
	w.checkMessages()
}

// checkTexts: a message has text of its own attempt and of no other.
func (w *world) checkTexts(s *session) {
	for _, e := range s.events {
		var parts []hooks.Part
		attempt := 0
		p, _ := event.Decode(e)
		switch p := p.(type) {
		case event.AssistantCompleted:
			parts, attempt = p.Parts, p.Attempt
		case event.AssistantStopped:
			parts, attempt = p.Parts, p.Attempt
		}
		for _, part := range parts {
			for _, t := range anyTag.FindAllString(part.Text, -1) {
				if t != tag(e.RunID, e.Turn, attempt) {
					w.violated("text", "attempt %d of turn %d of %s says %s", attempt, e.Turn, e.RunID, t)
				}
			}
		}
	}
}

// checkRuns: what was told of runs is what became of them.
func (w *world) checkRuns(s *session) {
	w.stats.Runs += len(s.state.Runs)
	for _, r := range s.state.Runs {
		if retries, ok := w.client.cancelled[r.ID]; ok && r.Retries == retries && r.Status == loop.RunCompleted {
			w.violated("cancel", "the cancel of run %s was accepted, and it is %s", r.ID, r.Status)
		}
		if n := w.runEnds[r.ID]; n > 1+r.Retries {
			w.violated("end", "OnRunEnd was called %d times for %s, which was retried %d times", n, r.ID, r.Retries)
		}
		w.checkStops(r)
		for _, t := range r.Turns {
			for _, c := range t.Calls {
				w.checkOutcome(r, c)
			}
		}
	}
}

// checkStops: a run is asked again once, and falls back as often as there are
// models.
func (w *world) checkStops(r loop.Run) {
	again := map[stream.StopPolicy]int{}
	for _, t := range r.Turns {
		if t.Stop != nil {
			again[t.Stop.Policy]++
		}
	}
	if again[stream.StopRetry] > 1 || again[stream.StopFallback] > w.script.observing.fallbacks {
		w.violated("stop", "run %s has %v", r.ID, again)
	}
}

// checkOutcome: a call of which the log says that it ran did run, and one that
// took effect is not said to have been left out.
func (w *world) checkOutcome(r loop.Run, c loop.Call) {
	took := len(w.effects[c.ID]) > 0
	switch c.Reason {
	case "", hooks.ReasonWithheld, hooks.ReasonOutputLost:
		if !took && r.Status.Terminal() {
			w.violated("outcome", "call %s has an output, and the tool was never entered", c.ID)
		}
	case hooks.ReasonUnknownTool, hooks.ReasonInvalidArguments, hooks.ReasonDenied, hooks.ReasonExpired, hooks.ReasonNotRun, hooks.ReasonLimit, hooks.ReasonCancelled:
		if took {
			w.violated("outcome", "call %s took effect, and its result is %s", c.ID, c.Reason)
		}
	case hooks.ReasonToolError, hooks.ReasonOutcomeUnknown, hooks.ReasonBlocked, hooks.ReasonConfirmed:
	}
}

// checkMessages: a message that was accepted is there once, one with a key at
// most once, and nothing is there that nobody sent.
func (w *world) checkMessages() {
	keyed, all, sent := map[string]int{}, 0, 0
	for _, id := range w.ids {
		for _, e := range w.sessions[id].events {
			if p, _ := event.Decode(e); e.Type == event.TypeRunCreated {
				all++
				if q, ok := p.(event.RunCreated); ok && q.IdempotencyKey != "" {
					keyed[q.IdempotencyKey]++
				}
			}
		}
	}
	for _, m := range w.client.messages {
		n := keyed[m.IdempotencyKey]
		started := slices.ContainsFunc(m.answers, func(a loop.StartedRun) bool { return a.RunID != "" })
		if m.IdempotencyKey != "" && (n > 1 || started && n != 1) {
			w.violated("accepted", "message %s with the key %q was sent %d times, accepted: %t, and has %d runs", m.name, m.IdempotencyKey, m.sent, started, n)
		}
		if sent += m.sent; m.IdempotencyKey != "" {
			sent -= m.sent - 1
		}
	}
	if all > sent {
		w.violated("accepted", "%d runs were made of %d messages", all, sent)
	}
}
