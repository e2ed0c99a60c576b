package api

import (
	"context"
	"errors"
	"io"
	"strconv"

	"connectrpc.com/connect"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
	"github.com/seed-2ca4966b/agentd/api/sse"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// sessionService implements agentd.v1.SessionService.
type sessionService struct{ *server }

var _ agentdv1connect.SessionServiceHandler = (*sessionService)(nil)

func (s *sessionService) CreateSession(ctx context.Context, req *connect.Request[agentdv1.CreateSessionRequest]) (*connect.Response[agentdv1.CreateSessionResponse], error) {
	if err := checkName("external_id", req.Msg.GetExternalId()); err != nil {
		return nil, err
	}
	p, m := principalOf(ctx), req.Msg
	ref, err := s.Commands.CreateSession(ctx, loop.CreateSession{
		TenantID: p.tenantID, ExternalID: m.GetExternalId(), Title: m.GetTitle(), User: m.GetUser(), Metadata: m.GetMetadata(),
		Actor: p.actor, Sanitized: proseRepaired(ctx),
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.CreateSessionResponse{SessionId: ref.SessionID, Created: ref.Created}), nil
}

func (s *sessionService) GetSession(ctx context.Context, req *connect.Request[agentdv1.GetSessionRequest]) (*connect.Response[agentdv1.GetSessionResponse], error) {
	tenantID := principalOf(ctx).tenantID
	id, err := s.sessionByName(ctx, tenantID, req.Msg)
	if err != nil {
		return nil, err
	}
	info, err := s.Reader.GetSession(ctx, tenantID, id)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.GetSessionResponse{Session: wireSession(info)}), nil
}

func (s *sessionService) sessionByName(ctx context.Context, tenantID string, req *agentdv1.GetSessionRequest) (string, error) {
	external := req.GetExternalId()
	if external == "" {
		return parseID("session_id", req.GetSessionId())
	}
	if err := checkName("external_id", external); err != nil {
		return "", err
	}
	head, err := s.Feed.HeadByExternalID(ctx, tenantID, external)
	return head.SessionID, err
}

func (s *sessionService) UpdateSession(ctx context.Context, req *connect.Request[agentdv1.UpdateSessionRequest]) (*connect.Response[agentdv1.UpdateSessionResponse], error) {
	p, m := principalOf(ctx), req.Msg
	id, err := parseID("session_id", m.GetSessionId())
	if err != nil {
		return nil, err
	}
	metadata, err := metadataPatch(m.GetMetadata(), m.GetRemoveMetadata())
	if err != nil {
		return nil, err
	}
	err = s.Commands.UpdateSession(ctx, loop.UpdateSession{
		TenantID: p.tenantID, SessionID: id, Title: m.Title, Metadata: metadata, Actor: p.actor, Sanitized: proseRepaired(ctx),
	})
	if err != nil {
		return nil, err
	}
	info, err := s.Reader.GetSession(ctx, p.tenantID, id)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.UpdateSessionResponse{Session: wireSession(info)}), nil
}

func (s *sessionService) ListSessions(ctx context.Context, req *connect.Request[agentdv1.ListSessionsRequest]) (*connect.Response[agentdv1.ListSessionsResponse], error) {
	pg, err := page(req.Msg.GetPageSize(), req.Msg.GetPageToken())
	if err != nil {
		return nil, err
	}
	filter := loop.SessionFilter{
		User: req.Msg.GetUser(), Query: req.Msg.GetQuery(), Metadata: req.Msg.GetMetadata(), ActiveOnly: req.Msg.GetActiveOnly(),
	}
	list, err := s.Reader.ListSessions(ctx, principalOf(ctx).tenantID, filter, pg)
	if errors.Is(err, loop.ErrNotFound) {
		err = errBadPageToken
	}
	if err != nil {
		return nil, err
	}
	page, next := cut(list, pg, func(i loop.SessionInfo) string { return i.ID }, wireSession)
	return connect.NewResponse(&agentdv1.ListSessionsResponse{Sessions: page, NextPageToken: next}), nil
}

func (s *sessionService) DeleteSession(ctx context.Context, req *connect.Request[agentdv1.DeleteSessionRequest]) (*connect.Response[agentdv1.DeleteSessionResponse], error) {
	id, err := parseID("session_id", req.Msg.GetSessionId())
	if err != nil {
		return nil, err
	}
	p := principalOf(ctx)
	if err := s.Commands.DeleteSession(ctx, p.tenantID, id, p.actor); err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.DeleteSessionResponse{}), nil
}

