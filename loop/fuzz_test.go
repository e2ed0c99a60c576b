package loop_test

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/audit"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// asksToPay is a bench whose run waits for an answer about a call of pay.
func asksToPay(t testing.TB, approvers ...string) (b *looptest.Bench, j loop.Job, approval string) {
	t.Helper()
	b = looptest.NewBench(looptest.NewLog(), calls("look", "pay"), looptest.Says("look", "seen"), looptest.Says("pay", "paid"))
	permit(b, loop.Permission{Tools: "pay", Mode: loop.PermissionAsk})
	agent := b.Engine.Agents["demo"]
	agent.Approvers = approvers
	b.Engine.Agents["demo"] = agent
	j = b.Start(t, b.Session(t), "hi")
	turn, _ := b.Advance(t, j).Turn()
	return b, j, turn.Calls[1].ApprovalID
}

// FuzzFold: the events of a log in any order, as often as one likes, and with
// payloads that break off. Fold does not panic, changes nothing where the tables
// refuse, and never has two runs active; nor does an audit of it panic.
func FuzzFold(f *testing.F) {
	b, j, approval := asksToPay(f)
	if _, err := b.Commands.DecideApproval(f.Context(), loop.DecideApproval{TenantID: looptest.Tenant, ApprovalID: approval, Approve: true, Actor: looptest.Tester}); err != nil {
		f.Fatal(err)
	}
	_, err := b.Commands.StartRun(f.Context(), loop.StartRun{TenantID: looptest.Tenant, SessionID: j.SessionID, Text: "and", Policy: event.PolicyEnqueue, Actor: looptest.Tester})
	if err != nil {
		f.Fatal(err)
	}
	b.Advance(f, next(f, b, j))
	log := b.Events(f, j.SessionID)
	inOrder := make([]byte, 0, 2*len(log))
	for i := range log {
		inOrder = append(inOrder, byte(i), 0)
	}
	f.Add(inOrder)
	backwards := slices.Clone(inOrder)
	slices.Reverse(backwards)
	f.Add(backwards)
	f.Add(slices.Concat(inOrder, inOrder))
	f.Add([]byte{0, 0, 1, 0, 2, 9, 3, 255})
	f.Fuzz(func(t *testing.T, order []byte) {
		var s loop.State
		var events []event.Event
		for pair := range slices.Chunk(order[:min(len(order), 200)&^1], 2) {
			e := log[int(pair[0])%len(log)]
			if pair[1] > 0 {
				e.Seq = s.LastSeq + int64(pair[1]%3)
				e.Payload = e.Payload[:len(e.Payload)*int(pair[1])/255]
			}
			events = append(events, e)
			refused := loop.Allows(s, e) != nil
			after := loop.Fold(s, e)
			if s.LastSeq = max(s.LastSeq, e.Seq); after.LastSeq != s.LastSeq || refused && !reflect.DeepEqual(after, s) {
				t.Fatalf("%s, refused: %t, makes %+v of %+v", e.Type, refused, after, s)
			}
			s = after
			active := 0
			for _, r := range s.Runs {
				if r.Status.Active() {
					active++
				}
			}
			if active > 1 {
				t.Fatalf("%d runs are active", active)
			}
		}
		if found := audit.Check(events, nil); bytes.Equal(order, inOrder) && len(found) > 0 {
			t.Fatalf("an honest log: %v", found)
		}
	})
}

