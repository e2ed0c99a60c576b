package main

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"testing"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// keys are what tells the elements of a list apart.
func keys[T any](list iter.Seq2[T, error], key func(T) string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for v, err := range list {
			k := ""
			if err == nil {
				k = key(v)
			}
			if !yield(k, err) {
				return
			}
		}
	}
}

// TestPagesJoinWhileRowsComeAndGo: every list is read in small pages, and behind
// each element a session is made, another one is deleted, and runs add messages,
// events, approvals and decisions to the session that is read.
func TestPagesJoinWhileRowsComeAndGo(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := newStack(t, db, playing(looptest.Answers(
		looptest.Answer(looptest.ToolCall("a", "send", `{}`), looptest.Finish(stream.FinishToolCalls)),
		looptest.Answer(looptest.Text("Sent."), looptest.Finish(stream.FinishStop)),
	), looptest.Tool{Name: "send"}))
	s.askingFor("send")
	s.checked(t, hooks.Hooks{BeforeInput: hooks.Named("reader", "1", func(context.Context, hooks.BeforeInput) (hooks.BeforeInputResult, error) {
		return hooks.BeforeInputResult{Action: hooks.ActionContinue}, nil
	})})
	ctx, c := patient(t), s.dial(t)
	id := s.Session(t)
	// told starts a run, and lets people say yes to its call.
	told := func() {
		t.Helper()
		j := s.Start(t, id, "go")
		s.Advance(t, j)
		approval := scalar[string](t, db, `SELECT id::text FROM agentd.approvals WHERE run_id = $1`, j.RunID)
		if _, err := s.Commands.DecideApproval(ctx, loop.DecideApproval{TenantID: looptest.Tenant, ApprovalID: approval, Approve: true, Actor: looptest.Tester}); err != nil {
			t.Fatal(err)
		}
		j.Ticket = 2
		s.Advance(t, j)
	}
	for range 7 {
		s.Session(t)
		told()
	}
	var news []string
	disturb := func() {
		t.Helper()
		told()
		news = append(news, s.Session(t))
		if len(news) > 1 {
			if err := c.DeleteSession(ctx, news[0]); err != nil {
				t.Fatal(err)
			}
			news = news[1:]
		}
	}
	ofSession := func(size int32) *agentdv1.ListDecisionsRequest {
		return &agentdv1.ListDecisionsRequest{Of: &agentdv1.ListDecisionsRequest_SessionId{SessionId: id}, PageSize: size}
	}
	for name, list := range map[string]func(size int32) iter.Seq2[string, error]{
		"sessions": func(size int32) iter.Seq2[string, error] {
			return keys(c.Sessions(ctx, &agentdv1.ListSessionsRequest{PageSize: size}), (*agentdv1.Session).GetId)
		},
		"runs": func(size int32) iter.Seq2[string, error] {
			return keys(c.Runs(ctx, &agentdv1.ListRunsRequest{PageSize: size}), (*agentdv1.Run).GetId)
		},
		"runs of a session": func(size int32) iter.Seq2[string, error] {
			return keys(c.Runs(ctx, &agentdv1.ListRunsRequest{SessionId: id, PageSize: size}), (*agentdv1.Run).GetId)
		},
		"messages": func(size int32) iter.Seq2[string, error] {
			return keys(c.Messages(ctx, &agentdv1.ListMessagesRequest{SessionId: id, PageSize: size}), (*agentdv1.Message).GetId)
		},
		"events": func(size int32) iter.Seq2[string, error] {
			return keys(c.Events(ctx, &agentdv1.ListEventsRequest{SessionId: id, PageSize: size}), func(e *agentdv1.Event) string { return fmt.Sprint(e.GetSeq()) })
		},
		"approvals": func(size int32) iter.Seq2[string, error] {
			return keys(c.Approvals(ctx, &agentdv1.ListApprovalsRequest{PageSize: size}), (*agentdv1.Approval).GetId)
		},
		"decisions": func(size int32) iter.Seq2[string, error] {
			return keys(c.Decisions(ctx, ofSession(size)), (*agentdv1.Decision).GetId)
		},
	} {
		before, err := collect(list(100))
		if err != nil || len(before) < 7 {
			t.Fatalf("%s: %v, %v", name, before, err)
		}
		var got []string
		for key, err := range list(2) {
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got = append(got, key); len(got)%3 == 1 && len(got) < 12 { // not for ever: some lists grow at the end
				disturb()
			}
		}
		old := slices.DeleteFunc(slices.Clone(got), func(k string) bool { return !slices.Contains(before, k) })
		if !slices.Equal(old, before) {
			t.Errorf("%s: got of what was there\n%v, want\n%v", name, old, before)
		}
		slices.Sort(got)
		if n := len(slices.Compact(slices.Clone(got))); n != len(got) {
			t.Errorf("%s: %d of %d are there twice", name, len(got)-n, len(got))
		}
	}
}
