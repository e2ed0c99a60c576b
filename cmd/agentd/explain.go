package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/seed-2ca4966b/agentd/api/client"
	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

type explainCmd struct {
	clientFlags `set:"patience=5s"`

	ID  string `arg:"" name:"run" help:"The run's id."`
	All bool   `help:"Give each hook that had no objection a line of its own."`
}

// Run tells what happened in a run, with what was decided at each gate right
// before what followed from it, and the text of what decided.
func (cmd explainCmd) Run(ctx context.Context, streams *std) error {
	c, err := cmd.telling(streams.err)
	if err != nil {
		return err
	}
	run, err := c.GetRun(ctx, cmd.ID)
	if err != nil {
		return err
	}
	events, err := eventsOfRun(ctx, c, run)
	if err != nil {
		return err
	}
	all, err := decisions(ctx, c, run.GetSessionId())
	if err != nil {
		return err
	}
	all.list = aboutRun(all.list, run, events)
	return explain(streams.out, run, events, all, cmd.All)
}

// eventsOfRun are the events of a run without its deltas, as far as it is.
func eventsOfRun(ctx context.Context, c *client.Client, run *agentdv1.Run) ([]*agentdv1.Event, error) {
	var list []*agentdv1.Event
	for e, err := range c.Events(ctx, &agentdv1.ListEventsRequest{SessionId: run.GetSessionId(), PageSize: 500}) {
		if err != nil {
			return nil, err
		}
		if e.GetRunId() == run.GetId() && event.Type(e.GetType()) != event.TypeAssistantDelta {
			list = append(list, e)
		}
	}
	return list, nil
}

// story is a gate and what followed from what was decided there.
type story struct {
	decisions []*agentdv1.Decision
	// followed are the seqs of events, in order.
	followed []uint64
}

// at is the seq before which the story is told.
func (s story) at() uint64 {
	if len(s.followed) > 0 {
		return s.followed[0]
	}
	return s.decisions[0].GetEventSeq() + 1
}

// stories groups decisions, which are in the order of the ledger, by gate.
func stories(events []*agentdv1.Event, decisions []*agentdv1.Decision) []story {
	var list []story
	for _, d := range decisions {
		if n := len(list); n > 0 && samePosition(list[n-1].decisions[0], d) {
			list[n-1].decisions = append(list[n-1].decisions, d)
			continue
		}
		list = append(list, story{decisions: []*agentdv1.Decision{d}, followed: followed(events, d)})
	}
	return list
}

func samePosition(a, b *agentdv1.Decision) bool {
	return a.GetGate() == b.GetGate() && a.GetSubject() == b.GetSubject() && a.GetTurn() == b.GetTurn() && a.GetAttempt() == b.GetAttempt()
}

const (
	afterResponse = "AfterProviderResponse"
	// The gates of observers: all that one did in a model call, and that it stopped
	// the answer.
	onEnd, onChunk = "OnEnd", "OnChunk"
)

// outcomes are the events that follow from the gates.
var outcomes = map[string][]event.Type{
	"BeforeInput":           {event.TypeMessageCreated, event.TypeRunCreated, event.TypeRunQueued},
	"BeforeRunStart":        {event.TypeRunPrepared, event.TypeTurnStarted, event.TypeRunFailed},
	"TransformContext":      {event.TypeModelRequested, event.TypeRunFailed},
	"BeforeProviderHeaders": {event.TypeModelRequested, event.TypeRunFailed},
	"BeforeProviderRequest": {event.TypeModelRequested, event.TypeRunFailed},
	// What the answer comes to may be stored later than the decision.
	afterResponse:    {event.TypeAssistantCompleted, event.TypeToolProposed, event.TypeAssistantDiscarded, event.TypeAssistantStopped, event.TypeRunFailed},
	onEnd:            {event.TypeAssistantCompleted, event.TypeToolProposed, event.TypeAssistantDiscarded, event.TypeAssistantStopped},
	onChunk:          {event.TypeAssistantStopped},
	"BeforeToolCall": {event.TypeToolBlocked, event.TypeToolResult, event.TypeApprovalRequested, event.TypeToolStarted},
	"BeforeExecute":  {event.TypeToolBlocked, event.TypeToolResult, event.TypeToolStarted},
	"AfterToolCall":  {event.TypeToolResult},
}

