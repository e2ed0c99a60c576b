package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// approvals are those of a session, the newest first.
func (b *backend) approvals(ctx context.Context, tenantID, sessionID string) ([]loop.ApprovalInfo, error) {
	_, events, err := b.state(ctx, tenantID, sessionID)
	if err != nil {
		return nil, err
	}
	var list []loop.ApprovalInfo
	for _, e := range events {
		p, err := event.Decode(e)
		if err != nil {
			return nil, err
		}
		switch p := p.(type) {
		case event.ApprovalRequested:
			list = append(list, loop.ApprovalInfo{
				ID: p.ApprovalID, TenantID: tenantID, SessionID: sessionID, RunID: e.RunID, Turn: e.Turn, CallID: p.CallID,
				Name: p.Name, Arguments: p.Arguments, ArgumentsSHA256: p.ArgumentsSHA256,
				RequestedBy: p.By, Reason: p.Reason, RequestedAt: e.At, ChangedFrom: p.ChangedFrom, Approvers: p.Approvers,
			})
		case event.ApprovalDecided:
			i := slices.IndexFunc(list, func(a loop.ApprovalInfo) bool { return a.ID == p.ApprovalID })
			a := &list[i]
			a.Decision, a.DecidedBy, a.DecisionReason, a.DecidedAt = p.Decision, e.Actor, p.Reason, &e.At
			a.EditedArguments, a.EditedSHA256 = p.EditedArguments, p.EditedSHA256
		}
	}
	slices.Reverse(list)
	return list, nil
}

func (b *backend) GetApproval(ctx context.Context, tenantID, approvalID string) (loop.ApprovalInfo, error) {
	list, _ := b.ListApprovals(ctx, tenantID, loop.ApprovalFilter{}, loop.Page{Limit: 1 << 20})
	for _, a := range list {
		if a.ID == approvalID {
			return a, nil
		}
	}
	return loop.ApprovalInfo{}, loop.ErrNotFound
}

func (b *backend) ListApprovals(ctx context.Context, tenantID string, f loop.ApprovalFilter, p loop.Page) ([]loop.ApprovalInfo, error) {
	if f.SessionID != "" {
		if _, _, err := b.state(ctx, tenantID, f.SessionID); err != nil {
			return nil, err
		}
	}
	if f.RunID != "" {
		if _, err := b.GetRun(ctx, tenantID, f.RunID); err != nil {
			return nil, err
		}
	}
	var list []loop.ApprovalInfo
	b.each(func(id string) {
		of, _ := b.approvals(ctx, tenantID, id)
		list = append(list, of...)
	})
	list = slices.DeleteFunc(list, func(a loop.ApprovalInfo) bool {
		return f.SessionID != "" && a.SessionID != f.SessionID || f.RunID != "" && a.RunID != f.RunID || f.PendingOnly && a.Decision != ""
	})
	return pageOf(list, p, func(a loop.ApprovalInfo) string { return a.ID })
}

func (b *backend) ListDecisions(ctx context.Context, tenantID string, f loop.DecisionFilter, p loop.Page) ([]loop.DecisionInfo, error) {
	sessionID := f.SessionID
	if f.RunID != "" {
		run, err := b.GetRun(ctx, tenantID, f.RunID)
		if err != nil {
			return nil, err
		}
		sessionID = run.SessionID
	}
	if _, _, err := b.state(ctx, tenantID, sessionID); err != nil {
		return nil, err
	}
	var list []loop.DecisionInfo
	for _, r := range b.Ledger(sessionID) {
		if f.RunID == "" || f.RunID == r.RunID {
			list = append(list, loop.DecisionInfo{Row: r.Row, Hash: r.Hash, ToolName: toolName})
		}
	}
	return pageOf(list, p, func(d loop.DecisionInfo) string { return d.ID })
}

// HookSets has the one that the backend works with.
func (b *backend) HookSets(_ context.Context, digests []string) ([]hooks.HookSet, error) {
	if b.brokenSets {
		return nil, errors.New("no such table")
	}
	set := b.Hooks.Set()
	if !slices.Contains(digests, set.Digest) {
		return nil, nil
	}
	return []hooks.HookSet{set}, nil
}

// toolName is that of the one tool.
const toolName = "send"

