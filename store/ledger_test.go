package store_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// sparse is a decision that has nothing that may be missing.
func sparse(gate hooks.Gate, subject string) hooks.Decision {
	return hooks.Decision{
		ID: looptest.NewID(), At: time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC),
		Position: hooks.Position{Gate: gate, Subject: subject, Attempt: 1},
		Phase:    hooks.PhaseValidate, Index: 1, ChainLength: 1,
		HookID: "checker", HookKind: hooks.KindGo, Action: hooks.ActionContinue, Effective: true,
		Outcome: hooks.OutcomeOK, FailurePolicy: hooks.FailClosed,
	}
}

// full is a decision that has everything.
func full(runID string, turn int, gate hooks.Gate, subject string) hooks.Decision {
	d := sparse(gate, subject)
	d.RunID, d.Turn, d.Phase, d.Index, d.ChainLength = runID, turn, hooks.PhaseMutate, 2, 3
	d.HookKind, d.HookVersion, d.HookDigest, d.HookSetDigest, d.RuleID = hooks.KindRule, "1.2", "aa", "bb", "no <rm>"
	d.Action, d.Effective, d.Outcome, d.FailurePolicy, d.FailedOpen = hooks.ActionContinue, false, hooks.OutcomeTimeout, hooks.FailOpen, true
	d.ReasonCode, d.FieldsChanged = "hook.timeout", []string{`a"b\c`, "NULL", "d,{e}", "é"}
	d.InputSHA256, d.OutputSHA256, d.InputBytes, d.OutputBytes = sha256.Sum256([]byte("in")), sha256.Sum256([]byte("out")), 2, 3
	d.Queue, d.Latency, d.Deadline, d.TraceID = 12*time.Microsecond, 3456*time.Microsecond, 2*time.Second, "trace"
	d.Payload = hooks.Payload{Reason: "no answer", Patch: `[{"op": "remove"}]`, Annotations: `{"a": "b"}`}
	return d
}

// with adds decisions to a, chained to head and committed with its last event.
func with(a loop.Append, head loop.LedgerHead, decisions ...hooks.Decision) loop.Append {
	for _, d := range decisions {
		d.TenantID, d.SessionID = a.TenantID, a.SessionID
		row := loop.LedgerRow{Row: hooks.Row{
			Decision: d, LedgerSeq: head.Seq + 1, EventSeq: a.Expected + int64(len(a.Events)), PrevHash: head.Hash,
		}}
		if d.RunID != "" {
			row.Epoch, row.WorkerID = 7, looptest.NewID()
		}
		if !d.Payload.Empty() {
			row.Salt = sha256.Sum256([]byte(d.ID))
			sum := d.Payload.Hash(row.Salt)
			row.PayloadSHA256 = sum[:]
		}
		row.Hash = row.Row.Hash()
		head = loop.LedgerHead{Seq: row.LedgerSeq, Hash: row.Hash}
		a.Ledger = append(a.Ledger, row)
	}
	return a
}

func decisionsOf(t *testing.T, s *store.Store, sessionID string) []loop.DecisionInfo {
	t.Helper()
	found, err := s.ListDecisions(limit(t), looptest.Tenant, loop.DecisionFilter{SessionID: sessionID}, loop.Page{})
	if err != nil {
		t.Fatalf("list decisions: %v", err)
	}
	return found
}

func TestLedgerComesBackAsItWasWritten(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	id, runID := started(t, s)
	first := with(say(t, id, headOf(t, s, id).LastSeq), loop.LedgerHead{},
		sparse(hooks.GateBeforeInput, "input"), full(runID, 1, hooks.GateTransformContext, "1"))
	mustAppend(t, s, first)
	h := headOf(t, s, id)
	if want := (loop.LedgerHead{Seq: 2, Hash: first.Ledger[1].Hash}); h.Ledger != want {
		t.Errorf("ledger of the head %+v; want %+v", h.Ledger, want)
	}
	mustAppend(t, s, say(t, id, h.LastSeq)) // one without decisions leaves it
	second := with(say(t, id, h.LastSeq+1), h.Ledger, sparse(hooks.GateBeforeInput, "another"))
	mustAppend(t, s, second)
	if again := mustAppend(t, s, second); again.LastSeq != h.LastSeq+2 {
		t.Errorf("repeated: %+v; want seq %d", again, h.LastSeq+2)
	}
	loaded, err := s.Load(limit(t), looptest.Tenant, id, runID)
	if want := (loop.LedgerHead{Seq: 3, Hash: second.Ledger[0].Hash}); err != nil || loaded.Ledger != want {
		t.Errorf("ledger of the state %+v, %v; want %+v", loaded.Ledger, err, want)
	}
	found := decisionsOf(t, s, id)
	want := slices.Concat(first.Ledger, second.Ledger)
	if len(found) != len(want) {
		t.Fatalf("%d decisions; want %d", len(found), len(want))
	}
	for i, got := range found {
		if !reflect.DeepEqual(got.Row, want[i].Row) || got.Hash != want[i].Hash || got.PayloadErased {
			t.Errorf("decision %d\n got %+v\nwant %+v", i, got, want[i])
		}
	}
}

