package client_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/seed-2ca4966b/agentd/api/client"
	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// lister has lists of so many elements, called 1 to n, and gives them in pages.
type lister struct {
	agentdv1connect.UnimplementedSessionServiceHandler
	agentdv1connect.UnimplementedRunServiceHandler
	agentdv1connect.UnimplementedApprovalServiceHandler
	agentdv1connect.UnimplementedLedgerServiceHandler
	n int
	// fails is the element in place of which an error comes, 0 for none.
	fails int
	pages chan string
}

// page are the numbers behind token, and the next one.
func (l *lister) page(token string, size int32) (numbers []string, next string, err error) {
	l.pages <- token
	from, _ := strconv.Atoi(token)
	for i := from + 1; i <= min(from+int(size), l.n); i++ {
		if i == l.fails {
			return nil, "", connect.NewError(connect.CodeInvalidArgument, errSentence)
		}
		numbers = append(numbers, strconv.Itoa(i))
		next = strconv.Itoa(i)
	}
	if next == strconv.Itoa(l.n) {
		next = ""
	}
	return numbers, next, nil
}

func listOf[T any](numbers []string, of func(id string) T) []T {
	var list []T
	for _, n := range numbers {
		list = append(list, of(n))
	}
	return list
}

func (l *lister) ListSessions(_ context.Context, r *connect.Request[agentdv1.ListSessionsRequest]) (*connect.Response[agentdv1.ListSessionsResponse], error) {
	numbers, next, err := l.page(r.Msg.GetPageToken(), r.Msg.GetPageSize())
	return connect.NewResponse(&agentdv1.ListSessionsResponse{NextPageToken: next, Sessions: listOf(numbers, func(id string) *agentdv1.Session { return &agentdv1.Session{Id: id} })}), err
}

func (l *lister) ListMessages(_ context.Context, r *connect.Request[agentdv1.ListMessagesRequest]) (*connect.Response[agentdv1.ListMessagesResponse], error) {
	numbers, next, err := l.page(r.Msg.GetPageToken(), r.Msg.GetPageSize())
	return connect.NewResponse(&agentdv1.ListMessagesResponse{NextPageToken: next, Messages: listOf(numbers, func(id string) *agentdv1.Message { return &agentdv1.Message{Id: id} })}), err
}

func (l *lister) ListEvents(_ context.Context, r *connect.Request[agentdv1.ListEventsRequest]) (*connect.Response[agentdv1.ListEventsResponse], error) {
	numbers, next, err := l.page(strconv.FormatUint(r.Msg.GetAfter(), 10), min(r.Msg.GetPageSize(), 2))
	return connect.NewResponse(&agentdv1.ListEventsResponse{More: next != "", Events: listOf(numbers, func(id string) *agentdv1.Event {
		seq, _ := strconv.ParseUint(id, 10, 64)
		run, kind := "r", event.TypeAssistantDelta
		if seq == 4 {
			run = "other"
		}
		if seq == 2 || seq == 6 { // the second time for good
			kind = event.TypeRunFailed
		}
		return of(run, seq, kind)
	})}), err
}

func (l *lister) ListRuns(_ context.Context, r *connect.Request[agentdv1.ListRunsRequest]) (*connect.Response[agentdv1.ListRunsResponse], error) {
	numbers, next, err := l.page(r.Msg.GetPageToken(), r.Msg.GetPageSize())
	return connect.NewResponse(&agentdv1.ListRunsResponse{NextPageToken: next, Runs: listOf(numbers, func(id string) *agentdv1.Run { return &agentdv1.Run{Id: id} })}), err
}

func (l *lister) ListApprovals(_ context.Context, r *connect.Request[agentdv1.ListApprovalsRequest]) (*connect.Response[agentdv1.ListApprovalsResponse], error) {
	numbers, next, err := l.page(r.Msg.GetPageToken(), r.Msg.GetPageSize())
	return connect.NewResponse(&agentdv1.ListApprovalsResponse{NextPageToken: next, Approvals: listOf(numbers, func(id string) *agentdv1.Approval { return &agentdv1.Approval{Id: id} })}), err
}

