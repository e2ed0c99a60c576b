package store_test

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// What a column may hold, with the values that are easily got wrong.
var (
	anyText = rapid.OneOf(
		rapid.SampledFrom([]string{"", "NULL", "null", `\x00`, `a"b\c`, "{}", "é", "e\u0301", "\ufeff", "\ufffd", "😀", "\u2028", "\t\r\n", "Ａ", strings.Repeat("ж", 300)}),
		rapid.Map(rapid.String(), func(s string) string {
			return strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "\ufffd")
		}))
	anyInt64 = rapid.OneOf(rapid.SampledFrom([]int64{0, 1, -1, 255, 256, math.MaxInt32, math.MaxInt32 + 1, math.MaxInt64, math.MinInt64}), rapid.Int64())
	anyInt   = rapid.OneOf(rapid.SampledFrom([]int{0, 1, -1, math.MaxInt32, math.MinInt32}), rapid.IntRange(math.MinInt32, math.MaxInt32))
	// In microseconds since 1970: what both Postgres and Go can say.
	anyTime = rapid.OneOf(
		rapid.SampledFrom([]int64{
			0, 1, -1, 999_999, 1_000_000, -1_000_001, 946_684_799_999_999, 946_684_800_000_000, 1767323045678901, 253_402_300_800_000_000,
			-62_135_596_800_000_001, -210_866_803_200_000_000, math.MaxInt64 - 1,
		}),
		rapid.Int64Range(-210_866_803_200_000_000, math.MaxInt64-1))
	anyUUID   = rapid.Map(anyDigest, func(d [32]byte) string { return uuid.UUID(d[:16]).String() })
	anyDigest = rapid.Custom(func(t *rapid.T) (d [32]byte) {
		copy(d[:], rapid.OneOf(rapid.Just(make([]byte, 32)), rapid.SliceOfN(rapid.Byte(), 32, 32)).Draw(t, "digest"))
		return d
	})
	// Durations are stored in units that overflow before the columns do.
	anyMicros = rapid.Map(anyInt64, func(n int64) time.Duration { return time.Duration(n/1e3) * time.Microsecond })
	anyMillis = rapid.Map(anyInt64, func(n int64) time.Duration { return time.Duration(n/1e6) * time.Millisecond })
)

// anyRow draws each column by itself, whether they make sense together or not.
func anyRow(t *rapid.T) hooks.Row {
	text := func(name string) string { return anyText.Draw(t, name) }
	number := func(name string) int64 { return anyInt64.Draw(t, name) }
	small := func(name string) int { return anyInt.Draw(t, name) }
	id := func(name string) string {
		if rapid.Bool().Draw(t, "no "+name) {
			return ""
		}
		return anyUUID.Draw(t, name)
	}
	r := hooks.Row{
		Decision: hooks.Decision{
			ID: anyUUID.Draw(t, "id"), At: time.UnixMicro(anyTime.Draw(t, "at")).UTC(),
			Position: hooks.Position{
				TenantID: text("tenant"), SessionID: anyUUID.Draw(t, "session"), RunID: id("run"), Turn: small("turn"),
				Gate: hooks.Gate(text("gate")), Subject: text("subject"), Attempt: small("attempt"),
			},
			Phase: hooks.Phase(text("phase")), Index: small("position"), ChainLength: small("chain"),
			HookID: text("hook"), HookKind: hooks.Kind(text("kind")), HookVersion: text("version"), HookDigest: text("digest"),
			HookSetDigest: text("set"), RuleID: text("rule"),
			Action: hooks.Action(text("action")), Effective: rapid.Bool().Draw(t, "effective"), Outcome: hooks.Outcome(text("outcome")),
			FailurePolicy: hooks.FailurePolicy(text("policy")), FailedOpen: rapid.Bool().Draw(t, "open"), ReasonCode: text("code"),
			FieldsChanged: rapid.SliceOfN(anyText, 0, 3).Draw(t, "fields"),
			InputSHA256:   anyDigest.Draw(t, "input"), OutputSHA256: anyDigest.Draw(t, "output"),
			InputBytes: int(number("input bytes")), OutputBytes: int(number("output bytes")),
			Queue: anyMicros.Draw(t, "queue"), Latency: anyMicros.Draw(t, "latency"), Deadline: anyMillis.Draw(t, "deadline"), TraceID: text("trace"),
			Payload: hooks.Payload{Reason: text("reason"), Patch: text("patch"), Annotations: text("annotations")},
		},
		LedgerSeq: number("seq"), EventSeq: number("event"), Epoch: number("epoch"), WorkerID: id("worker"), PrevHash: anyDigest.Draw(t, "prev"),
	}
	if rapid.Bool().Draw(t, "has a payload") {
		sum := anyDigest.Draw(t, "payload")
		r.PayloadSHA256 = sum[:]
	}
	return r
}

// orNull is NULL for "" and 0, as the store writes them.
func orNull[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}