func TestLedgerBeginsWithItsSession(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{})
	id := looptest.NewID()
	a := with(appendOf(id, 0, encode(t, id, "", 0, event.SessionCreated{TenantID: looptest.Tenant})), loop.LedgerHead{},
		sparse(hooks.GateBeforeInput, "input"))
	mustAppend(t, s, a)
	if h := headOf(t, s, id); h.Ledger.Seq != 1 || h.Ledger.Hash != a.Ledger[0].Hash {
		t.Errorf("ledger %+v; want one row", h.Ledger)
	}
}

func TestLedgerGroupMembersSucceedOrFailByThemselves(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	g := newGate()
	s := startStore(t, db, store.Options{BeforeCommit: g.beforeCommit})
	const n = 50
	appends := make([]loop.Append, n)
	for i := range appends {
		id := newSession(t, s)
		appends[i] = say(t, id, 1)
		switch {
		case i == 11: // behind a row that there is not
			appends[i] = with(appends[i], loop.LedgerHead{Seq: 4, Hash: sha256.Sum256(nil)}, sparse(hooks.GateBeforeInput, "i"))
		case i == 22: // at the right place, on another row
			first := with(say(t, id, 1), loop.LedgerHead{}, sparse(hooks.GateBeforeInput, "i"))
			mustAppend(t, s, first)
			appends[i] = with(say(t, id, 2), loop.LedgerHead{Seq: 1, Hash: sha256.Sum256(nil)}, sparse(hooks.GateBeforeInput, "j"))
		case i == 44: // on the right row, at the wrong place
			appends[i] = with(appends[i], loop.LedgerHead{Seq: 4}, sparse(hooks.GateBeforeInput, "i"))
		case i == 33: // at a seq that has passed
			appends[i] = with(say(t, id, 5), loop.LedgerHead{}, sparse(hooks.GateBeforeInput, "i"))
		case i%3 == 0:
			appends[i] = with(appends[i], loop.LedgerHead{}, sparse(hooks.GateBeforeInput, "i"), full("", 0, hooks.GateBeforeInput, "i"))
		case i%3 == 1:
			appends[i] = with(appends[i], loop.LedgerHead{}, full("", 0, hooks.GateBeforeInput, "i"))
		}
	}
	door := newSession(t, s)
	g.stopNext()
	first := begin(t, s, say(t, door, 1))
	<-g.held // what comes now is one group
	before := g.commits.Load()
	answers := make([]<-chan result, n)
	for i, a := range appends {
		answers[i] = begin(t, s, a)
	}
	until(t, "all wait", func(context.Context) (bool, error) { return store.Pending(s) == n, nil })
	g.release()
	<-first
	for i, answer := range answers {
		r := <-answer
		bad := slices.Contains([]int{11, 22, 33, 44}, i)
		if bad && !errors.Is(r.err, loop.ErrConflict) || !bad && r.err != nil {
			t.Errorf("member %d: %+v, %v", i, r.got, r.err)
		}
		want := int64(len(appends[i].Ledger))
		if bad {
			want = 0
		}
		if i == 22 {
			want = 1
		}
		if got := headOf(t, s, appends[i].SessionID).Ledger.Seq; got != want {
			t.Errorf("member %d has %d decisions; want %d", i, got, want)
		}
	}
	if commits := g.commits.Load() - before; commits != 1 {
		t.Errorf("%d commits; want one for the whole group", commits)
	}
}

func TestLedgerOfRacingProcessesIsOneChain(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	stores := []*store.Store{startStore(t, db, store.Options{}), startStore(t, db, store.Options{})}
	id := newSession(t, stores[0])
	const each = 20
	var all sync.WaitGroup
	for _, s := range stores {
		all.Go(func() {
			for n := 0; n < each; {
				h, err := s.Head(t.Context(), looptest.Tenant, id)
				if err != nil {
					t.Errorf("head: %v", err)
					return
				}
				_, err = s.Append(t.Context(), with(say(t, id, h.LastSeq), h.Ledger, sparse(hooks.GateBeforeInput, "i"), full("", 0, hooks.GateBeforeInput, "i")))
				switch {
				case err == nil:
					n++
				case !errors.Is(err, loop.ErrConflict):
					t.Errorf("append: %v", err)
					return
				}
			}
		})
	}
	all.Wait()
	if h := headOf(t, stores[0], id); h.Ledger.Seq != 4*each {
		t.Errorf("%d decisions; want %d", h.Ledger.Seq, 4*each)
	}
}