func (l *lister) ListDecisions(_ context.Context, r *connect.Request[agentdv1.ListDecisionsRequest]) (*connect.Response[agentdv1.ListDecisionsResponse], error) {
	numbers, next, err := l.page(r.Msg.GetPageToken(), r.Msg.GetPageSize())
	return connect.NewResponse(&agentdv1.ListDecisionsResponse{NextPageToken: next, Decisions: listOf(numbers, func(id string) *agentdv1.Decision { return &agentdv1.Decision{Id: id} })}), err
}

func serveLists(t *testing.T, n, fails int) (*client.Client, *lister) {
	l := &lister{n: n, fails: fails, pages: make(chan string, 100)}
	return serve(t, handlers{sessions: l, runs: l, approvals: l, ledger: l}), l
}

func identified[T interface{ GetId() string }](list iter.Seq2[T, error]) (ids []string, err error) {
	for v, err := range list {
		if err != nil {
			return ids, err
		}
		ids = append(ids, v.GetId())
	}
	return ids, nil
}

func TestListsGoThroughAllPages(t *testing.T) {
	t.Parallel()
	c, l := serveLists(t, 5, 0)
	ctx := t.Context()
	for name, read := range map[string]func() ([]string, error){
		"sessions": func() ([]string, error) {
			return identified(c.Sessions(ctx, &agentdv1.ListSessionsRequest{PageSize: 2}))
		},
		"messages": func() ([]string, error) {
			return identified(c.Messages(ctx, &agentdv1.ListMessagesRequest{PageSize: 2}))
		},
		"runs": func() ([]string, error) { return identified(c.Runs(ctx, &agentdv1.ListRunsRequest{PageSize: 2})) },
		"approvals": func() ([]string, error) {
			return identified(c.Approvals(ctx, &agentdv1.ListApprovalsRequest{PageSize: 2}))
		},
		"decisions": func() ([]string, error) {
			return identified(c.Decisions(ctx, &agentdv1.ListDecisionsRequest{PageSize: 2}))
		},
		"events": func() ([]string, error) {
			seqs, err := take(c.Events(ctx, &agentdv1.ListEventsRequest{PageSize: 2}), -1)
			return strings.Fields(strings.Trim(fmt.Sprint(seqs), "[]")), err
		},
	} {
		got, err := read()
		if err != nil || !slices.Equal(got, []string{"1", "2", "3", "4", "5"}) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if n := len(l.pages); n != 3 {
			t.Errorf("%s: asked for %d pages", name, n)
		}
		for len(l.pages) > 0 {
			<-l.pages
		}
	}
}

func TestAListEndsWithItsErrorAndStartsAnew(t *testing.T) {
	t.Parallel()
	c, l := serveLists(t, 5, 4)
	request := &agentdv1.ListRunsRequest{PageSize: 2, PageToken: "1"}
	runs := c.Runs(t.Context(), request)
	for range 2 {
		ids, err := identified(runs)
		if connect.CodeOf(err) != connect.CodeInvalidArgument || !slices.Equal(ids, []string{"2", "3"}) {
			t.Errorf("got %v, %v", ids, err)
		}
	}
	for _, err := range runs {
		if err != nil {
			t.Error(err)
		}
		break
	}
	if n := len(l.pages); n != 5 || request.GetPageToken() != "1" {
		t.Errorf("asked for %d pages, and the caller's request is %v", n, request)
	}
}

func TestWatchRunOfARunThatHasEndedReadsWhatIsLeft(t *testing.T) {
	t.Parallel()
	l := &lister{n: 9, pages: make(chan string, 100)}
	c := serve(t, handlers{sessions: l, runs: &oneRun{runs: []*agentdv1.Run{{Id: "r", SessionId: "s", EndedSeq: 6}}}})
	for after, want := range map[uint64][]uint64{0: {1, 2, 3, 5, 6}, 4: {5, 6}} {
		if seqs, err := take(c.WatchRun(t.Context(), "r", after), -1); err != nil || !slices.Equal(seqs, want) {
			t.Errorf("after %d: %v, %v", after, seqs, err)
		}
	}
	l.n = 6
	if seqs, err := take(c.WatchRun(t.Context(), "r", 6), -1); err != nil || len(seqs) > 0 {
		t.Errorf("at the end: %v, %v", seqs, err)
	}
}
