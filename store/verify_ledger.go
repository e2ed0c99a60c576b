package store

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// hookSets says at which gates a hook set has hooks, by digest.
type hookSets map[string]map[hooks.Gate]bool

func readHookSets(ctx context.Context, tx pgx.Tx, report *Report) (hookSets, error) {
	rows, _ := tx.Query(ctx, `
		SELECT digest, hooks, encode(sha256(convert_to(hooks::text, 'UTF8')), 'hex') FROM agentd.hook_sets ORDER BY digest`) // rows has the error
	sets := hookSets{}
	_, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
		var digest, sum string
		var list []byte
		if err := row.Scan(&digest, &list, &sum); err != nil {
			return struct{}{}, err
		}
		if sum != digest {
			report.add(Difference{Table: "hook_sets", Row: digest, Column: "hooks", Got: "a list with the digest " + sum, Want: digest})
		}
		var registered []hooks.Registration
		if err := json.Unmarshal(list, &registered); err != nil {
			return struct{}{}, fmt.Errorf("hook set %s: %w", digest, err)
		}
		sets[digest] = map[hooks.Gate]bool{}
		for _, r := range registered {
			sets[digest][r.Gate] = true
		}
		return struct{}{}, nil
	})
	return sets, err
}

// chain is the ledger of one session: whether it hangs together, and whether
// what was decided is what was done.
type chain struct {
	sessionID string
	report    *Report
	sets      hookSets
	// head is the last row as it is stored, and eventSeq the event it names.
	head     loop.LedgerHead
	eventSeq int64
	// hashes are the row hashes by ledger seq.
	hashes map[int64]string
	// owners are the tenants that rows name, and events the events that rows
	// name and that did not come yet; both with the keys of the rows.
	owners map[string][]string
	events map[int64][]string
	// answers are what hooks said of tool calls.
	answers map[asked][]given
	// started are the starts of the append that is being read.
	started []start
}

// asked is a position at a gate of tools; attempt is 0 for any.
type asked struct {
	gate    hooks.Gate
	callID  string
	attempt int
}

type given struct {
	action   hooks.Action
	eventSeq int64
}

// start is the moment at which a call needed a gate behind it.
type start struct {
	asked
	seq int64
}

func newChain(sessionID string, report *Report, sets hookSets) *chain {
	return &chain{
		sessionID: sessionID, report: report, sets: sets,
		owners: map[string][]string{}, hashes: map[int64]string{}, events: map[int64][]string{}, answers: map[asked][]given{},
	}
}

func (c *chain) key(ledgerSeq int64) string {
	return c.sessionID + "/" + strconv.FormatInt(ledgerSeq, 10)
}

func (c *chain) read(ctx context.Context, tx pgx.Tx) error {
	rows, _ := tx.Query(ctx, selectDecisions+` WHERE d.session_id = $1 ORDER BY d.ledger_seq`, c.sessionID) // rows has the error
	_, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
		d, err := scanDecision(row)
		if err == nil {
			c.add(d)
		}
		return struct{}{}, err
	})
	return err
}

func (c *chain) add(d storedDecision) {
	c.report.Decisions++
	key := c.key(d.LedgerSeq)
	differs := func(column, got, want string) {
		c.report.add(Difference{Table: "hook_decisions", Row: key, Column: column, Got: got, Want: want})
	}
	switch {
	case d.LedgerSeq != c.head.Seq+1:
		differs("ledger_seq", strconv.FormatInt(d.LedgerSeq, 10), strconv.FormatInt(c.head.Seq+1, 10))
	case d.PrevHash != c.head.Hash:
		differs("prev_hash", hex.EncodeToString(d.PrevHash[:]), hex.EncodeToString(c.head.Hash[:]))
	}
	if sum := d.Row.Hash(); sum != d.Hash {
		differs("row_hash", hex.EncodeToString(d.Hash[:]), hex.EncodeToString(sum[:]))
	}
	if d.EventSeq < c.eventSeq {
		differs("event_seq", strconv.FormatInt(d.EventSeq, 10), "at least "+strconv.FormatInt(c.eventSeq, 10))
	}
	c.head, c.eventSeq = loop.LedgerHead{Seq: d.LedgerSeq, Hash: d.Hash}, d.EventSeq
	c.hashes[d.LedgerSeq] = hex.EncodeToString(d.Hash[:])
	c.owners[d.TenantID] = append(c.owners[d.TenantID], key)
	c.events[d.EventSeq] = append(c.events[d.EventSeq], key)
	c.addPayload(d)
	if d.Effective {
		at := asked{d.Gate, d.Subject, 0}
		c.answers[at] = append(c.answers[at], given{d.Action, d.EventSeq})
		at.attempt = d.Attempt
		c.answers[at] = append(c.answers[at], given{d.Action, d.EventSeq})
	}
}