func TestLedgerRefusesWhatIsNoChain(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{})
	id := newSession(t, s)
	// sealed makes the hash right again, as a caller would.
	sealed := func(r *loop.LedgerRow) { r.Hash = r.Row.Hash() }
	for name, change := range map[string]func(a *loop.Append, second *loop.LedgerRow){
		"TenantID":       func(_ *loop.Append, r *loop.LedgerRow) { r.TenantID = "other"; sealed(r) },
		"SessionID":      func(_ *loop.Append, r *loop.LedgerRow) { r.SessionID = looptest.NewID(); sealed(r) },
		"Hole":           func(_ *loop.Append, r *loop.LedgerRow) { r.LedgerSeq = 3; sealed(r) },
		"AtZero":         func(a *loop.Append, _ *loop.LedgerRow) { a.Ledger[0].LedgerSeq = 0; sealed(&a.Ledger[0]) },
		"EventBefore":    func(_ *loop.Append, r *loop.LedgerRow) { r.EventSeq = 1; sealed(r) },
		"EventAfter":     func(_ *loop.Append, r *loop.LedgerRow) { r.EventSeq = 3; sealed(r) },
		"Hash":           func(_ *loop.Append, r *loop.LedgerRow) { r.Action = hooks.ActionBlock },
		"PrevHash":       func(_ *loop.Append, r *loop.LedgerRow) { r.PrevHash[0]++; sealed(r) },
		"PrevHashOfNone": func(a *loop.Append, _ *loop.LedgerRow) { a.Ledger[0].PrevHash[0]++; sealed(&a.Ledger[0]) },
		"PayloadHash":    func(_ *loop.Append, r *loop.LedgerRow) { r.Payload.Reason = "another" },
		"PayloadNoHash":  func(_ *loop.Append, r *loop.LedgerRow) { r.PayloadSHA256 = nil; sealed(r) },
		"DecisionID":     func(_ *loop.Append, r *loop.LedgerRow) { r.ID = "nope"; sealed(r) },
		"RunID":          func(_ *loop.Append, r *loop.LedgerRow) { r.RunID = "nope"; sealed(r) },
		"WorkerID":       func(_ *loop.Append, r *loop.LedgerRow) { r.WorkerID = "nope"; sealed(r) },
		"UnknownPhase":   func(_ *loop.Append, r *loop.LedgerRow) { r.Phase = "late"; sealed(r) },
		"NoZeroByte":     func(_ *loop.Append, r *loop.LedgerRow) { r.HookID = "a\x00b"; sealed(r) },
	} {
		a := with(say(t, id, 1), loop.LedgerHead{}, sparse(hooks.GateBeforeInput, "i"), full("", 0, hooks.GateBeforeInput, "i"))
		change(&a, &a.Ledger[1])
		if _, err := s.Append(limit(t), a); err == nil || errors.Is(err, loop.ErrConflict) {
			t.Errorf("%s: %v; want a refusal", name, err)
		}
	}
	if h := headOf(t, s, id); h.LastSeq != 1 || h.Ledger.Seq != 0 {
		t.Errorf("head %+v; want nothing written", h)
	}
}

func mild(context.Context, hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
	return hooks.BeforeToolCallResult{Action: hooks.ActionContinue}, nil
}

func TestLedgerRefusesChanges(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{})
	id := newSession(t, s)
	mustAppend(t, s, with(say(t, id, 1), loop.LedgerHead{}, full("", 0, hooks.GateBeforeInput, "i"), full("", 0, hooks.GateBeforeInput, "i")))
	if err := s.PutHookSet(limit(t), hooks.Hooks{BeforeToolCall: hooks.Named("deny", "1", mild)}.Set()); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		`UPDATE agentd.hook_decisions SET action = 'block'`, `DELETE FROM agentd.hook_decisions`,
		`TRUNCATE agentd.hook_decisions CASCADE`,
		`UPDATE agentd.hook_sets SET hooks = '[]'`, `DELETE FROM agentd.hook_sets`, `TRUNCATE agentd.hook_sets CASCADE`,
	} {
		if _, err := db.Pool.Exec(limit(t), sql); err == nil || !strings.Contains(err.Error(), "append-only") {
			t.Errorf("%s: %v; want a refusal", sql, err)
		}
	}
	first := decisionsOf(t, s, id)[0]
	if _, err := db.Pool.Exec(limit(t), `DELETE FROM agentd.hook_payloads WHERE decision_id = $1`, first.ID); err != nil {
		t.Fatalf("erase: %v", err)
	}
	found := decisionsOf(t, s, id)
	if !found[0].PayloadErased || !found[0].Payload.Empty() || found[1].PayloadErased || found[1].Payload.Empty() {
		t.Errorf("after erasing the first: %+v", found)
	}
}