// followed finds the last of those events that were stored by the time of the
// decision and are about its subject, and what belongs to it.
func followed(events []*agentdv1.Event, d *agentdv1.Decision) []uint64 {
	var seqs []uint64
	for _, e := range slices.Backward(events) {
		switch {
		case e.GetSeq() > d.GetEventSeq():
		case event.Type(e.GetType()) == event.TypeToolsNarrowed:
			if narrowedBy(e) == d.GetId() {
				seqs = append([]uint64{e.GetSeq()}, seqs...)
			}
		case ofAnswer(d) && event.Type(e.GetType()) == event.TypeModelRequested:
			return seqs // what is before that is of other answers
		case slices.Contains(outcomes[d.GetGate()], event.Type(e.GetType())) && (d.GetToolName() == "" || callOf(e) == d.GetSubject()):
			seqs = append([]uint64{e.GetSeq()}, seqs...)
		case len(seqs) > 0:
			return seqs
		}
	}
	return seqs
}

// ofAnswer reports whether a decision is about the answer to a model call.
func ofAnswer(d *agentdv1.Decision) bool {
	return d.GetGate() == afterResponse || d.GetGate() == onEnd || d.GetGate() == onChunk
}

// narrowedBy is the decision with which a hook has narrowed the tools of the run.
func narrowedBy(e *agentdv1.Event) string {
	p, _ := decodeEvent(e).(event.ToolsNarrowed)
	return p.DecisionID
}

// callOf is the tool call that an event is about, "" if it is about none.
func callOf(e *agentdv1.Event) string {
	var of struct {
		CallID string `json:"call_id"`
	}
	_ = json.Unmarshal([]byte(e.GetDataJson()), &of) // an event of a newer server may have it otherwise
	return of.CallID
}

func explain(out io.Writer, run *agentdv1.Run, events []*agentdv1.Event, all decided, eachHook bool) error {
	var b strings.Builder
	decisions := all.list
	fmt.Fprintf(&b, "run %s of session %s\nagent %s: %s", run.GetId(), run.GetSessionId(), run.GetAgent(), statusWord(run.GetStatus()))
	if run.GetReason() != "" {
		fmt.Fprintf(&b, " (%s)", oneLine(run.GetReason(), 80))
	}
	fmt.Fprintf(&b, ", %s, %s\n\n", count(int64(run.GetTurns()), "turn"), count(int64(len(decisions)), "decision"))
	calls, shown, approved := map[string]string{}, map[string]string{}, map[string]string{}
	for _, e := range events {
		switch p := decodeEvent(e).(type) {
		case event.ToolProposed:
			calls[p.CallID] = p.Name + " " + p.Arguments
		case event.ApprovalRequested:
			shown[p.ApprovalID], approved[p.ApprovalID] = p.Arguments, p.CallID
		}
	}
	teller := gateTeller{out: &b, calls: calls, hooks: all.hooks, all: eachHook, told: map[*agentdv1.Hook]bool{}}
	rest := stories(events, decisions)
	follows := map[uint64]bool{}
	for _, e := range events {
		for len(rest) > 0 && rest[0].at() <= e.GetSeq() {
			teller.tell(rest[0])
			for _, seq := range rest[0].followed {
				follows[seq] = true
			}
			rest = rest[1:]
		}
		mark := " "
		if follows[e.GetSeq()] {
			mark = "→"
		}
		fmt.Fprintf(&b, "%s %-6s %-20s %s\n", mark, fmt.Sprintf("#%d", e.GetSeq()), e.GetType(), oneLine(summary(e, calls), 140))
		if changed := changeOf(e, shown); changed != "" {
			fmt.Fprintf(&b, "      %s\n", oneLine(changed, 600))
		}
		switch p := decodeEvent(e).(type) {
		case event.ApprovalRequested:
			teller.changed(p.CallID, &p.Arguments)
		case event.ApprovalDecided:
			teller.changed(approved[p.ApprovalID], p.EditedArguments)
		case event.ToolStarted:
			teller.changed(p.CallID, p.Arguments)
		}
	}
	for _, s := range rest {
		teller.tell(s)
	}
	lines := strings.Split(b.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	_, err := io.WriteString(out, strings.Join(lines, "\n"))
	return err
}

// changeOf is what people, or hooks after them, made of the arguments of a call,
// "" if e is about something else. shown has the arguments of approvals by id.
func changeOf(e *agentdv1.Event, shown map[string]string) string {
	switch p := decodeEvent(e).(type) {
	case event.ApprovalRequested:
		if p.ChangedFrom != nil {
			return "a hook made this of what a person gave: " + loop.ArgumentsPatch(*p.ChangedFrom, p.Arguments)
		}
	case event.ApprovalDecided:
		if p.EditedArguments != nil {
			return "to " + *p.EditedArguments + ", which is " + loop.ArgumentsPatch(shown[p.ApprovalID], *p.EditedArguments)
		}
	}
	return ""
}
