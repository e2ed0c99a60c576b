package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// script is the SQL of one reference run without agentd: the rows that a real
// one has left, to be written again under other ids in four transactions, each
// a batch of plain statements and one round trip. Projections that agentd
// changes on the way are inserted and then updated as often as four
// transactions need.
type script struct {
	seed []statement // the session, as it was before the message
	txs  [4][]statement
	ids  int // how many ids the rows have
	rows int // that the four transactions insert
}

// statement has parameters, of which those in ids are filled in for each run.
type statement struct {
	sql  string
	args []any
	ids  []idArg
}

// idArg is a parameter that is an id, or a list of ids. −1 is NULL.
type idArg struct {
	arg   int
	ids   []int
	array bool
}

// runIDs are the ids of one run.
type runIDs []pgtype.UUID

func (s *script) newIDs() runIDs {
	ids := make(runIDs, s.ids)
	for i := range ids {
		ids[i] = pgtype.UUID{Bytes: uuid.Must(uuid.NewV7()), Valid: true}
	}
	return ids
}

func (st *statement) queue(b *pgx.Batch, ids runIDs) {
	args := slices.Clone(st.args)
	pick := func(i int) pgtype.UUID {
		if i < 0 {
			return pgtype.UUID{}
		}
		return ids[i]
	}
	for _, a := range st.ids {
		if !a.array {
			args[a.arg] = pick(a.ids[0])
			continue
		}
		list := make([]pgtype.UUID, len(a.ids))
		for i, id := range a.ids {
			list[i] = pick(id)
		}
		args[a.arg] = list
	}
	b.Queue(st.sql, args...)
}

// seedAll writes the sessions of runs that are still to be made.
func (s *script) seedAll(ctx context.Context, pool *pgxpool.Pool, n int) ([]runIDs, error) {
	all := make([]runIDs, n)
	const page = 200
	for from := 0; from < n; from += page {
		var b pgx.Batch
		for i := from; i < min(from+page, n); i++ {
			all[i] = s.newIDs()
			for k := range s.seed {
				s.seed[k].queue(&b, all[i])
			}
		}
		if err := pool.SendBatch(ctx, &b).Close(); err != nil {
			return nil, fmt.Errorf("make sessions for the run's own SQL: %w", err)
		}
	}
	return all, nil
}

// play writes one run.
func (s *script) play(ctx context.Context, pool *pgxpool.Pool, ids runIDs) error {
	for i := range s.txs {
		var b pgx.Batch
		for k := range s.txs[i] {
			s.txs[i][k].queue(&b, ids)
		}
		if err := pool.SendBatch(ctx, &b).Close(); err != nil {
			return fmt.Errorf("the run's own SQL, transaction %d: %w", i+1, err)
		}
	}
	return nil
}

// writer turns rows into statements, and ids into places to fill.
type writer struct {
	known map[[16]byte]int
	fixed map[[16]byte]bool // ids that are not the run's own
	rows  int
}

func (w *writer) id(v any) (index int, own bool) {
	bytes, ok := v.([16]byte)
	switch {
	case v == nil:
		return -1, true
	case !ok || w.fixed[bytes]:
		return 0, false
	}
	n, ok := w.known[bytes]
	if !ok {
		n = len(w.known)
		w.known[bytes] = n
	}
	return n, true
}

// insert writes rows in one statement, as agentd does.
func (w *writer) insert(t *table, rows ...record) []statement {
	if len(rows) == 0 {
		return nil
	}
	w.rows += len(rows)
	st := statement{}
	var values, params []string
	for i, name := range t.names {
		cast, typ := "", t.types[i]
		if isText(typ) {
			cast, typ = "::"+typ, "text"
		}
		values = append(values, "c."+name+cast)
		params = append(params, "$"+strconv.Itoa(i+1)+"::"+typ+"[]")
		list := make([]any, len(rows))
		ids, own := make([]int, len(rows)), typ == "uuid"
		for k, r := range rows {
			list[k] = r[name]
			if own {
				ids[k], own = w.id(r[name])
			}
		}
		st.args = append(st.args, list)
		if own {
			st.ids = append(st.ids, idArg{arg: i, ids: ids, array: true})
		}
	}
	names := strings.Join(t.names, ", ")
	st.sql = `INSERT INTO ` + t.name + ` (` + names + `) SELECT ` + strings.Join(values, ", ") +
		` FROM unnest(` + strings.Join(params, ", ") + `) AS c (` + names + `)`
	return []statement{st}
}

