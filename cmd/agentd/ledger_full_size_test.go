package main

import (
	"bytes"
	"crypto/sha256"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

const (
	ledgerRowsVariable = "AGENTD_LEDGER_ROWS"
	// boundedHeap is far below what the rows take.
	boundedHeap = 128 << 20
)

// TestLedgersOfAnySizeAreVerifiedInBoundedMemory makes ledgers of three
// thousand rows, or of as many as AGENTD_LEDGER_ROWS says, and has them
// verified by all who can. `make test-million` asks for a million.
func TestLedgersOfAnySizeAreVerifiedInBoundedMemory(t *testing.T) {
	t.Parallel()
	python := findPython(t)
	rows := 3000
	if v := os.Getenv(ledgerRowsVariable); v != "" {
		var err error
		if rows, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	db := storetest.New(t, storetest.Unverified) // nothing but ledgers is in it
	const sessions = 4
	for range sessions {
		fillLedger(t, db, rows/sessions)
	}
	execute(t, db, `ANALYZE`)
	rows -= rows % sessions
	said := "4 sessions, " + strconv.Itoa(rows) + " decisions"

	measured := func(who string, verify func()) {
		begun := time.Now()
		verify()
		took := time.Since(begun)
		t.Logf("%s: %d rows in %v, %.0f rows/s", who, rows, took.Round(time.Millisecond), float64(rows)/took.Seconds())
	}
	measured("SQL", func() {
		if n := scalar[int](t, db, `SELECT count(*) FROM agentd.verify_ledgers()`); n != 0 {
			t.Errorf("SQL finds %d problems", n)
		}
	})
	measured("agentd ledger verify", func() {
		if code, out, errs := ledgerCommand(t, db, "verify", "--all"); code != 0 || out != said+": 0 problems\n" {
			t.Errorf("verify: %d, %q %q; want %q", code, out, errs, said)
		}
	})
	file := &measuredFile{path: filepath.Join(t.TempDir(), "export.jsonl")}
	measured("agentd ledger export", func() {
		file.create(t)
		var errs bytes.Buffer
		if err := run(t.Context(), []string{"ledger", "export", "--all", "--database-url", db.URL}, nil, file, &errs); err != nil || errs.String() != said+"\n" {
			t.Errorf("export: %v, %q", err, &errs)
		}
	})
	t.Logf("the export has %d MiB, the heap had %d MiB at most", file.written>>20, file.heap>>20)
	if file.heap > boundedHeap {
		t.Errorf("the heap grew to %d MiB", file.heap>>20)
	}
	if python != "" {
		measured("Python", func() { file.verify(t, python, rows) })
	}
}

// measuredFile is an export on its way to a file.
type measuredFile struct {
	path    string
	file    *os.File
	written int64
	heap    uint64
}

func (f *measuredFile) create(t *testing.T) {
	t.Helper()
	file, err := os.Create(f.path)
	if err != nil {
		t.Fatal(err)
	}
	f.file = file
	t.Cleanup(func() { _ = file.Close() }) // the test has read it
}

// Write looks at the heap every few megabytes.
func (f *measuredFile) Write(p []byte) (int, error) {
	if before := f.written >> 23; (f.written+int64(len(p)))>>23 > before || f.written == 0 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		f.heap = max(f.heap, m.HeapAlloc)
	}
	n, err := f.file.Write(p)
	f.written += int64(n)
	return n, err
}

func (f *measuredFile) verify(t *testing.T, python string, rows int) {
	t.Helper()
	export, err := os.Open(f.path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = export.Close() }()
	cmd := exec.CommandContext(t.Context(), python, filepath.Join("..", "..", "examples", "verify-ledger", "verify_ledger.py"))
	cmd.Stdin = export
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), strconv.Itoa(rows)+" decisions, 0 problems") {
		t.Errorf("the script: %v, %s", err, out)
	}
}

