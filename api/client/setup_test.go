package client_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/seed-2ca4966b/agentd/api/client"
	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }

// patience is for what has no bound of its own, on a machine that does other
// things too.
const patience = time.Minute

// handlers are the services of a test's server: one that is nil has no calls.
type handlers struct {
	sessions  agentdv1connect.SessionServiceHandler
	runs      agentdv1connect.RunServiceHandler
	approvals agentdv1connect.ApprovalServiceHandler
	ledger    agentdv1connect.LedgerServiceHandler
	admin     agentdv1connect.AdminServiceHandler
}

func serve(t *testing.T, h handlers, options ...client.Option) *client.Client {
	t.Helper()
	mux := http.NewServeMux()
	if h.sessions != nil {
		mux.Handle(agentdv1connect.NewSessionServiceHandler(h.sessions))
	}
	if h.runs != nil {
		mux.Handle(agentdv1connect.NewRunServiceHandler(h.runs))
	}
	if h.approvals != nil {
		mux.Handle(agentdv1connect.NewApprovalServiceHandler(h.approvals))
	}
	if h.admin != nil {
		mux.Handle(agentdv1connect.NewAdminServiceHandler(h.admin))
	}
	if h.ledger != nil {
		mux.Handle(agentdv1connect.NewLedgerServiceHandler(h.ledger))
	}
	return serveHTTP(t, mux, options...)
}

func serveHTTP(t *testing.T, h http.Handler, options ...client.Option) *client.Client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return dial(t, server.URL, options...)
}

// dial returns a client whose connections end with the test.
func dial(t *testing.T, url string, options ...client.Option) *client.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	c, err := client.New(url, append([]client.Option{client.WithHTTPClient(&http.Client{Transport: transport})}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// refusal is an error as agentd sends it.
func refusal(t *testing.T, code connect.Code, detail *agentdv1.ErrorReason) error {
	t.Helper()
	e := connect.NewError(code, errSentence)
	d, err := connect.NewErrorDetail(detail)
	if err != nil {
		t.Fatal(err)
	}
	e.AddDetail(d)
	return e
}

type sentence string

func (s sentence) Error() string { return string(s) }

const errSentence = sentence("a sentence for people")

// stream is what one call of WatchEvents does.
type stream func(context.Context, *connect.ServerStream[agentdv1.WatchEventsResponse]) error

// watchable is a server whose streams are those of a test, one per call. The
// last one serves all calls that come later.
type watchable struct {
	agentdv1connect.UnimplementedSessionServiceHandler
	requests chan *agentdv1.WatchEventsRequest
	streams  chan stream
}

func newWatchable(streams ...stream) *watchable {
	w := &watchable{requests: make(chan *agentdv1.WatchEventsRequest, 100), streams: make(chan stream, len(streams))}
	for _, s := range streams {
		w.streams <- s
	}
	return w
}

func (w *watchable) WatchEvents(ctx context.Context, r *connect.Request[agentdv1.WatchEventsRequest], s *connect.ServerStream[agentdv1.WatchEventsResponse]) error {
	w.requests <- r.Msg
	next := <-w.streams
	if len(w.streams) == 0 {
		w.streams <- next
	}
	return next(ctx, s)
}

// afters are the cursors that were asked for.
func (w *watchable) afters() []uint64 {
	var list []uint64
	for {
		select {
		case r := <-w.requests:
			list = append(list, r.GetAfter())
		default:
			return list
		}
	}
}

// sends is a stream of these events, nil for a heartbeat, and how it ends.
func sends(end error, events ...*agentdv1.Event) stream {
	return func(_ context.Context, s *connect.ServerStream[agentdv1.WatchEventsResponse]) error {
		for _, e := range events {
			if err := s.Send(&agentdv1.WatchEventsResponse{Event: e}); err != nil {
				return err
			}
		}
		return end
	}
}

// stays sends events and then nothing, until the client leaves; left is closed
// then, unless it is nil.
func stays(left chan<- struct{}, events ...*agentdv1.Event) stream {
	return func(ctx context.Context, s *connect.ServerStream[agentdv1.WatchEventsResponse]) error {
		if err := sends(nil, events...)(ctx, s); err != nil {
			return err
		}
		<-ctx.Done()
		if left != nil {
			close(left)
		}
		return ctx.Err()
	}
}

func of(run string, seq uint64, kind event.Type) *agentdv1.Event {
	return &agentdv1.Event{Seq: seq, RunId: run, SessionId: "s", Type: string(kind), DataJson: "{}"}
}

func delta(seq uint64) *agentdv1.Event { return of("r", seq, event.TypeAssistantDelta) }
