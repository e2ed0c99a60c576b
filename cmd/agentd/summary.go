package main

import (
	"fmt"
	"strings"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// decodeEvent returns nil for an event that this binary cannot read.
func decodeEvent(e *agentdv1.Event) event.Payload {
	p, err := event.Decode(event.Event{Seq: int64(e.GetSeq()), Type: event.Type(e.GetType()), Payload: []byte(e.GetDataJson())})
	if err != nil {
		return nil
	}
	return p
}

// ofHooks names a hook set by the beginning of its digest.
func ofHooks(digest string) string {
	if digest == "" {
		return ""
	}
	return ", hooks " + digest[:min(len(digest), 12)]
}

// summary is an event in some words; calls has the names and arguments of tool
// calls by their id.
func summary(e *agentdv1.Event, calls map[string]string) string {
	name := func(id string) string {
		name, _, _ := strings.Cut(calls[id], " ")
		return name
	}
	by := e.GetActor().GetKind() + " " + e.GetActor().GetId()
	switch p := decodeEvent(e).(type) {
	case event.MessageCreated:
		return string(p.Role) + ": " + hooks.Message{Parts: p.Parts}.Text()
	case event.MessagesReplaced:
		return count(int64(len(p.MessageIDs)), "message") + " by " + by
	case event.RunCreated:
		return "by " + by
	case event.RunStarted:
		return "worker " + p.WorkerID + ofHooks(p.HookSet)
	case event.RunResumed:
		return "after " + string(p.Cause) + ", worker " + p.WorkerID + ofHooks(p.HookSet)
	case event.RunReleased:
		return string(p.Cause)
	case event.RunSuspended:
		return "waits for " + count(int64(len(p.ApprovalIDs)), "approval")
	case event.ModelRequested:
		return fmt.Sprintf("%s attempt %d, %s", p.Model, p.Attempt, count(int64(len(p.MessageIDs)), "message"))
	case event.AssistantCompleted:
		return string(p.Finish) + ": " + hooks.Message{Parts: p.Parts}.Text()
	case event.AssistantDiscarded:
		text := fmt.Sprintf("attempt %d, %s", p.Attempt, p.Reason)
		if p.Error != "" {
			text += ": " + p.Error
		}
		return text
	case event.AssistantStopped:
		return stoppedWords(p) + ": " + hooks.Message{Parts: p.Parts}.Text()
	case event.Emission:
		return p.Observer + " on " + p.Channel + ": " + string(p.Envelope)
	case event.ToolProposed:
		return p.Name + " " + p.Arguments
	case event.ToolBlocked:
		return name(p.CallID) + " by " + p.By + ": " + p.ReasonCode
	case event.ApprovalRequested:
		return p.Name + " " + p.Arguments + ", asked for by " + p.By
	case event.ApprovalDecided:
		return strings.TrimSuffix(string(p.Decision)+" by "+by+": "+p.Reason, ": ")
	case event.ToolStarted:
		return fmt.Sprintf("%s attempt %d", name(p.CallID), p.Attempt)
	case event.ToolProgress:
		if p.Withheld {
			return fmt.Sprintf("%s attempt %d, %d: (withheld)", name(p.CallID), p.Attempt, p.Number)
		}
		return fmt.Sprintf("%s attempt %d, %d: %s", name(p.CallID), p.Attempt, p.Number, p.Text)
	case event.ToolsNarrowed:
		return fmt.Sprintf("%s leaves %s: %s", p.By, count(int64(len(p.Tools)), "tool"), strings.Join(p.Tools, ", "))
	case event.ToolExecuted:
		if p.Success {
			return name(p.CallID) + " succeeded"
		}
		return name(p.CallID) + " failed"
	case event.ToolResult:
		return p.Name + ": " + p.Content
	case event.RunCancelRequested:
		return strings.TrimSuffix("by "+by+": "+p.Reason, ": ")
	case event.RunCompleted:
		return string(p.Reason)
	case event.RunFailed:
		return string(p.Reason) + ": " + p.Error
	case event.RunCancelled:
		return p.Reason
	}
	return ""
}

// stoppedWords is why an answer was cut off, and what follows if an observer did it.
func stoppedWords(p event.AssistantStopped) string {
	if p.Observer == "" {
		return p.Reason
	}
	return fmt.Sprintf("%s by %s at chunk %d behind %s, then %s", p.Reason, p.Observer, p.Chunk, count(int64(p.Accepted), "byte"), p.Policy)
}

// progressNote tells a person how far a tool is, "" for nothing that may be seen.
func progressNote(tool string, p event.ToolProgress) string {
	if p.Withheld {
		return ""
	}
	return oneLine(tool+": "+p.Text, 400)
}

// stopNote tells a person that an observer has stopped the answer.
func stopNote(p event.AssistantStopped) string {
	note := "the answer was stopped by " + oneLine(p.Observer, 64)
	switch p.Policy {
	case stream.StopRetry:
		note += ", and is asked for again"
	case stream.StopFallback:
		note += ", and another model is asked"
	case stream.StopEndTurn, stream.StopFail:
	}
	return note
}
