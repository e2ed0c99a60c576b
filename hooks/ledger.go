package hooks

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// Row is a decision as it stands in the ledger.
type Row struct {
	Decision
	// LedgerSeq counts the rows of the session from 1.
	LedgerSeq int64
	// EventSeq is the last event that was committed with the row.
	EventSeq int64
	// Epoch is the lease under which the hook was asked, 0 if there was none.
	Epoch int64
	// WorkerID is the worker that asked, "" if it was none.
	WorkerID string
	// PayloadSHA256 is the payload's hash, nil if there is no payload.
	PayloadSHA256 []byte
	// PrevHash is the hash of the row before, zeros for the first.
	PrevHash [32]byte
}

// rowVersion begins what is hashed. Another order or form of the columns needs
// another version.
const rowVersion = "agentd.ledger.v1"

// Hash binds every column of the row and the row before. It is SHA-256 over
// "agentd.ledger.v1", the 32 bytes of PrevHash, and these columns in this
// order, those with a question mark being NULL if they are empty or 0:
//
//	session_id ledger_seq decision_id at tenant_id run_id? turn_no? gate
//	subject attempt phase position chain_length hook_id hook_kind
//	hook_version? hook_digest? hook_set_digest? rule_id? action effective
//	outcome failure_policy failed_open reason_code? fields_changed
//	input_sha256 output_sha256 input_bytes output_bytes event_seq epoch?
//	worker_id? queue_us latency_us deadline_ms trace_id? payload_sha256?
//
// A column that is NULL is the byte 0. Any other is the byte 1, its length as
// 4 bytes, and its content: text as UTF-8; an integer as 8 bytes; a time as
// the integer of its microseconds since 1970; a boolean as the byte 0 or 1; a
// digest as its 32 bytes; a list as its texts, each after its length as 4
// bytes. Numbers are big-endian.
func (r Row) Hash() [32]byte {
	c := make(columns, 0, usualRow)
	c = append(c, rowVersion...)
	c = append(c, r.PrevHash[:]...)

	c.text(r.SessionID)
	c.integer(r.LedgerSeq)
	c.text(r.ID)
	c.integer(r.At.UnixMicro())
	c.text(r.TenantID)
	c.textOrNull(r.RunID)
	c.integerOrNull(int64(r.Turn))
	c.text(string(r.Gate))
	c.text(r.Subject)
	c.integer(int64(r.Attempt))
	c.text(string(r.Phase))
	c.integer(int64(r.Index))
	c.integer(int64(r.ChainLength))

	c.text(r.HookID)
	c.text(string(r.HookKind))
	c.textOrNull(r.HookVersion)
	c.textOrNull(r.HookDigest)
	c.textOrNull(r.HookSetDigest)
	c.textOrNull(r.RuleID)

	c.text(string(r.Action))
	c.boolean(r.Effective)
	c.text(string(r.Outcome))
	c.text(string(r.FailurePolicy))
	c.boolean(r.FailedOpen)
	c.textOrNull(r.ReasonCode)
	c.list(r.FieldsChanged)

	c.column(r.InputSHA256[:])
	c.column(r.OutputSHA256[:])
	c.integer(int64(r.InputBytes))
	c.integer(int64(r.OutputBytes))

	c.integer(r.EventSeq)
	c.integerOrNull(r.Epoch)
	c.textOrNull(r.WorkerID)
	c.integer(int64(r.Queue / time.Microsecond))
	c.integer(int64(r.Latency / time.Microsecond))
	c.integer(int64(r.Deadline / time.Millisecond))
	c.textOrNull(r.TraceID)
	c.column(r.PayloadSHA256)
	return c.sum()
}

// Payload is what of a decision can be erased without breaking the chain.
type Payload struct {
	// Reason is the hook's text, or what went wrong with it.
	Reason string
	// Patch is the JSON Patch from the hook's input to what it made of it, ""
	// if it changed nothing.
	Patch string
	// Annotations is a JSON object of texts, "" for none.
	Annotations string
}

// Empty reports whether there is nothing to store.
func (p Payload) Empty() bool { return p == Payload{} }

// Hash binds the payload to its row: SHA-256 over salt and the three texts as
// columns, in the form that [Row.Hash] describes; an empty one is NULL. The
// salt keeps a guess at an erased payload from being checked; it is as long as
// a hash, fresh for each payload, and erased with it.
func (p Payload) Hash(salt [32]byte) [32]byte {
	c := make(columns, 0, usualRow)
	c = append(c, salt[:]...)
	c.textOrNull(p.Reason)
	c.textOrNull(p.Patch)
	c.textOrNull(p.Annotations)
	return c.sum()
}

// usualRow is more than most rows take, so that one buffer does for all columns.
const usualRow = 1 << 10

// columns are the bytes that are hashed; no two rows have the same.
type columns []byte

func (c columns) sum() [32]byte { return sha256.Sum256(c) }

func (c *columns) null() { *c = append(*c, 0) }

// begin is what stands before a column of n bytes.
func (c *columns) begin(n int) {
	*c = append(*c, 1)
	*c = binary.BigEndian.AppendUint32(*c, uint32(n))
}

// column takes nil as NULL.
func (c *columns) column(content []byte) {
	if content == nil {
		c.null()
		return
	}
	c.begin(len(content))
	*c = append(*c, content...)
}

func (c *columns) text(s string) {
	c.begin(len(s))
	*c = append(*c, s...)
}

func (c *columns) textOrNull(s string) {
	if s == "" {
		c.null()
		return
	}
	c.text(s)
}

func (c *columns) integer(n int64) {
	c.begin(8)
	*c = binary.BigEndian.AppendUint64(*c, uint64(n))
}

func (c *columns) integerOrNull(n int64) {
	if n == 0 {
		c.null()
		return
	}
	c.integer(n)
}

func (c *columns) boolean(b bool) {
	c.begin(1)
	if b {
		*c = append(*c, 1)
		return
	}
	*c = append(*c, 0)
}

func (c *columns) list(texts []string) {
	n := 0
	for _, s := range texts {
		n += 4 + len(s)
	}
	c.begin(n)
	for _, s := range texts {
		*c = binary.BigEndian.AppendUint32(*c, uint32(len(s)))
		*c = append(*c, s...)
	}
}
