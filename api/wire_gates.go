package api

import (
	"encoding/hex"

	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

func wireActor(a event.Actor) *agentdv1.Actor {
	return &agentdv1.Actor{Kind: string(a.Kind), Id: a.ID}
}

// wireApproval is an approval as the caller sees it.
func wireApproval(to principal) func(loop.ApprovalInfo) *agentdv1.Approval {
	return func(a loop.ApprovalInfo) *agentdv1.Approval {
		w := &agentdv1.Approval{
			Id:              a.ID,
			SessionId:       a.SessionID,
			RunId:           a.RunID,
			Turn:            uint32(a.Turn),
			CallId:          a.CallID,
			Kind:            wireApprovalKind(a.Kind),
			ToolName:        a.Name,
			Arguments:       a.Arguments,
			ArgumentsSha256: a.ArgumentsSHA256,
			RequestedBy:     a.RequestedBy,
			Reason:          a.Reason,
			Status:          wireApprovalStatus(a.Decision),
			RequestedAt:     timestamppb.New(a.RequestedAt),
			ExpiresAt:       wireTime(a.ExpiresAt),
			Approvers:       a.Approvers,
			MayDecide:       a.Decision == "" && loop.MayDecide(a.Approvers, to.actor),
			DecidedAt:       wireTime(a.DecidedAt),
			DecisionReason:  a.DecisionReason,
			EditedSha256:    a.EditedSHA256,
			ChangedFrom:     a.ChangedFrom,
		}
		if a.DecidedAt != nil {
			w.DecidedBy = wireActor(a.DecidedBy)
		}
		if a.EditedArguments != nil {
			w.EditedArguments = *a.EditedArguments
			w.EditPatchJson = loop.ArgumentsPatch(a.Arguments, *a.EditedArguments)
		}
		if a.ChangedFrom != nil {
			w.ChangePatchJson = loop.ArgumentsPatch(*a.ChangedFrom, a.Arguments)
		}
		return w
	}
}

func wireApprovalStatus(d event.ApprovalDecision) agentdv1.ApprovalStatus {
	switch d {
	case "":
		return agentdv1.ApprovalStatus_APPROVAL_STATUS_PENDING
	case event.DecisionApproved:
		return agentdv1.ApprovalStatus_APPROVAL_STATUS_APPROVED
	case event.DecisionDenied:
		return agentdv1.ApprovalStatus_APPROVAL_STATUS_DENIED
	case event.DecisionCancelled:
		return agentdv1.ApprovalStatus_APPROVAL_STATUS_CANCELLED
	case event.DecisionHappened:
		return agentdv1.ApprovalStatus_APPROVAL_STATUS_HAPPENED
	case event.DecisionDidNotHappen:
		return agentdv1.ApprovalStatus_APPROVAL_STATUS_DID_NOT_HAPPEN
	case event.DecisionEdited:
		return agentdv1.ApprovalStatus_APPROVAL_STATUS_EDITED
	case event.DecisionExpired:
		return agentdv1.ApprovalStatus_APPROVAL_STATUS_EXPIRED
	}
	return agentdv1.ApprovalStatus_APPROVAL_STATUS_UNSPECIFIED
}

func wireApprovalKind(k event.ApprovalKind) agentdv1.ApprovalKind {
	if k == event.ApprovalOfOutcome {
		return agentdv1.ApprovalKind_APPROVAL_KIND_OUTCOME
	}
	return agentdv1.ApprovalKind_APPROVAL_KIND_CALL
}

func wireHook(set string, r hooks.Registration) *agentdv1.Hook {
	return &agentdv1.Hook{
		HookSetDigest: set,
		Gate:          string(r.Gate),
		Id:            r.ID,
		Kind:          string(r.Kind),
		Version:       r.Version,
		Digest:        r.Digest,
		Phase:         string(r.Phase),
		Text:          r.Config,
		OnFailure:     string(r.OnFailure),
		TimeLimitUs:   uint64(r.TimeLimit.Microseconds()),
		Shadow:        r.Shadow,
	}
}

func wireDecision(d loop.DecisionInfo) *agentdv1.Decision {
	return &agentdv1.Decision{
		Id:              d.ID,
		SessionId:       d.SessionID,
		LedgerSeq:       uint64(d.LedgerSeq),
		At:              timestamppb.New(d.At),
		RunId:           d.RunID,
		Turn:            uint32(d.Turn),
		Gate:            string(d.Gate),
		Subject:         d.Subject,
		Attempt:         uint32(d.Attempt),
		Phase:           string(d.Phase),
		Position:        uint32(d.Index),
		ChainLength:     uint32(d.ChainLength),
		HookId:          d.HookID,
		HookKind:        string(d.HookKind),
		HookVersion:     d.HookVersion,
		HookDigest:      d.HookDigest,
		HookSetDigest:   d.HookSetDigest,
		RuleId:          d.RuleID,
		Action:          string(d.Action),
		Effective:       d.Effective,
		Outcome:         string(d.Outcome),
		FailurePolicy:   string(d.FailurePolicy),
		FailedOpen:      d.FailedOpen,
		ReasonCode:      d.ReasonCode,
		Reason:          d.Payload.Reason,
		FieldsChanged:   d.FieldsChanged,
		PatchJson:       d.Payload.Patch,
		AnnotationsJson: d.Payload.Annotations,
		PayloadErased:   d.PayloadErased,
		ToolName:        d.ToolName,
		InputSha256:     hex.EncodeToString(d.InputSHA256[:]),
		OutputSha256:    hex.EncodeToString(d.OutputSHA256[:]),
		InputBytes:      uint64(d.InputBytes),
		OutputBytes:     uint64(d.OutputBytes),
		EventSeq:        uint64(d.EventSeq),
		Epoch:           uint64(d.Epoch),
		WorkerId:        d.WorkerID,
		QueueUs:         uint64(d.Queue.Microseconds()),
		LatencyUs:       uint64(d.Latency.Microseconds()),
		DeadlineMs:      uint64(d.Deadline.Milliseconds()),
		TraceId:         d.TraceID,
		PrevHash:        hex.EncodeToString(d.PrevHash[:]),
		RowHash:         hex.EncodeToString(d.Hash[:]),
	}
}