func (s *sessionService) ListMessages(ctx context.Context, req *connect.Request[agentdv1.ListMessagesRequest]) (*connect.Response[agentdv1.ListMessagesResponse], error) {
	tenantID := principalOf(ctx).tenantID
	id, err := parseID("session_id", req.Msg.GetSessionId())
	if err != nil {
		return nil, err
	}
	pg, err := page(req.Msg.GetPageSize(), req.Msg.GetPageToken())
	if err != nil {
		return nil, err
	}
	list, err := s.Reader.ListMessages(ctx, tenantID, id, loop.MessageFilter{Replaced: req.Msg.GetIncludeReplaced()}, pg)
	if err != nil {
		return nil, s.blamePage(ctx, err, tenantID, id, pg)
	}
	page, next := cut(list, pg, func(m loop.MessageInfo) string { return m.ID }, wireMessage)
	return connect.NewResponse(&agentdv1.ListMessagesResponse{Messages: page, NextPageToken: next}), nil
}

// blamePage tells apart what a list of a session did not find: the session, or
// the element that the page token names.
func (s *server) blamePage(ctx context.Context, err error, tenantID, sessionID string, pg loop.Page) error {
	if !errors.Is(err, loop.ErrNotFound) || pg.After == "" {
		return err
	}
	if sessionID != "" {
		if _, headErr := s.head(ctx, tenantID, sessionID); headErr != nil {
			return headErr
		}
	}
	return errBadPageToken
}

func (s *sessionService) ListEvents(ctx context.Context, req *connect.Request[agentdv1.ListEventsRequest]) (*connect.Response[agentdv1.ListEventsResponse], error) {
	tenantID := principalOf(ctx).tenantID
	id, err := parseID("session_id", req.Msg.GetSessionId())
	if err != nil {
		return nil, err
	}
	after, err := checkAfter(req.Msg.GetAfter())
	if err != nil {
		return nil, err
	}
	size, err := pageSize(req.Msg.GetPageSize(), defaultEventsPage, maxEventsPage)
	if err != nil {
		return nil, err
	}
	head, err := s.head(ctx, tenantID, id)
	if err != nil {
		return nil, err
	}
	if after > head.LastSeq {
		return nil, sse.ErrCursorAhead
	}
	keep, err := parseFilter(req.Msg.GetTypes(), req.Msg.GetChannel())
	if err != nil {
		return nil, err
	}
	found, err := s.eventsAbove(ctx, tenantID, id, after, size, keep)
	if err != nil {
		return nil, err
	}
	list := &agentdv1.ListEventsResponse{More: found.more, NextAfter: uint64(found.upTo)}
	page, next := cut(found.events, loop.Page{Limit: size + 1}, func(e event.Event) string { return strconv.FormatInt(e.Seq, 10) }, wireEvent)
	list.Events = page
	if next != "" {
		list.More, list.NextAfter = true, page[len(page)-1].GetSeq()
	}
	return connect.NewResponse(list), nil
}

func (s *sessionService) WatchEvents(ctx context.Context, req *connect.Request[agentdv1.WatchEventsRequest], stream *connect.ServerStream[agentdv1.WatchEventsResponse]) error {
	after, err := checkAfter(req.Msg.GetAfter())
	if err != nil {
		return err
	}
	keep, err := parseFilter(req.Msg.GetTypes(), req.Msg.GetChannel())
	if err != nil {
		return err
	}
	f, err := s.followOnly(ctx, req.Msg.GetSessionId(), after, req.Msg.GetUntilIdle(), keep)
	if errors.Is(err, sse.ErrNothingLeft) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	// Headers alone tell the client that the stream stands.
	err = stream.Send(nil)
	for err == nil {
		events, nextErr := f.Next(ctx)
		if errors.Is(nextErr, io.EOF) {
			return nil
		}
		if nextErr != nil {
			return nextErr
		}
		err = sendEvents(stream, events)
	}
	return err
}

// sendEvents sends a heartbeat if there are none.
func sendEvents(stream *connect.ServerStream[agentdv1.WatchEventsResponse], events []event.Event) error {
	if len(events) == 0 {
		return stream.Send(&agentdv1.WatchEventsResponse{})
	}
	for _, e := range events {
		if err := stream.Send(&agentdv1.WatchEventsResponse{Event: wireEvent(e)}); err != nil {
			return err
		}
	}
	return nil
}