// update writes what differs between two states of a row.
func (w *writer) update(t *table, from, to record, keys ...string) []statement {
	st := statement{}
	param := func(i int, v any) string {
		typ := t.types[i]
		cast := "::" + typ
		if isText(typ) {
			cast = "::text::" + typ
		}
		st.args = append(st.args, v)
		if n, own := w.id(v); own && typ == "uuid" {
			st.ids = append(st.ids, idArg{arg: len(st.args) - 1, ids: []int{n}})
		}
		return "$" + strconv.Itoa(len(st.args)) + cast
	}
	var set, where []string
	for i, name := range t.names {
		if !reflect.DeepEqual(from[name], to[name]) {
			set = append(set, name+" = "+param(i, to[name]))
		}
	}
	for _, key := range keys {
		where = append(where, key+" = "+param(slices.Index(t.names, key), from[key]))
	}
	if len(set) == 0 {
		return nil
	}
	st.sql = `UPDATE ` + t.name + ` SET ` + strings.Join(set, ", ") + ` WHERE ` + strings.Join(where, " AND ")
	return []statement{st}
}

// readScript makes a script of the one run that a session has.
func readScript(ctx context.Context, database, sessionID string) (_ *script, err error) {
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	tables := map[string]*table{}
	for name, order := range map[string]string{
		"sessions": "id", "events": "seq", "runs": "created_seq", "turns": "turn_no", "messages": "seq",
		"tool_calls": "id", "hook_decisions": "ledger_seq",
	} {
		key := "session_id"
		if name == "sessions" {
			key = "id"
		}
		if tables[name], err = readTable(ctx, conn, name, key+" = $1 ORDER BY "+order, sessionID); err != nil {
			return nil, err
		}
	}
	tables["hook_payloads"], err = readTable(ctx, conn, "hook_payloads", `decision_id IN (
		SELECT decision_id FROM agentd.hook_decisions WHERE session_id = $1)`, sessionID)
	if err != nil {
		return nil, err
	}
	return newScript(tables)
}

// newScript puts the rows where they belong: into the transaction of the event
// that made them.
func newScript(t map[string]*table) (*script, error) {
	for name, want := range map[string]int{"sessions": 1, "runs": 1, "turns": 2, "tool_calls": 1} {
		if got := len(t[name].rows); got != want {
			return nil, fmt.Errorf("the recorded run has %d rows in %s, want %d: the reference run has changed", got, name, want)
		}
	}
	first, err := boundaries(t["events"].rows)
	if err != nil {
		return nil, err
	}
	w := &writer{known: map[[16]byte]int{}, fixed: map[[16]byte]bool{}}
	// No worker has a row for each run.
	for _, r := range t["hook_decisions"].rows {
		if id, ok := r["worker_id"].([16]byte); ok {
			w.fixed[id] = true
		}
	}
	s := &script{}
	session := sessionStates(t, first)
	s.seed = slices.Concat(w.insert(t["sessions"], session[0]), w.insert(t["events"], t["events"].rows[0]))
	w.rows = 0
	for i := range s.txs {
		within := func(name, seq string) []record {
			return slices.DeleteFunc(slices.Clone(t[name].rows), func(r record) bool {
				n := r.number(seq)
				return n < first[i] || n >= first[i+1]
			})
		}
		decisions := within("hook_decisions", "event_seq")
		s.txs[i] = slices.Concat(
			w.update(t["sessions"], session[i], session[i+1], "id", "last_seq"),
			w.insert(t["events"], within("events", "seq")...),
			w.insert(t["messages"], within("messages", "seq")...),
			w.insert(t["hook_decisions"], decisions...),
			w.insert(t["hook_payloads"], slices.DeleteFunc(slices.Clone(t["hook_payloads"].rows), func(p record) bool {
				return !slices.ContainsFunc(decisions, func(d record) bool { return d["decision_id"] == p["decision_id"] })
			})...),
		)
	}
	w.projections(s, t)
	s.ids, s.rows = len(w.known), w.rows
	return s, nil
}