// FuzzDecideApproval: whatever a person sends is an answer or an error, and after
// an error the log is as it was. Arguments that are taken are kept to the byte.
func FuzzDecideApproval(f *testing.F) {
	f.Add(true, false, "", "", "", "", "test")
	f.Add(false, true, `{"n":1}`, "", "", "because", "test")
	f.Add(false, true, `{"n":1`, "", "00", "\x00\xff", "somebody")
	f.Add(true, false, "", "happened", "", "", "test")
	f.Add(true, false, "", "expired", "", "", "")
	f.Fuzz(func(t *testing.T, approve, edits bool, arguments, outcome, sum, reason, actor string) {
		b, j, approval := asksToPay(t, "t*")
		before := b.Events(t, j.SessionID)
		cmd := loop.DecideApproval{
			TenantID: looptest.Tenant, ApprovalID: approval, Approve: approve, Outcome: event.ApprovalDecision(outcome),
			ArgumentsSHA256: sum, Reason: reason, Actor: event.Actor{Kind: event.ActorPrincipal, ID: actor},
		}
		if edits {
			cmd.Arguments = &arguments
		}
		out, err := b.Commands.DecideApproval(t.Context(), cmd)
		events, _ := checked(t, b, j.SessionID)
		if err != nil {
			if len(events) != len(before) || errors.Is(err, loop.ErrNotAllowed) {
				t.Fatalf("%v, and %d events became %d", err, len(before), len(events))
			}
			return
		}
		p := only[event.ApprovalDecided](t, events)
		if p.Decision != out.Decision || edits && outcome == "" && (p.EditedArguments == nil || *p.EditedArguments != arguments) {
			t.Fatalf("%+v is stored as %+v", cmd, p)
		}
		if again, err := b.Commands.DecideApproval(t.Context(), cmd); err != nil || !again.Repeated {
			t.Fatalf("the same again: %+v, %v", again, err)
		}
		if run := b.Advance(t, next(t, b, j)); run.Status != loop.RunCompleted {
			t.Fatalf("run %+v", run)
		}
		checked(t, b, j.SessionID)
	})
}

// FuzzStartRun: whatever a client sends is a run or an error, and after an error
// the log is as it was. The same request with the same key is the same run, and
// another one with it a conflict.
func FuzzStartRun(f *testing.F) {
	f.Add("hello", "", "", "", false)
	f.Add("hello", "key", "demo", "enqueue", false)
	f.Add("", "key", "", "", true)
	f.Add("\x00", "\x00", "nobody", "sometimes", true)
	f.Add(" ", "\xff", "demo", "interrupt", false)
	f.Fuzz(func(t *testing.T, text, key, agent, policy string, replace bool) {
		b := looptest.NewBench(looptest.NewLog(), says("hi"))
		j := b.Start(t, b.Session(t), "first")
		first := b.Advance(t, j)
		before := b.Events(t, j.SessionID)
		cmd := loop.StartRun{
			TenantID: looptest.Tenant, SessionID: j.SessionID, Text: text, IdempotencyKey: key, Agent: agent,
			Policy: event.Policy(policy), Actor: looptest.Tester,
		}
		if replace {
			cmd.ReplaceFrom = first.MessageID
		}
		out, err := b.Commands.StartRun(t.Context(), cmd)
		events, s := checked(t, b, j.SessionID)
		if err != nil {
			if len(events) != len(before) || !errors.Is(err, loop.ErrInvalid) {
				t.Fatalf("%v, and %d events became %d", err, len(before), len(events))
			}
			return
		}
		want, _ := event.CleanText(text)
		if replace && text == "" {
			want = "first"
		}
		if last := s.Messages[len(s.Messages)-1]; last.ID != out.MessageID || last.Text() != want || last.Role != hooks.RoleUser {
			t.Fatalf("%q is stored as %+v", text, last)
		}
		if key != "" {
			again, err := b.Commands.StartRun(t.Context(), cmd)
			if err != nil || again.RunID != out.RunID || !again.Repeated {
				t.Fatalf("the same again: %+v, %v; it was run %s", again, err, out.RunID)
			}
			cmd.Text += "!"
			if _, err := b.Commands.StartRun(t.Context(), cmd); !errors.Is(err, loop.ErrKeyReused) && !errors.Is(err, loop.ErrInvalid) {
				t.Fatalf("another request with the key: %v", err)
			}
		}
		if run := b.Advance(t, loop.Job{TenantID: looptest.Tenant, SessionID: j.SessionID, RunID: out.RunID, Ticket: 1}); run.Status != loop.RunCompleted {
			t.Fatalf("run %+v", run)
		}
		checked(t, b, j.SessionID)
	})
}
