package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
)

// TestAPipeIsToldWhatIsAsked: each question names the two commands that answer
// it, and no other.
func TestAPipeIsToldWhatIsAsked(t *testing.T) {
	t.Parallel()
	for kind, want := range map[agentdv1.ApprovalKind][]string{
		agentdv1.ApprovalKind_APPROVAL_KIND_CALL:    {"pay waits for a person's yes or no", "approvals approve a-1", "approvals deny a-1"},
		agentdv1.ApprovalKind_APPROVAL_KIND_OUTCOME: {"pay was started and interrupted", "(idempotency key c-1)", "approvals happened a-1", "approvals not-happened a-1"},
	} {
		var said bytes.Buffer
		v := &printView{err: &said}
		if _, err := v.decide(&agentdv1.Approval{Id: "a-1", CallId: "c-1", ToolName: "pay", Arguments: `{"n":1}`, Kind: kind}); !errors.Is(err, errUndecided) {
			t.Error(err)
		}
		for _, part := range append(want, `{"n":1}`) {
			if !strings.Contains(said.String(), part) {
				t.Errorf("%s: no %q in %q", kind, part, said.String())
			}
		}
		if n := strings.Count(said.String(), "agentd approvals "); n != 2 {
			t.Errorf("%s: %d commands in %q", kind, n, said.String())
		}
	}
}

func TestAYesAnswersWhatWasAsked(t *testing.T) {
	t.Parallel()
	for kind, want := range map[agentdv1.ApprovalKind][2]agentdv1.ApprovalDecision{
		agentdv1.ApprovalKind_APPROVAL_KIND_CALL:        {agentdv1.ApprovalDecision_APPROVAL_DECISION_APPROVE, agentdv1.ApprovalDecision_APPROVAL_DECISION_DENY},
		agentdv1.ApprovalKind_APPROVAL_KIND_UNSPECIFIED: {agentdv1.ApprovalDecision_APPROVAL_DECISION_APPROVE, agentdv1.ApprovalDecision_APPROVAL_DECISION_DENY},
		agentdv1.ApprovalKind_APPROVAL_KIND_OUTCOME:     {agentdv1.ApprovalDecision_APPROVAL_DECISION_HAPPENED, agentdv1.ApprovalDecision_APPROVAL_DECISION_DID_NOT_HAPPEN},
	} {
		a := &agentdv1.Approval{Kind: kind}
		if got := [2]agentdv1.ApprovalDecision{answerTo(a, true), answerTo(a, false)}; got != want {
			t.Errorf("%s: %v; want %v", kind, got, want)
		}
	}
}
