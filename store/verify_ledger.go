package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/audit"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// hookSets has the hooks at each gate of a hook set, by digest.
type hookSets map[string]map[hooks.Gate][]hooks.Registration

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
		sets[digest] = map[hooks.Gate][]hooks.Registration{}
		for _, r := range registered {
			sets[digest][r.Gate] = append(sets[digest][r.Gate], r)
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
	links     links
	// hashes are the row hashes by ledger seq, and eventSeqs the events that
	// rows name.
	hashes    map[int64]string
	eventSeqs map[int64]int64
	// owners are the tenants that rows name, and events the events that rows
	// name and that did not come yet; both with the keys of the rows.
	owners map[string][]string
	events map[int64][]string
	// answers are what hooks said of tool calls.
	answers map[asked][]given
	// started are the starts of the append that is being read.
	started []start
	// decided is told of each row; nil is not.
	decided func(audit.Decision)
}

// asked is a position at a gate of tools.
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
	c := &chain{
		sessionID: sessionID, report: report, sets: sets,
		owners: map[string][]string{}, hashes: map[int64]string{}, eventSeqs: map[int64]int64{}, events: map[int64][]string{}, answers: map[asked][]given{},
	}
	c.links.report = c.differs
	c.links.begin()
	return c
}

func (c *chain) key(ledgerSeq int64) string {
	return c.sessionID + "/" + strconv.FormatInt(ledgerSeq, 10)
}

func (c *chain) read(ctx context.Context, tx pgx.Tx) error {
	w := &ledgerWalk{tx: tx}
	for {
		page, err := w.decisions(ctx, c.sessionID, c.links.seq)
		if err != nil {
			return err
		}
		for _, l := range page {
			if err := c.add(l); err != nil {
				return err
			}
		}
		if len(page) < decisionPage {
			return nil
		}
	}
}

// differs is the report of links.
func (c *chain) differs(p LedgerProblem) error {
	d := Difference{Table: "hook_decisions", Row: c.key(p.LedgerSeq), Column: p.Problem, Got: p.Got, Want: p.Want}
	switch p.Problem {
	case problemMissing:
		d.Column = "ledger_seq"
	case problemPayload:
		d.Table, d.Row, d.Column = "hook_payloads", p.DecisionID, "reason, patch, annotations"
	}
	c.report.add(d)
	return nil
}

func (c *chain) add(l *decisionLine) error {
	c.report.Decisions++
	key, before, eventSeq := c.key(l.LedgerSeq), c.links.eventSeq, orZero(l.EventSeq)
	if err := c.links.add(l); err != nil {
		return err
	}
	if eventSeq < before {
		c.report.add(Difference{
			Table: "hook_decisions", Row: key, Column: "event_seq",
			Got: strconv.FormatInt(eventSeq, 10), Want: "at least " + strconv.FormatInt(before, 10),
		})
	}
	if c.decided != nil {
		c.decided(audit.Decision{
			ID: orZero(l.DecisionID), RunID: orZero(l.RunID), WorkerID: orZero(l.WorkerID), Epoch: orZero(l.Epoch),
			LedgerSeq: l.LedgerSeq, EventSeq: eventSeq,
			Shadow: hooks.FailurePolicy(orZero(l.FailurePolicy)) == hooks.FailShadow, Effective: orZero(l.Effective), FailedOpen: orZero(l.FailedOpen),
		})
	}
	c.hashes[l.LedgerSeq], c.eventSeqs[l.LedgerSeq] = c.links.hash, eventSeq
	c.owners[orZero(l.TenantID)] = append(c.owners[orZero(l.TenantID)], key)
	c.events[eventSeq] = append(c.events[eventSeq], key)
	if orZero(l.Effective) {
		at := asked{hooks.Gate(orZero(l.Gate)), orZero(l.Subject), int(orZero(l.Attempt))}
		c.answers[at] = append(c.answers[at], given{hooks.Action(orZero(l.Action)), eventSeq})
	}
	return nil
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
	binds := func(gate hooks.Gate) bool {
		ref, tool := hooks.RunRef{TenantID: s.TenantID, Agent: run.Agent}, toolOf(run, callID)
		return slices.ContainsFunc(gates[gate], func(r hooks.Registration) bool { return r.Binds(ref, tool) })
	}
	if revision := revisionOf(run, callID); revision > 0 && binds(hooks.GateBeforeToolCall) {
		c.started = append(c.started, start{asked{hooks.GateBeforeToolCall, callID, revision}, e.Seq})
	}
	if attempt > 0 && binds(hooks.GateBeforeExecute) {
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
	// What is behind the mark is later.
	if next, ok := c.eventSeqs[mark.LedgerSeq+1]; ok && mark.LedgerSeq > 0 && next <= seq {
		c.report.add(Difference{
			Table: "hook_decisions", Row: c.key(mark.LedgerSeq + 1), Column: "event_seq",
			Got: strconv.FormatInt(next, 10), Want: "more than " + strconv.FormatInt(seq, 10) + ", with which a run ended before it",
		})
	}
}

// revisionOf is that of the arguments which hooks have to let through where the
// call goes on from here, 0 if they have done so.
func revisionOf(r loop.Run, callID string) int {
	t, _ := r.Turn()
	for _, k := range t.Calls {
		if k.ID == callID && (k.Status == loop.CallProposed || k.Status == loop.CallEdited) {
			return 1 + k.Edits
		}
	}
	return 0
}

// toolOf is the tool that a call of the run's turn is of.
func toolOf(r loop.Run, callID string) string {
	t, _ := r.Turn()
	for _, k := range t.Calls {
		if k.ID == callID {
			return k.Name
		}
	}
	return ""
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