// stored are the columns of the row but row_hash, in the table's order.
func stored(r hooks.Row) []any {
	fields := r.FieldsChanged
	if fields == nil {
		fields = []string{}
	}
	payload := any(nil)
	if r.PayloadSHA256 != nil {
		payload = r.PayloadSHA256
	}
	return []any{
		r.SessionID, r.LedgerSeq, r.ID, r.At, r.TenantID, orNull(r.RunID), orNull(r.Turn), string(r.Gate), r.Subject, r.Attempt,
		string(r.Phase), r.Index, r.ChainLength, r.HookID, string(r.HookKind), orNull(r.HookVersion), orNull(r.HookDigest), orNull(r.HookSetDigest), orNull(r.RuleID),
		string(r.Action), r.Effective, string(r.Outcome), string(r.FailurePolicy), r.FailedOpen, orNull(r.ReasonCode), fields,
		r.InputSHA256[:], r.OutputSHA256[:], r.InputBytes, r.OutputBytes, r.EventSeq, orNull(r.Epoch), orNull(r.WorkerID),
		r.Queue.Microseconds(), r.Latency.Microseconds(), r.Deadline.Milliseconds(), orNull(r.TraceID), payload, r.PrevHash[:],
	}
}

func TestSQLHashesWhatGoHashes(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	// Of the same columns, without the constraints: hashes do not know them.
	exec(t, db, `CREATE TABLE rows (LIKE agentd.hook_decisions); ALTER TABLE rows DROP COLUMN row_hash; CREATE TABLE payloads (LIKE agentd.hook_payloads)`)
	var columns []string
	if err := db.Pool.QueryRow(limit(t), `SELECT array_agg(attname::text ORDER BY attnum) FROM pg_attribute
		WHERE attrelid = 'rows'::regclass AND attnum > 0 AND NOT attisdropped`).Scan(&columns); err != nil {
		t.Fatal(err)
	}
	nullable := strings.Fields("run_id turn_no hook_version hook_digest hook_set_digest rule_id reason_code epoch worker_id trace_id payload_sha256")
	nulls, full := map[int]bool{}, map[int]bool{}
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SliceOfN(rapid.Custom(anyRow), 1, 20).Draw(t, "rows")
		var decisions, payloads [][]any
		salt := anyDigest.Draw(t, "salt")
		for i, r := range rows {
			r.TenantID = strings.Repeat("t", i) // which one it is
			rows[i] = r
			decisions = append(decisions, stored(r))
			p := r.Payload
			payloads = append(payloads, []any{r.ID, r.TenantID, salt[:], orNull(p.Reason), orNull(p.Patch), orNull(p.Annotations)})
			for c, v := range stored(r) {
				nulls[c], full[c] = nulls[c] || v == nil, full[c] || v != nil
			}
		}
		err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
			if _, err := tx.CopyFrom(t.Context(), pgx.Identifier{"rows"}, columns, pgx.CopyFromRows(decisions)); err != nil {
				return err
			}
			_, err := tx.CopyFrom(t.Context(), pgx.Identifier{"payloads"},
				[]string{"decision_id", "tenant_id", "salt", "reason", "patch", "annotations"}, pgx.CopyFromRows(payloads))
			if err != nil {
				return err
			}
			compareHashes(t, tx, `SELECT length(r.tenant_id), sha256(agentd.ledger_row(ROW(r.*, NULL)::agentd.hook_decisions)) FROM rows AS r`,
				func(i int) [32]byte { return rows[i].Hash() })
			compareHashes(t, tx, `SELECT length(p.tenant_id), sha256(agentd.ledger_payload(ROW(p.*)::agentd.hook_payloads)) FROM payloads AS p`,
				func(i int) [32]byte { return rows[i].Payload.Hash(salt) })
			_, err = tx.Exec(t.Context(), `TRUNCATE rows, payloads`)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	for c, name := range columns {
		mayBeNull := slices.Contains(nullable, name)
		if !full[c] || nulls[c] != mayBeNull {
			t.Errorf("%s: had a value %t, was NULL %t; want %t", name, full[c], nulls[c], mayBeNull)
		}
	}
}

func compareHashes(t *rapid.T, tx pgx.Tx, query string, want func(i int) [32]byte) {
	t.Helper()
	type hashed struct {
		Row int
		Sum []byte
	}
	rows, _ := tx.Query(t.Context(), query) // rows has the error
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[hashed])
	if err != nil || len(list) == 0 {
		t.Fatalf("%d rows, %v", len(list), err)
	}
	for _, h := range list {
		if sum := want(h.Row); !bytes.Equal(h.Sum, sum[:]) {
			t.Errorf("row %d: SQL has %x, Go %x", h.Row, h.Sum, sum)
		}
	}
}

// TestSQLHashesNothingThatCannotBe: a row with it is named instead of ending
// the verification with an error.
func TestSQLHashesNothingThatCannotBe(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	for _, expression := range []string{
		`agentd.ledger_time('infinity')`, `agentd.ledger_time('-infinity')`, `agentd.ledger_time('294276-12-31 23:59:59+00')`,
		`agentd.ledger_list(NULL)`, `agentd.ledger_list('{{a,b},{c,d}}')`, `agentd.ledger_list('{a,NULL}')`,
	} {
		var isNull bool
		if err := db.Pool.QueryRow(limit(t), `SELECT `+expression+` IS NULL`).Scan(&isNull); err != nil || !isNull {
			t.Errorf("%s: NULL %t, %v", expression, isNull, err)
		}
	}
}