// withHooks makes a backend whose messages and calls are checked: each call of
// send needs a yes. It returns what takes a run as far as it goes.
func (b *backend) withHooks(t *testing.T) (advance func(t *testing.T, sessionID, runID string, ticket int64)) {
	t.Helper()
	h := hooks.Hooks{
		BeforeInput: hooks.Named("greeter", "3", func(_ context.Context, in hooks.BeforeInput) (hooks.BeforeInputResult, error) {
			switch in.Text {
			case "help":
				return hooks.BeforeInputResult{Action: hooks.ActionHandled, Reply: "ask me anything"}, nil
			case "bad":
				return hooks.BeforeInputResult{Action: hooks.ActionBlock, Reason: hooks.Reason{Code: "rude", Text: "Be nice."}}, nil
			}
			return hooks.BeforeInputResult{Action: hooks.ActionContinue}, nil
		}, hooks.OfKind(hooks.KindRule), hooks.WithDigest("dd"), hooks.WithConfig(`{"id":"greeter"}`), hooks.TimeLimit(time.Second)),
		BeforeToolCall: hooks.Named("shout", "1", func(_ context.Context, in hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
			loud := `{"text":"HI"}`
			return hooks.BeforeToolCallResult{
				Action: hooks.ActionTransform, Arguments: &loud, Reason: hooks.Reason{Code: "loud", Text: "Louder."},
				Annotations: map[string]string{"was": in.Call.Arguments},
			}, nil
		}),
		// It is about nobody here, so it decides nothing.
		BeforeExecute: hooks.Named("secret", "1", func(context.Context, hooks.BeforeExecute) (hooks.BeforeExecuteResult, error) {
			return hooks.BeforeExecuteResult{Action: hooks.ActionBlock}, nil
		}, hooks.Only(hooks.Scope{Tenants: []string{"another"}}), hooks.WithConfig("of another tenant")),
	}
	tools := []loop.Tool{looptest.Says(toolName, "sent")}
	b.Tools = map[string][]loop.Tool{"main": tools}
	asker := &hooks.Asker{HookSet: h.Set().Digest}
	b.Hooks, b.Asker = h, asker
	call := looptest.Answer(looptest.ToolCall("a", toolName, `{"text":"hi"}`), looptest.ToolCall("b", toolName, `{"text":"ho"}`), looptest.Finish(stream.FinishToolCalls))
	engine := &loop.Engine{
		Log: b.Log, NewID: uuid.NewString, Now: time.Now, Logger: slog.New(slog.DiscardHandler), Hooks: h, Asker: asker,
		Agents: map[string]loop.Agent{"main": {
			Name: "main", Model: looptest.Answers(call, looptest.Answer(looptest.Text("Sent."), looptest.Finish(stream.FinishStop))), ModelName: "m",
			Tools: tools, Approvers: b.approvers, Permissions: []loop.Permission{{Tools: toolName, Mode: loop.PermissionAsk}},
		}},
	}
	return func(t *testing.T, sessionID, runID string, ticket int64) {
		t.Helper()
		j := loop.Job{TenantID: tenant, SessionID: sessionID, RunID: runID, Ticket: ticket}
		if err := engine.Advance(t.Context(), j, loop.Holder{WorkerID: uuid.NewString()}); err != nil {
			t.Fatal(err)
		}
	}
}

// waiting makes a session whose run waits for two approvals, in the order of
// their calls.
func (b *bundle) waiting(t *testing.T, advance func(t *testing.T, sessionID, runID string, ticket int64)) (sessionID, runID string, approvals []loop.ApprovalInfo) {
	t.Helper()
	sessionID = b.newSession(t)
	runID = b.start(t, sessionID, "go").RunID
	advance(t, sessionID, runID, 1)
	list, err := b.approvals(t.Context(), tenant, sessionID)
	if err != nil || len(list) != 2 {
		t.Fatalf("%d approvals, %v, want 2", len(list), err)
	}
	slices.Reverse(list)
	return sessionID, runID, list
}

func patched(t *testing.T, patch string) (value string) {
	t.Helper()
	var operations []struct{ Op, Path, Value string }
	if err := json.Unmarshal([]byte(patch), &operations); err != nil || len(operations) != 1 || operations[0].Path != "/call/arguments" {
		t.Fatalf("patch %s, %v", patch, err)
	}
	return operations[0].Value
}
