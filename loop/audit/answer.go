package audit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// answer is what an attempt has shown, and then the calls of its message that
// have yet to be proposed.
type answer struct {
	firstSeq int64
	blocks   []loop.PartialBlock
	// cut says that deltas of it may be missing.
	cut   bool
	calls []hooks.ToolCall
	asked int
}

func (a *Auditor) shown(e event.Event, p event.AssistantDelta) {
	w := &a.answer
	if w.firstSeq == 0 {
		w.firstSeq = e.Seq
	}
	i := slices.IndexFunc(w.blocks, func(b loop.PartialBlock) bool { return b.Lane == p.Lane && b.BlockID == p.BlockID })
	if i < 0 {
		w.blocks = append(w.blocks, loop.PartialBlock{Lane: p.Lane, BlockID: p.BlockID})
		i = len(w.blocks) - 1
	}
	w.blocks[i].Text += p.Text
}

func (a *Auditor) completed(e event.Event, p event.AssistantCompleted) {
	a.message(e, p.MessageID)
	a.sameText(e, p.Parts, p.FirstSeq)
	a.answer = answer{}
	for _, part := range p.Parts {
		if part.ToolCall != nil {
			a.answer.calls = append(a.answer.calls, *part.ToolCall)
		}
	}
}

func (a *Auditor) stopped(e event.Event, p event.AssistantStopped) {
	if p.MessageID != "" {
		a.message(e, p.MessageID)
	}
	if (p.MessageID == "") != (len(p.Parts) == 0) {
		a.find(RuleAnswer, e, fmt.Sprintf("message %q has %d parts", p.MessageID, len(p.Parts)))
	}
	if p.Notice != nil {
		a.message(e, p.Notice.MessageID)
	}
	a.sameText(e, p.Parts, p.FirstSeq)
	a.answer = answer{}
}

// sameText compares a message with what its attempt showed, block by block.
func (a *Auditor) sameText(e event.Event, parts []hooks.Part, firstSeq int64) {
	w := a.answer
	if w.cut {
		return // retention was here
	}
	if firstSeq != w.firstSeq {
		a.find(RuleAnswer, e, fmt.Sprintf("it says that its first delta is %d, and that is %d", firstSeq, w.firstSeq))
	}
	var stored []loop.PartialBlock
	for _, p := range parts {
		switch p.Type {
		case hooks.PartText:
			stored = append(stored, loop.PartialBlock{Lane: stream.LaneText, Text: p.Text})
		case hooks.PartReasoning:
			stored = append(stored, loop.PartialBlock{Lane: stream.LaneReasoning, Text: p.Text})
		case hooks.PartToolCall, hooks.PartToolResult:
		}
	}
	if !slices.EqualFunc(stored, w.blocks, func(s, b loop.PartialBlock) bool { return s.Lane == b.Lane && s.Text == b.Text }) {
		a.find(RuleAnswer, e, fmt.Sprintf("its %d texts are not the %d that its deltas add up to", len(stored), len(w.blocks)))
	}
}

// proposals: the calls of an answer follow it at once, in its order.
func (a *Auditor) proposals(e event.Event, p event.Payload) {
	w := &a.answer
	q, ok := p.(event.ToolProposed)
	if !ok {
		if e.Type != event.TypeAssistantCompleted && len(w.calls) > 0 {
			a.find(RuleAnswer, e, fmt.Sprintf("%d calls of the answer were not proposed", len(w.calls)))
			w.calls = nil
		}
		return
	}
	if len(w.calls) == 0 {
		a.find(RuleAnswer, e, "the answer has no such call")
		return
	}
	want := w.calls[0]
	w.calls, w.asked = w.calls[1:], w.asked+1
	if q.CallID != want.ID || q.Name != want.Name || q.Arguments != want.Arguments || q.Number != w.asked {
		a.find(RuleAnswer, e, fmt.Sprintf("call %d of the answer is another one", w.asked))
	}
}

// requested: a model is sent what was said, as it stands. Where hooks changed
// that, the event has all of it.
func (a *Auditor) requested(before loop.State, e event.Event, p event.ModelRequested) {
	r, _ := before.Run(e.RunID)
	sent := conversation(before, r)
	ids := []string{}
	if p.Messages != nil {
		sent = p.Messages
	}
	for _, m := range sent {
		ids = append(ids, m.ID)
	}
	if !slices.Equal(ids, p.MessageIDs) {
		a.find(RuleRequest, e, "it names other messages than the conversation has")
	}
	if problem := unpaired(sent); problem != "" {
		a.find(RuleRequest, e, problem)
	}
	a.answer = answer{}
}

// conversation is what a model is sent for a run: the messages that say
// something, those that hooks added, behind the one that is answered, and what it
// is told of answers that observers have stopped, behind those.
func conversation(s loop.State, r loop.Run) []hooks.Message {
	var out []hooks.Message
	at := -1
	for _, m := range s.Messages {
		if !says(m) {
			continue
		}
		out = append(out, m)
		if m.ID == r.MessageID {
			at = len(out)
		}
	}
	for _, n := range r.Notices() {
		behind := len(out)
		for behind > 0 && out[behind-1].Position > n.Position {
			behind--
		}
		out = slices.Insert(out, behind, n)
	}
	if r.Prepared == nil {
		return out
	}
	if at < 0 {
		at = len(out)
	}
	for i, p := range r.Prepared.Messages {
		out = slices.Insert(out, at+i, hooks.Message{ID: p.MessageID, Role: p.Role})
	}
	return out
}

func says(m hooks.Message) bool {
	return slices.ContainsFunc(m.Parts, func(p hooks.Part) bool {
		return p.ToolCall != nil || p.ToolResult != nil || p.Type == hooks.PartText && strings.TrimSpace(p.Text) != ""
	})
}

// unpaired says which call is not followed at once by its one result, in call
// order.
func unpaired(messages []hooks.Message) string {
	var open []string
	for _, m := range messages {
		if m.Role != hooks.RoleTool && len(open) > 0 {
			return fmt.Sprintf("message %s stands where the result of call %s is missing", m.ID, open[0])
		}
		for _, p := range m.Parts {
			switch {
			case p.ToolCall != nil:
				open = append(open, p.ToolCall.ID)
			case p.ToolResult != nil && (len(open) == 0 || open[0] != p.ToolResult.CallID):
				return fmt.Sprintf("message %s has a result for call %s, whose turn it is not", m.ID, p.ToolResult.CallID)
			case p.ToolResult != nil:
				open = open[1:]
			}
		}
	}
	if len(open) > 0 {
		return "call " + open[0] + " has no result"
	}
	return ""
}
