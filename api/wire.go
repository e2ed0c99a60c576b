package api

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

func wireEvent(e event.Event) *agentdv1.Event {
	return &agentdv1.Event{
		Seq:       uint64(e.Seq),
		SessionId: e.SessionID,
		RunId:     e.RunID,
		Turn:      uint32(e.Turn),
		Type:      string(e.Type),
		At:        timestamppb.New(e.At),
		Actor:     wireActor(e.Actor),
		DataJson:  string(e.Payload),
	}
}

func wireSession(s loop.SessionInfo) *agentdv1.Session {
	return &agentdv1.Session{
		Id:          s.ID,
		ExternalId:  s.ExternalID,
		CreatedAt:   timestamppb.New(s.CreatedAt),
		UpdatedAt:   timestamppb.New(s.UpdatedAt),
		LastSeq:     uint64(s.LastSeq),
		ActiveRunId: s.ActiveRunID,
		Title:       s.Title,
		User:        s.User,
		Metadata:    s.Metadata,
	}
}

func wireRun(r loop.RunInfo) *agentdv1.Run {
	return &agentdv1.Run{
		Id:                 r.ID,
		SessionId:          r.SessionID,
		Agent:              r.Agent,
		Status:             wireStatus(r.Status),
		Reason:             r.Reason,
		Error:              r.Error,
		MessageId:          r.MessageID,
		AssistantMessageId: r.AssistantMessageID,
		CancelRequested:    r.CancelRequested,
		Turns:              uint32(r.Turns),
		InputTokens:        uint64(r.InputTokens),
		OutputTokens:       uint64(r.OutputTokens),
		CreatedAt:          timestamppb.New(r.CreatedAt),
		StartedAt:          wireTime(r.StartedAt),
		EndedAt:            wireTime(r.EndedAt),
		Retries:            uint32(r.Retries),
		EndedSeq:           uint64(r.EndedSeq),
		Ahead:              uint32(r.Ahead),
		CostMicros:         uint64(r.CostMicros),
	}
}

func wireTime(t *time.Time) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return timestamppb.New(*t)
}

func wireStatus(s loop.RunStatus) agentdv1.RunStatus {
	switch s {
	case loop.RunEnqueued:
		return agentdv1.RunStatus_RUN_STATUS_ENQUEUED
	case loop.RunQueued:
		return agentdv1.RunStatus_RUN_STATUS_QUEUED
	case loop.RunRunning:
		return agentdv1.RunStatus_RUN_STATUS_RUNNING
	case loop.RunWaiting:
		return agentdv1.RunStatus_RUN_STATUS_WAITING
	case loop.RunCompleted:
		return agentdv1.RunStatus_RUN_STATUS_COMPLETED
	case loop.RunFailed:
		return agentdv1.RunStatus_RUN_STATUS_FAILED
	case loop.RunCancelled:
		return agentdv1.RunStatus_RUN_STATUS_CANCELLED
	case loop.RunNone:
	}
	return agentdv1.RunStatus_RUN_STATUS_UNSPECIFIED
}

func wireMessage(m loop.MessageInfo) *agentdv1.Message {
	w := &agentdv1.Message{
		Id:        m.ID,
		RunId:     m.RunID,
		Turn:      uint32(m.Turn),
		Role:      wireRole(m.Role),
		Partial:   m.Partial,
		Position:  uint64(m.Position),
		CreatedAt: timestamppb.New(m.CreatedAt),

		ReplacedSeq: uint64(m.ReplacedSeq),
		Enqueued:    m.Enqueued,
	}
	for _, p := range m.Parts {
		if part := wirePart(p); part != nil {
			w.Parts = append(w.Parts, part)
		}
	}
	return w
}

func wireRole(r hooks.Role) agentdv1.Role {
	switch r {
	case hooks.RoleSystem:
		return agentdv1.Role_ROLE_SYSTEM
	case hooks.RoleUser:
		return agentdv1.Role_ROLE_USER
	case hooks.RoleAssistant:
		return agentdv1.Role_ROLE_ASSISTANT
	case hooks.RoleTool:
		return agentdv1.Role_ROLE_TOOL
	}
	return agentdv1.Role_ROLE_UNSPECIFIED
}

// wirePart returns nil for a part of a kind that a newer binary has stored.
func wirePart(p hooks.Part) *agentdv1.Part {
	switch {
	case p.Type == hooks.PartText:
		return &agentdv1.Part{Kind: &agentdv1.Part_Text{Text: p.Text}}
	case p.Type == hooks.PartReasoning:
		return &agentdv1.Part{Kind: &agentdv1.Part_Reasoning{Reasoning: p.Text}}
	case p.Type == hooks.PartToolCall && p.ToolCall != nil:
		return &agentdv1.Part{Kind: &agentdv1.Part_ToolCall{ToolCall: &agentdv1.ToolCall{
			Id: p.ToolCall.ID, Name: p.ToolCall.Name, Arguments: p.ToolCall.Arguments,
		}}}
	case p.Type == hooks.PartToolResult && p.ToolResult != nil:
		return &agentdv1.Part{Kind: &agentdv1.Part_ToolResult{ToolResult: &agentdv1.ToolResult{
			CallId: p.ToolResult.CallID, Content: p.ToolResult.Content,
			IsError: p.ToolResult.IsError, Reason: string(p.ToolResult.Reason),
		}}}
	}
	return nil
}
