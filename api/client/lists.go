package client

import (
	"context"
	"iter"

	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
)

// Sessions yields the sessions that the request asks for, page by page. An error
// is the last that is yielded, of this list as of all others. Page size and page
// token of the request count: the list begins with that page.
func (c *Client) Sessions(ctx context.Context, r *agentdv1.ListSessionsRequest) iter.Seq2[*agentdv1.Session, error] {
	return list(r, func(r *agentdv1.ListSessionsRequest) ([]*agentdv1.Session, bool, error) {
		page, err := call(ctx, c, c.sessions.ListSessions, r)
		r.PageToken = page.GetNextPageToken()
		return page.GetSessions(), r.GetPageToken() != "", err
	})
}

// Messages yields what was said in a session, in order.
func (c *Client) Messages(ctx context.Context, r *agentdv1.ListMessagesRequest) iter.Seq2[*agentdv1.Message, error] {
	return list(r, func(r *agentdv1.ListMessagesRequest) ([]*agentdv1.Message, bool, error) {
		page, err := call(ctx, c, c.sessions.ListMessages, r)
		r.PageToken = page.GetNextPageToken()
		return page.GetMessages(), r.GetPageToken() != "", err
	})
}

// Events yields what has happened in a session up to now, in order; of types and
// a channel, if the request has them.
func (c *Client) Events(ctx context.Context, r *agentdv1.ListEventsRequest) iter.Seq2[*agentdv1.Event, error] {
	return c.events(ctx, &outage{Client: c}, r)
}

func (c *Client) events(ctx context.Context, o *outage, r *agentdv1.ListEventsRequest) iter.Seq2[*agentdv1.Event, error] {
	return list(r, func(r *agentdv1.ListEventsRequest) ([]*agentdv1.Event, bool, error) {
		page, err := persist(ctx, o, c.sessions.ListEvents, r)
		if events := page.GetEvents(); len(events) > 0 {
			r.After = events[len(events)-1].GetSeq()
		}
		// An older server does not say, and knows nothing of types.
		r.After = max(r.After, page.GetNextAfter())
		return page.GetEvents(), page.GetMore(), err
	})
}

// Runs yields runs, the newest first.
func (c *Client) Runs(ctx context.Context, r *agentdv1.ListRunsRequest) iter.Seq2[*agentdv1.Run, error] {
	return list(r, func(r *agentdv1.ListRunsRequest) ([]*agentdv1.Run, bool, error) {
		page, err := call(ctx, c, c.runs.ListRuns, r)
		r.PageToken = page.GetNextPageToken()
		return page.GetRuns(), r.GetPageToken() != "", err
	})
}

// Approvals yields approvals, the newest first.
func (c *Client) Approvals(ctx context.Context, r *agentdv1.ListApprovalsRequest) iter.Seq2[*agentdv1.Approval, error] {
	return list(r, func(r *agentdv1.ListApprovalsRequest) ([]*agentdv1.Approval, bool, error) {
		page, err := call(ctx, c, c.approvals.ListApprovals, r)
		r.PageToken = page.GetNextPageToken()
		return page.GetApprovals(), r.GetPageToken() != "", err
	})
}

// Decisions yields what hooks decided, in the order of the ledger.
func (c *Client) Decisions(ctx context.Context, r *agentdv1.ListDecisionsRequest) iter.Seq2[*agentdv1.Decision, error] {
	return list(r, func(r *agentdv1.ListDecisionsRequest) ([]*agentdv1.Decision, bool, error) {
		page, err := call(ctx, c, c.ledger.ListDecisions, r)
		r.PageToken = page.GetNextPageToken()
		return page.GetDecisions(), r.GetPageToken() != "", err
	})
}

// DecisionPages yields the same page by page, with the hooks that made the
// decisions of each if the request asks for them. A server that does not know of
// that returns none.
func (c *Client) DecisionPages(ctx context.Context, r *agentdv1.ListDecisionsRequest) iter.Seq2[*agentdv1.ListDecisionsResponse, error] {
	return list(r, func(r *agentdv1.ListDecisionsRequest) ([]*agentdv1.ListDecisionsResponse, bool, error) {
		page, err := call(ctx, c, c.ledger.ListDecisions, r)
		r.PageToken = page.GetNextPageToken()
		return []*agentdv1.ListDecisionsResponse{page}, r.GetPageToken() != "", err
	})
}

// list yields the elements of pages until there are no more. next may change its
// request, which is a copy: a second loop starts where the first did.
func list[R proto.Message, T any](first R, next func(R) (page []T, more bool, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		request := proto.CloneOf(first)
		for more := true; more; {
			var page []T
			var err error
			if page, more, err = next(request); err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, v := range page {
				if !yield(v, nil) {
					return
				}
			}
		}
	}
}