func TestLedgerListIsPagedAndScoped(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	exec(t, db, `INSERT INTO agentd.tenants (id, name) VALUES ('another', 'Another')`)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	id, runID := started(t, s)
	h := headOf(t, s, id)
	mustAppend(t, s, with(say(t, id, h.LastSeq), loop.LedgerHead{}, sparse(hooks.GateBeforeInput, "i"),
		full(runID, 1, hooks.GateTransformContext, "1"), full(runID, 0, hooks.GateBeforeRunStart, runID)))
	other := newSession(t, s)
	mustAppend(t, s, with(say(t, other, 1), loop.LedgerHead{}, sparse(hooks.GateBeforeInput, "i")))

	seqs := func(filter loop.DecisionFilter, page loop.Page) (out []int64, last string) {
		t.Helper()
		found, err := s.ListDecisions(limit(t), looptest.Tenant, filter, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range found {
			out, last = append(out, d.LedgerSeq), d.ID
		}
		return out, last
	}
	of := loop.DecisionFilter{SessionID: id}
	got, last := seqs(of, loop.Page{Limit: 2})
	rest, _ := seqs(of, loop.Page{Limit: 2, After: last})
	if want := []int64{1, 2, 3}; !reflect.DeepEqual(append(got, rest...), want) {
		t.Errorf("pages %v and %v; want %v", got, rest, want)
	}
	if got, _ := seqs(loop.DecisionFilter{RunID: runID, SessionID: id}, loop.Page{}); !reflect.DeepEqual(got, []int64{2, 3}) {
		t.Errorf("of the run %v; want 2 and 3", got)
	}
	for name, test := range map[string]struct {
		tenant string
		filter loop.DecisionFilter
		after  string
		want   error
	}{
		"NeitherSessionNorRun":   {looptest.Tenant, loop.DecisionFilter{}, "", loop.ErrInvalid},
		"ForeignSession":         {another, of, "", loop.ErrNotFound},
		"ForeignRun":             {another, loop.DecisionFilter{RunID: runID}, "", loop.ErrNotFound},
		"NoRun":                  {looptest.Tenant, loop.DecisionFilter{RunID: "nope"}, "", loop.ErrNotFound},
		"RunOfAnotherSession":    {looptest.Tenant, loop.DecisionFilter{RunID: runID, SessionID: other}, "", loop.ErrNotFound},
		"AfterSomethingElse":     {looptest.Tenant, of, looptest.NewID(), loop.ErrNotFound},
		"AfterNonsense":          {looptest.Tenant, of, "nope", loop.ErrNotFound},
		"TenantThatCannotBeHere": {"a\x00", of, "", loop.ErrNotFound},
	} {
		if _, err := s.ListDecisions(limit(t), test.tenant, test.filter, loop.Page{After: test.after}); !errors.Is(err, test.want) {
			t.Errorf("%s: %v; want %v", name, err, test.want)
		}
	}
}

func TestPutHookSetKeepsTheFirst(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{})
	set := hooks.Hooks{BeforeExecute: hooks.Named("no <rm> & co", "1", func(context.Context, hooks.BeforeExecute) (hooks.BeforeExecuteResult, error) {
		return hooks.BeforeExecuteResult{Action: hooks.ActionContinue}, nil
	})}.Set()
	for range 2 {
		if err := s.PutHookSet(limit(t), set); err != nil {
			t.Fatal(err)
		}
	}
	var n int
	var gate, sum string
	err := db.Pool.QueryRow(limit(t), `
		SELECT count(*) OVER (), hooks -> 0 ->> 'gate', encode(sha256(convert_to(hooks::text, 'UTF8')), 'hex') FROM agentd.hook_sets`).Scan(&n, &gate, &sum)
	if err != nil || n != 1 || gate != "BeforeExecute" || sum != set.Digest {
		t.Errorf("%d sets, gate %q, digest %s, %v; want one with digest %s", n, gate, sum, err, set.Digest)
	}
	if err := s.PutHookSet(limit(t), hooks.HookSet{Digest: "short"}); err == nil {
		t.Error("a set without a digest: no error")
	}
}

func hexOf(sum [32]byte) string { return hex.EncodeToString(sum[:]) }