// boundaries are the first seqs of the four transactions, and one above the
// last: the message; the first model call, up to the tool's start; the tool and
// the request of the second model call; its answer and the end.
func boundaries(events []record) ([5]int64, error) {
	var b [5]int64
	b[0] = 2 // the session is there
	for _, e := range events {
		seq, typ := e.number("seq"), e.text("type")
		switch {
		case typ == "run.started":
			b[1] = seq
		case typ == "tool.executed":
			b[2] = seq
		case b[2] != 0 && b[3] == 0 && strings.HasPrefix(typ, "assistant."):
			b[3] = seq
		}
		b[4] = seq + 1
	}
	if b[1] == 0 || b[2] == 0 || b[3] == 0 || len(events) == 0 || events[len(events)-1].text("type") != "run.completed" {
		return b, errors.New("the recorded run lacks an event of the reference run: it has changed")
	}
	return b, nil
}

// sessionStates are the row of the session before the first and after each of
// the transactions.
func sessionStates(t map[string]*table, first [5]int64) (states [5]record) {
	final := t["sessions"].rows[0]
	for i, next := range first {
		state := record{"last_seq": next - 1, "ledger_seq": int64(0), "ledger_head": nil}
		for _, e := range t["events"].rows {
			if e.number("seq") < next {
				state["append_id"], state["updated_at"] = e["append_id"], e["at"]
			}
		}
		if i < 2 {
			state["run_epoch"] = int64(0)
		}
		for _, d := range t["hook_decisions"].rows {
			if d.number("event_seq") < next {
				state["ledger_seq"], state["ledger_head"] = d["ledger_seq"], d["row_hash"]
			}
		}
		states[i] = final.with(state)
	}
	return states
}

// projections adds runs, turns and tool calls, in the states that they have
// after each of the transactions.
func (w *writer) projections(s *script, t map[string]*table) {
	runs, turns, calls := t["runs"], t["turns"], t["tool_calls"]
	ended := runs.rows[0]
	queued := ended.with(record{
		"status": "queued", "epoch": int64(0), "hook_set": nil, "started_at": nil, "ended_at": nil, "ended_seq": nil, "reason": nil,
	})
	var worker any
	for id := range w.fixed {
		worker = id
	}
	if worker == nil {
		worker = [16]byte{1}
		w.fixed[[16]byte{1}] = true
	}
	running := ended.with(record{"status": "running", "worker_id": worker, "ended_at": nil, "ended_seq": nil, "reason": nil})
	answered := turns.rows[0].with(record{"status": "answered", "completed_at": nil})
	calling := turns.rows[1].with(record{
		"status": "calling", "message_id": nil, "finish_reason": nil, "finish_raw": nil,
		"input_tokens": int64(0), "output_tokens": int64(0), "completed_at": nil,
	})
	started := calls.rows[0].with(record{
		"status": "started", "success": nil, "output_sha256": nil, "output_bytes": nil, "is_error": nil, "result_reason": nil,
		"result_message_id": nil, "executed_at": nil, "done_at": nil,
	})
	for i, more := range [4][][]statement{
		{w.insert(runs, queued)},
		{w.update(runs, queued, running, "id"), w.insert(turns, answered), w.insert(calls, started)},
		{w.update(calls, started, calls.rows[0], "id"), w.update(turns, answered, turns.rows[0], "run_id", "turn_no"), w.insert(turns, calling)},
		{w.update(turns, calling, turns.rows[1], "run_id", "turn_no"), w.update(runs, running, ended, "id")},
	} {
		// Messages and decisions name runs, so runs come first, as they do in
		// agentd's own group.
		s.txs[i] = slices.Concat(s.txs[i][:1], slices.Concat(more...), s.txs[i][1:])
	}
}
