package loop

import (
	"context"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

// ApprovalRef names an approval.
type ApprovalRef struct {
	TenantID   string
	ApprovalID string
}

// ExpireApproval stores that nobody has answered an approval in time. Whether
// its time is over is for the caller to know, by the log's clock. The call does
// not run, and the run goes on once nothing is left to answer. It returns false
// if there is an answer already.
func (c *Commands) ExpireApproval(ctx context.Context, tenantID, approvalID string) (bool, error) {
	sessionID, runID, err := c.Log.Approval(ctx, tenantID, approvalID)
	if err != nil {
		return false, err
	}
	return c.replan(ctx, tenantID, sessionID, runID, event.System("approval_timeout"), func(d *draft, r Run) bool {
		call, ok := r.approval(approvalID)
		if !ok || call.Status != CallAwaiting || !call.Asked.Takes(event.DecisionExpired) {
			return false
		}
		if !d.endBad(c.NewID) {
			d.answer(r, event.ApprovalDecided{
				ApprovalID: approvalID, CallID: call.ID, Decision: event.DecisionExpired, ArgumentsSHA256: digest(call.final()),
			})
		}
		return true
	})
}
