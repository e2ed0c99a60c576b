package main

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// tellMore leaves what the questions about the ledger are about and tellAll
// does not leave: an answer that was overruled, one that led to nothing, a
// message that was refused, a tool that nobody was asked about, words that were
// erased, and a session that was purged.
func tellMore(t *testing.T, db *storetest.DB) {
	t.Helper()
	unasked := newStack(t, db, playing(looptest.Answers(
		looptest.Answer(looptest.ToolCall("a", "look", `{}`), looptest.Finish(stream.FinishToolCalls)),
		looptest.Answer(looptest.Text("Done."), looptest.Finish(stream.FinishStop))), looptest.Says("look", "a tree")))
	unasked.Advance(t, unasked.Start(t, unasked.Session(t), "look"))

	s := newStack(t, db, playing(looptest.Answers(
		looptest.Answer(looptest.ToolCall("a", "wipe", `{}`), looptest.Finish(stream.FinishToolCalls)),
		looptest.Answer(looptest.ToolCall("b", "stop", `{}`), looptest.Finish(stream.FinishToolCalls)),
		looptest.Answer(looptest.Text("Done."), looptest.Finish(stream.FinishStop))),
		looptest.Says("wipe", "oh no"), looptest.Says("stop", "stopped")))
	s.checked(t, hooks.Hooks{
		BeforeInput: maxInputBytes(t, 20),
		BeforeToolCall: hooks.Compose(denyTools(t, "wipe"), hooks.Named("careful", "1",
			func(context.Context, hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
				return hooks.BeforeToolCallResult{Action: hooks.ActionAsk}, nil
			})),
	})
	s.Engine.Log = plugPuller{s.Engine.Log, s.Commands}
	var ids []string
	for range 3 {
		id := s.Session(t)
		if run := s.Advance(t, s.Start(t, id, "wipe it")); run.Status != loop.RunCancelled {
			t.Fatalf("the run is %s", run.Status)
		}
		ids = append(ids, id)
	}
	_, err := s.Commands.StartRun(t.Context(), loop.StartRun{
		TenantID: looptest.Tenant, SessionID: ids[0], Agent: "demo", Text: strings.Repeat("too long ", 9), Actor: looptest.Tester,
	})
	var blocked *loop.BlockedError
	if !errors.As(err, &blocked) {
		t.Fatalf("a long message: %v", err)
	}
	if err := s.Commands.DeleteSession(t.Context(), looptest.Tenant, ids[1], looptest.Tester); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := ledgerCommand(t, db, "purge", ids[2], "--reason", "asked for", "--yes"); code != 0 {
		t.Fatalf("purge: %s", errs)
	}
}

// tellPolicies leaves a hook that was tried in shadow and then put in force, with
// a run under each.
func tellPolicies(t *testing.T, db *storetest.DB) {
	t.Helper()
	s := newStack(t, db, playing(looptest.Answers(
		looptest.Answer(looptest.ToolCall("a", "wipe", `{}`), looptest.Finish(stream.FinishToolCalls)),
		looptest.Answer(looptest.Text("Done."), looptest.Finish(stream.FinishStop))), looptest.Says("wipe", "oh no")))
	load := store.HookSetLoad{Cause: store.LoadStart, Process: newProcess()}
	for _, opts := range [][]hooks.Option{{hooks.Shadow()}, nil} {
		h := hooks.Hooks{BeforeToolCall: hooks.Named("no-wiping", "1", func(context.Context, hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
			return hooks.BeforeToolCallResult{Action: hooks.ActionBlock, Reason: hooks.Reason{Text: "Nobody wipes."}}, nil
		}, append(opts, hooks.WithConfig(`{"block":"Nobody wipes."}`))...)}
		s.checked(t, h)
		load.Set = h.Set()
		if err := s.store.PutHookSetLoad(t.Context(), load); err != nil {
			t.Fatal(err)
		}
		load.Previous, load.Cause = load.Set.Digest, store.LoadSignal
		s.Advance(t, s.Start(t, s.Session(t), "wipe it"))
	}
}

// tellObserved leaves answers that observers changed and stopped, and what they
// emitted.
func tellObserved(t *testing.T, db *storetest.DB) {
	t.Helper()
	s := newStack(t, db, playing(looptest.Answers(looptest.Answer(
		looptest.Text("the answer "), looptest.Text("is "), looptest.Text("forty-two"), looptest.Finish(stream.FinishStop)))))
	for _, regs := range [][]stream.Registration{{amends, emits}, {emits, drops, stops}} {
		s.observe(t, hooks.Hooks{}, regs...)
		if run := s.Advance(t, s.Start(t, s.Session(t), "what is it?")); run.Status != loop.RunCompleted {
			t.Fatalf("the run is %s", run.Status)
		}
	}
}

// plugPuller cancels a run when it is about to ask a person.
type plugPuller struct {
	loop.Log
	commands *loop.Commands
}

func (p plugPuller) Append(ctx context.Context, a loop.Append) (loop.Appended, error) {
	for _, e := range a.Events {
		if e.Type != event.TypeApprovalRequested {
			continue
		}
		err := p.commands.CancelRun(ctx, loop.CancelRun{TenantID: a.TenantID, SessionID: a.SessionID, RunID: e.RunID, Actor: looptest.Tester})
		if err != nil {
			return loop.Appended{}, err
		}
	}
	return p.Log.Append(ctx, a)
}

func TestDeletingASessionThroughTheAPIErasesItsPayloads(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := decidingStack(t, db)
	gone, kept := decidedSession(t, s), decidedSession(t, s)
	if err := s.Commands.DeleteSession(t.Context(), looptest.Tenant, gone, looptest.Tester); err != nil {
		t.Fatal(err)
	}
	if left := scalar[[]string](t, db, `SELECT array_agg(DISTINCT d.session_id::text) FROM agentd.hook_payloads JOIN agentd.hook_decisions d USING (decision_id)`); !slices.Equal(left, []string{kept}) {
		t.Errorf("payloads of %v are left, want those of %s", left, kept)
	}
	if code, out, _ := ledgerCommand(t, db, "verify", "--all"); code != 0 || !strings.Contains(out, "12 decisions: 0 problems") {
		t.Errorf("verify: %d, %s", code, out)
	}
}

// TestDocumentedColumnsAreThoseThatAreExported: the order is what is hashed,
// which the script in examples shows to be right.
func TestDocumentedColumnsAreThoseThatAreExported(t *testing.T) {
	t.Parallel()
	_, canonical, _ := between(t, document(t, "docs", "ledger.md"), "canonical")
	documented := strings.Fields(strings.Trim(canonical, "`\n"))[1:] // without "text"
	db := storetest.New(t)
	s := decidingStack(t, db)
	_, line, _ := strings.Cut(string(exported(t, db, decidedSession(t, s))), `{"kind":"decision"`)
	line, _, _ = strings.Cut(line, `,"payload":`)
	var exportedColumns []string
	for _, m := range regexp.MustCompile(`,"(\w+)":`).FindAllStringSubmatch(line, -1) {
		exportedColumns = append(exportedColumns, m[1])
	}
	exportedColumns = slices.DeleteFunc(exportedColumns, func(name string) bool {
		return slices.Contains([]string{"prev_hash", "row_hash"}, name)
	})
	if !slices.Equal(documented, exportedColumns) {
		t.Errorf("docs/ledger.md says\n%q, an export has\n%q", documented, exportedColumns)
	}
}
