package main

import (
	"context"
	"errors"
	"slices"

	"github.com/seed-2ca4966b/agentd/api/client"
	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// errUndecided: a call waits for an answer that nobody here gives.
var errUndecided = errors.New("a call waits for a person's answer")

// attend follows a run to its end, and has its approvals answered on the way.
func (c *conversation) attend(ctx context.Context, runID string, after uint64, v view, show func(event.Payload)) (event.Payload, error) {
	for {
		end, err := c.follow(ctx, runID, after, show)
		if err != nil {
			return nil, err
		}
		if _, suspended := end.(event.RunSuspended); !suspended {
			return end, nil
		}
		// The event may be an old one, whose approvals are answered by now.
		if _, err := c.settle(ctx, runID, v); err != nil {
			return nil, err
		}
		after = c.seen
	}
}

// settleActive is settle for the run that is active: until its approvals are
// answered, no other begins.
func (c *conversation) settleActive(ctx context.Context, v view) error {
	session, err := c.client.GetSession(ctx, c.sessionID)
	if err == nil && session.GetActiveRunId() != "" {
		_, err = c.settle(ctx, session.GetActiveRunId(), v)
	}
	return err
}

// settle asks about each approval of the run that is open, in the order of the
// calls. It returns false if there was none.
func (c *conversation) settle(ctx context.Context, runID string, v view) (asked bool, err error) {
	open, err := openApprovals(ctx, c.client, &agentdv1.ListApprovalsRequest{RunId: runID})
	if err != nil {
		return false, err
	}
	for _, a := range open {
		yes, err := v.decide(a)
		if err != nil {
			return true, err
		}
		_, err = decide(ctx, c.client, a, &agentdv1.DecideApprovalRequest{Decision: answerTo(a, yes)})
		switch reason := client.ReasonOf(err); {
		case reason == "already_decided" || reason == "not_an_approver":
			v.late(err) // somebody else has answered, or has to
		case err != nil:
			return true, err
		}
	}
	return len(open) > 0, nil
}

// openApprovals returns all that is open, the oldest first.
func openApprovals(ctx context.Context, c *client.Client, request *agentdv1.ListApprovalsRequest) ([]*agentdv1.Approval, error) {
	request.PendingOnly, request.PageSize = true, 100
	list, err := collect(c.Approvals(ctx, request))
	slices.Reverse(list)
	return list, err
}

func ofOutcome(a *agentdv1.Approval) bool {
	return a.GetKind() == agentdv1.ApprovalKind_APPROVAL_KIND_OUTCOME
}

// answerTo is a person's yes or no as an answer to what a asks: whether the call
// may run, or whether it did.
func answerTo(a *agentdv1.Approval, yes bool) agentdv1.ApprovalDecision {
	switch {
	case ofOutcome(a) && yes:
		return agentdv1.ApprovalDecision_APPROVAL_DECISION_HAPPENED
	case ofOutcome(a):
		return agentdv1.ApprovalDecision_APPROVAL_DECISION_DID_NOT_HAPPEN
	case yes:
		return agentdv1.ApprovalDecision_APPROVAL_DECISION_APPROVE
	}
	return agentdv1.ApprovalDecision_APPROVAL_DECISION_DENY
}

// decide sends an answer that holds for these arguments and no others.
func decide(ctx context.Context, c *client.Client, a *agentdv1.Approval, answer *agentdv1.DecideApprovalRequest) (*agentdv1.Approval, error) {
	answer.ApprovalId, answer.ArgumentsSha256 = a.GetId(), a.GetArgumentsSha256()
	return c.DecideApproval(ctx, answer)
}
