package client

import (
	"context"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
)

// CreateSession makes a session, or finds the one that has the external id.
// Without one, an attempt whose answer was lost leaves an empty session behind.
func (c *Client) CreateSession(ctx context.Context, r *agentdv1.CreateSessionRequest) (*agentdv1.CreateSessionResponse, error) {
	return call(ctx, c, c.sessions.CreateSession, r)
}

// GetSession finds a session by its id.
func (c *Client) GetSession(ctx context.Context, sessionID string) (*agentdv1.Session, error) {
	return c.session(ctx, &agentdv1.GetSessionRequest{Name: &agentdv1.GetSessionRequest_SessionId{SessionId: sessionID}})
}

// GetSessionByExternalID finds a session by the client's own name for it.
func (c *Client) GetSessionByExternalID(ctx context.Context, externalID string) (*agentdv1.Session, error) {
	return c.session(ctx, &agentdv1.GetSessionRequest{Name: &agentdv1.GetSessionRequest_ExternalId{ExternalId: externalID}})
}

func (c *Client) session(ctx context.Context, r *agentdv1.GetSessionRequest) (*agentdv1.Session, error) {
	response, err := call(ctx, c, c.sessions.GetSession, r)
	return response.GetSession(), err
}

// UpdateSession changes the title and the metadata, and gives the session as it
// is then.
func (c *Client) UpdateSession(ctx context.Context, r *agentdv1.UpdateSessionRequest) (*agentdv1.Session, error) {
	response, err := call(ctx, c, c.sessions.UpdateSession, r)
	return response.GetSession(), err
}

// DeleteSession hides a session. One with an active run is refused with
// session_busy.
func (c *Client) DeleteSession(ctx context.Context, sessionID string) error {
	again := false
	remove := func(ctx context.Context, r *connect.Request[agentdv1.DeleteSessionRequest]) (*connect.Response[agentdv1.DeleteSessionResponse], error) {
		response, err := c.sessions.DeleteSession(ctx, r)
		if again && connect.CodeOf(err) == connect.CodeNotFound {
			// The attempt before did it, and its answer was lost.
			return connect.NewResponse(&agentdv1.DeleteSessionResponse{}), nil
		}
		again = true
		return response, err
	}
	_, err := call(ctx, c, remove, &agentdv1.DeleteSessionRequest{SessionId: sessionID})
	return err
}

// StartRun stores a message and starts the run that answers it, once: a request
// without an idempotency key is given one, so that it may be repeated within the
// patience. A session with an active run is refused with session_busy.
func (c *Client) StartRun(ctx context.Context, r *agentdv1.StartRunRequest) (*agentdv1.StartRunResponse, error) {
	if r.GetIdempotencyKey() == "" {
		r = proto.CloneOf(r)
		r.IdempotencyKey = uuid.NewString()
	}
	return call(ctx, c, c.runs.StartRun, r)
}

// GetRun finds a run by its id.
func (c *Client) GetRun(ctx context.Context, runID string) (*agentdv1.Run, error) {
	response, err := call(ctx, c, c.runs.GetRun, &agentdv1.GetRunRequest{RunId: runID})
	return response.GetRun(), err
}

// CancelRun asks a run to stop. It is over when its run.cancelled arrives. One
// that had ended otherwise is refused with run_ended.
func (c *Client) CancelRun(ctx context.Context, runID, reason string) error {
	_, err := call(ctx, c, c.runs.CancelRun, &agentdv1.CancelRunRequest{RunId: runID, Reason: reason})
	return err
}

// RetryRun takes a failed run up again. One that has not failed, or for good, is
// refused with not_retryable.
func (c *Client) RetryRun(ctx context.Context, runID string) (*agentdv1.RetryRunResponse, error) {
	return call(ctx, c, c.runs.RetryRun, &agentdv1.RetryRunRequest{RunId: runID})
}

// FailRun ends a run by force, whatever state it is in; the reason is required.
// One that had ended is refused with run_ended.
func (c *Client) FailRun(ctx context.Context, runID, reason string) error {
	again := false
	fail := func(ctx context.Context, r *connect.Request[agentdv1.FailRunRequest]) (*connect.Response[agentdv1.FailRunResponse], error) {
		response, err := c.admin.FailRun(ctx, r)
		if again && connect.CodeOf(err) == connect.CodeFailedPrecondition {
			// The attempt before did it, and its answer was lost.
			return connect.NewResponse(&agentdv1.FailRunResponse{}), nil
		}
		again = true
		return response, err
	}
	_, err := call(ctx, c, fail, &agentdv1.FailRunRequest{RunId: runID, Reason: reason})
	return err
}

// Pause keeps runs from going on until Resume.
func (c *Client) Pause(ctx context.Context, r *agentdv1.PauseRequest) (*agentdv1.Pause, error) {
	response, err := call(ctx, c, c.admin.Pause, r)
	return response.GetPause(), err
}

// Resume ends exactly that pause, and says what is still paused.
func (c *Client) Resume(ctx context.Context, r *agentdv1.ResumeRequest) (*agentdv1.ResumeResponse, error) {
	return call(ctx, c, c.admin.Resume, r)
}

// Pauses returns the pauses that touch the caller's tenant.
func (c *Client) Pauses(ctx context.Context) ([]*agentdv1.Pause, error) {
	response, err := call(ctx, c, c.admin.ListPauses, &agentdv1.ListPausesRequest{})
	return response.GetPauses(), err
}

// GetApproval finds an approval by its id.
func (c *Client) GetApproval(ctx context.Context, approvalID string) (*agentdv1.Approval, error) {
	response, err := call(ctx, c, c.approvals.GetApproval, &agentdv1.GetApprovalRequest{ApprovalId: approvalID})
	return response.GetApproval(), err
}

// DecideApproval answers an approval. Repeating one's own answer is no error;
// when there is another one, the request is refused with already_decided.
func (c *Client) DecideApproval(ctx context.Context, r *agentdv1.DecideApprovalRequest) (*agentdv1.Approval, error) {
	response, err := call(ctx, c, c.approvals.DecideApproval, r)
	return response.GetApproval(), err
}