// addPayload compares what is left of the payload. One that was erased says
// nothing against the row.
func (c *chain) addPayload(d storedDecision) {
	at := Difference{Table: "hook_payloads", Row: d.ID}
	switch sum := d.Payload.Hash(d.Salt); {
	case !d.hasPayload:
		return
	case d.PayloadSHA256 == nil:
		at.Got, at.Want = "a row", "no row"
	case !bytes.Equal(sum[:], d.PayloadSHA256):
		at.Column, at.Got, at.Want = "reason, patch, annotations", "texts with the hash "+hex.EncodeToString(sum[:]), hex.EncodeToString(d.PayloadSHA256)
	default:
		return
	}
	c.report.add(at)
}

// committed says that there is an event of that seq.
func (c *chain) committed(seq int64) { delete(c.events, seq) }

// note finds the moments at which a call needs a gate behind it: when it is
// first let through, and whenever it is started. s is the state before e.
func (c *chain) note(s loop.State, e event.Event, p event.Payload) {
	var callID string
	var attempt int
	switch p := p.(type) {
	case event.RunCompleted:
		c.compare(p.LedgerMark, e.Seq)
	case event.RunFailed:
		c.compare(p.LedgerMark, e.Seq)
	case event.RunCancelled:
		c.compare(p.LedgerMark, e.Seq)
	case event.ApprovalRequested:
		callID = p.CallID
	case event.ToolStarted:
		callID, attempt = p.CallID, p.Attempt
	default:
		return
	}
	run, _ := s.Run(e.RunID)
	if run.HookSet == "" {
		return
	}
	gates, known := c.sets[run.HookSet]
	if !known {
		c.report.Unjudged++
		c.report.add(Difference{
			Table: "hook_sets", Row: run.HookSet, Got: "no row", Want: "the hooks that run " + e.RunID + " was claimed under",
		})
		return
	}
	if gates[hooks.GateBeforeToolCall] && isProposed(run, callID) {
		c.started = append(c.started, start{asked{hooks.GateBeforeToolCall, callID, 0}, e.Seq})
	}
	if gates[hooks.GateBeforeExecute] && attempt > 0 {
		c.started = append(c.started, start{asked{hooks.GateBeforeExecute, callID, attempt}, e.Seq})
	}
}

// compare holds the ledger against what the log says of it at the end of a run.
func (c *chain) compare(mark event.LedgerMark, seq int64) {
	if got := c.hashes[mark.LedgerSeq]; got != mark.LedgerHead {
		c.report.add(Difference{
			Table: "hook_decisions", Row: c.key(mark.LedgerSeq), Column: "row_hash",
			Got: got, Want: mark.LedgerHead + ", as event " + c.key(seq) + " says",
		})
	}
}

func isProposed(r loop.Run, callID string) bool {
	t, _ := r.Turn()
	return slices.ContainsFunc(t.Calls, func(k loop.Call) bool { return k.ID == callID && k.Status == loop.CallProposed })
}

// judge looks for the decisions behind the starts of an append, which ended
// with the event lastSeq. They were committed with it, or before.
func (c *chain) judge(lastSeq int64) {
	for _, s := range c.started {
		let, refused := false, false
		for _, g := range c.answers[s.asked] {
			refuses := g.action == hooks.ActionBlock || g.action == hooks.ActionTerminate
			let = let || g.eventSeq <= lastSeq && !refuses
			refused = refused || g.eventSeq <= lastSeq && refuses
		}
		if !let || refused {
			c.report.add(Difference{
				Table: "tool_calls", Row: s.callID, Column: "status",
				Got:  "let through by event " + c.key(s.seq),
				Want: "effective decisions of " + string(s.gate) + " that let it through",
			})
		}
	}
	c.started = c.started[:0]
}

// finish is for what takes the whole log.
func (c *chain) finish(s loop.State) {
	for _, seq := range slices.Sorted(maps.Keys(c.events)) {
		for _, key := range c.events[seq] {
			c.report.add(Difference{
				Table: "hook_decisions", Row: key, Column: "event_seq",
				Got: strconv.FormatInt(seq, 10), Want: fmt.Sprintf("the seq of an event, at most %d", s.LastSeq),
			})
		}
	}
	for _, tenant := range slices.Sorted(maps.Keys(c.owners)) {
		for _, key := range c.owners[tenant] {
			if tenant != s.TenantID {
				c.report.add(Difference{Table: "hook_decisions", Row: key, Column: "tenant_id", Got: quoted(tenant, true), Want: quoted(s.TenantID, true)})
			}
		}
	}
}