// fillLedger makes a session that is nothing but its ledger.
func fillLedger(t *testing.T, db *storetest.DB, n int) {
	t.Helper()
	id, salt := looptest.NewID(), sha256.Sum256([]byte("salt"))
	payload := hooks.Payload{Reason: "The tool is not allowed here.", Patch: `[{"op":"replace","path":"/call/arguments","value":"{}"}]`}
	sum := payload.Hash(salt)
	row := hooks.Row{Decision: hooks.Decision{
		At:       time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC),
		Position: hooks.Position{TenantID: looptest.Tenant, SessionID: id, Gate: hooks.GateBeforeToolCall, Attempt: 1},
		Phase:    hooks.PhaseMutate, Index: 1, ChainLength: 2, HookID: "deny-tools", HookKind: hooks.KindHost, HookVersion: "1",
		HookSetDigest: strings.Repeat("ab", 32), Action: hooks.ActionTransform, Effective: true, Outcome: hooks.OutcomeOK, FailurePolicy: hooks.FailClosed,
		FieldsChanged: []string{"arguments"}, InputSHA256: sum, OutputSHA256: salt, InputBytes: 300, OutputBytes: 280,
		Queue: 12 * time.Microsecond, Latency: 345 * time.Microsecond, Deadline: 2 * time.Second,
	}}
	var decisions, payloads [][]any
	flush := func() {
		_, err := db.Pool.CopyFrom(t.Context(), pgx.Identifier{"agentd", "hook_decisions"}, strings.Fields(`session_id ledger_seq decision_id at tenant_id gate
			subject attempt phase position chain_length hook_id hook_kind hook_version hook_set_digest action effective outcome failure_policy failed_open
			fields_changed input_sha256 output_sha256 input_bytes output_bytes event_seq queue_us latency_us deadline_ms payload_sha256 prev_hash row_hash`),
			pgx.CopyFromRows(decisions))
		if err == nil {
			_, err = db.Pool.CopyFrom(t.Context(), pgx.Identifier{"agentd", "hook_payloads"},
				[]string{"decision_id", "tenant_id", "salt", "reason", "patch"}, pgx.CopyFromRows(payloads))
		}
		if err != nil {
			t.Fatal(err)
		}
		decisions, payloads = nil, nil
	}
	for i := range n {
		row.ID, row.Subject, row.LedgerSeq, row.EventSeq = looptest.NewID(), looptest.NewID(), int64(i+1), int64(i+1)
		row.At, row.PayloadSHA256 = row.At.Add(time.Millisecond), nil
		var hash any
		if i%4 == 0 {
			row.PayloadSHA256, hash = sum[:], sum[:]
			payloads = append(payloads, []any{row.ID, looptest.Tenant, salt[:], payload.Reason, payload.Patch})
		}
		prev, this := row.PrevHash, row.Hash()
		decisions = append(decisions, []any{
			id, row.LedgerSeq, row.ID, row.At, row.TenantID, string(row.Gate),
			row.Subject, row.Attempt, string(row.Phase), row.Index, row.ChainLength, row.HookID, string(row.HookKind), row.HookVersion, row.HookSetDigest,
			string(row.Action), row.Effective, string(row.Outcome), string(row.FailurePolicy), row.FailedOpen,
			row.FieldsChanged, sum[:], salt[:], row.InputBytes, row.OutputBytes, row.EventSeq,
			row.Queue.Microseconds(), row.Latency.Microseconds(), row.Deadline.Milliseconds(), hash, prev[:], this[:],
		})
		row.PrevHash = this
		if len(decisions) == 10_000 || i == n-1 {
			flush()
		}
	}
	execute(t, db, `INSERT INTO agentd.sessions (id, tenant_id, created_at, updated_at, last_seq, append_id, ledger_seq, ledger_head)
		VALUES ($1, $2, agentd.clock(), agentd.clock(), $3, $1, $3, $4)`, id, looptest.Tenant, n, row.PrevHash[:])
}
