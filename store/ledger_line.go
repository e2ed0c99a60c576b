package store

import (
	"encoding/hex"
	"encoding/json"
	"math"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// The lines of an export, see docs/ledger.md. They are also what is verified,
// so they take whatever a database may hold that somebody has tampered with: a
// field that is nil is NULL, and nothing in them is trusted.

// sessionLine begins the ledger of a session. Of one that does not exist it has
// nothing but the id, and the tombstone if there is one.
type sessionLine struct {
	Kind       string         `json:"kind"`
	SessionID  string         `json:"session_id"`
	TenantID   *string        `json:"tenant_id"`
	LastSeq    *int64         `json:"last_seq"`
	LedgerSeq  *int64         `json:"ledger_seq"`
	LedgerHead *string        `json:"ledger_head"`
	Tombstone  *tombstoneLine `json:"tombstone"`
}

type tombstoneLine struct {
	TenantID   string    `json:"tenant_id"`
	Events     int64     `json:"events"`
	Decisions  int64     `json:"decisions"`
	LastSeq    int64     `json:"last_seq"`
	LedgerSeq  int64     `json:"ledger_seq"`
	LedgerHead *string   `json:"ledger_head"`
	PurgedAt   time.Time `json:"purged_at"`
	PurgedBy   string    `json:"purged_by"`
	Reason     string    `json:"reason"`
}

// decisionLine is a row of the ledger, its columns in the order in which they
// are hashed.
type decisionLine struct {
	Kind          string          `json:"kind" db:"-"`
	SessionID     string          `json:"session_id" db:"session_id"`
	LedgerSeq     int64           `json:"ledger_seq" db:"ledger_seq"`
	DecisionID    *string         `json:"decision_id" db:"decision_id"`
	AtUS          *int64          `json:"at_us" db:"at_us"`
	TenantID      *string         `json:"tenant_id" db:"tenant_id"`
	RunID         *string         `json:"run_id" db:"run_id"`
	TurnNo        *int64          `json:"turn_no" db:"turn_no"`
	Gate          *string         `json:"gate" db:"gate"`
	Subject       *string         `json:"subject" db:"subject"`
	Attempt       *int64          `json:"attempt" db:"attempt"`
	Phase         *string         `json:"phase" db:"phase"`
	Position      *int64          `json:"position" db:"position"`
	ChainLength   *int64          `json:"chain_length" db:"chain_length"`
	HookID        *string         `json:"hook_id" db:"hook_id"`
	HookKind      *string         `json:"hook_kind" db:"hook_kind"`
	HookVersion   *string         `json:"hook_version" db:"hook_version"`
	HookDigest    *string         `json:"hook_digest" db:"hook_digest"`
	HookSetDigest *string         `json:"hook_set_digest" db:"hook_set_digest"`
	RuleID        *string         `json:"rule_id" db:"rule_id"`
	Action        *string         `json:"action" db:"action"`
	Effective     *bool           `json:"effective" db:"effective"`
	Outcome       *string         `json:"outcome" db:"outcome"`
	FailurePolicy *string         `json:"failure_policy" db:"failure_policy"`
	FailedOpen    *bool           `json:"failed_open" db:"failed_open"`
	ReasonCode    *string         `json:"reason_code" db:"reason_code"`
	FieldsChanged json.RawMessage `json:"fields_changed" db:"fields_changed"`
	InputSHA256   *string         `json:"input_sha256" db:"input_sha256"`
	OutputSHA256  *string         `json:"output_sha256" db:"output_sha256"`
	InputBytes    *int64          `json:"input_bytes" db:"input_bytes"`
	OutputBytes   *int64          `json:"output_bytes" db:"output_bytes"`
	EventSeq      *int64          `json:"event_seq" db:"event_seq"`
	Epoch         *int64          `json:"epoch" db:"epoch"`
	WorkerID      *string         `json:"worker_id" db:"worker_id"`
	QueueUS       *int64          `json:"queue_us" db:"queue_us"`
	LatencyUS     *int64          `json:"latency_us" db:"latency_us"`
	DeadlineMS    *int64          `json:"deadline_ms" db:"deadline_ms"`
	TraceID       *string         `json:"trace_id" db:"trace_id"`
	PayloadSHA256 *string         `json:"payload_sha256" db:"payload_sha256"`
	PrevHash      *string         `json:"prev_hash" db:"prev_hash"`
	RowHash       *string         `json:"row_hash" db:"row_hash"`
	// Payload is nil if there never was one, or if it was erased.
	Payload *payloadLine `json:"payload" db:"-"`
}

type payloadLine struct {
	Salt        *string `json:"salt"`
	Reason      *string `json:"reason"`
	Patch       *string `json:"patch"`
	Annotations *string `json:"annotations"`
}

// markLine is where the ledger stood when the log says that a run ended.
type markLine struct {
	Kind       string `json:"kind"`
	SessionID  string `json:"session_id"`
	EventSeq   int64  `json:"event_seq"`
	LedgerSeq  int64  `json:"ledger_seq"`
	LedgerHead string `json:"ledger_head"`
}

// row returns the row of the ledger, unless there can be none like that: a
// column that is NULL and may not be, or empty where it would be NULL.
func (l *decisionLine) row() (r hooks.Row, ok bool) {
	c := &reading{ok: true}
	r.SessionID, r.LedgerSeq, r.ID = l.SessionID, l.LedgerSeq, c.text(l.DecisionID)
	r.At, r.TenantID = time.UnixMicro(c.integer(l.AtUS)).UTC(), c.text(l.TenantID)
	r.RunID, r.Turn = orNone(c, l.RunID), int(orNone(c, l.TurnNo))
	r.Gate, r.Subject, r.Attempt = hooks.Gate(c.text(l.Gate)), c.text(l.Subject), int(c.integer(l.Attempt))
	r.Phase, r.Index, r.ChainLength = hooks.Phase(c.text(l.Phase)), int(c.integer(l.Position)), int(c.integer(l.ChainLength))
	r.HookID, r.HookKind = c.text(l.HookID), hooks.Kind(c.text(l.HookKind))
	r.HookVersion, r.HookDigest, r.HookSetDigest = orNone(c, l.HookVersion), orNone(c, l.HookDigest), orNone(c, l.HookSetDigest)
	r.RuleID, r.Action, r.Effective = orNone(c, l.RuleID), hooks.Action(c.text(l.Action)), c.boolean(l.Effective)
	r.Outcome, r.FailurePolicy = hooks.Outcome(c.text(l.Outcome)), hooks.FailurePolicy(c.text(l.FailurePolicy))
	r.FailedOpen, r.ReasonCode, r.FieldsChanged = c.boolean(l.FailedOpen), orNone(c, l.ReasonCode), c.list(l.FieldsChanged)
	r.InputSHA256, r.OutputSHA256 = c.digest(l.InputSHA256), c.digest(l.OutputSHA256)
	r.InputBytes, r.OutputBytes = int(c.integer(l.InputBytes)), int(c.integer(l.OutputBytes))
	r.EventSeq, r.Epoch, r.WorkerID = c.integer(l.EventSeq), orNone(c, l.Epoch), orNone(c, l.WorkerID)
	r.Queue, r.Latency = c.duration(l.QueueUS, time.Microsecond), c.duration(l.LatencyUS, time.Microsecond)
	r.Deadline, r.TraceID = c.duration(l.DeadlineMS, time.Millisecond), orNone(c, l.TraceID)
	if l.PayloadSHA256 != nil {
		sum := c.digest(l.PayloadSHA256)
		r.PayloadSHA256 = sum[:]
	}
	r.PrevHash = c.digest(l.PrevHash)
	return r, c.ok
}

// hash is the payload's own.
func (p *payloadLine) hash() string {
	c := &reading{ok: true}
	payload := hooks.Payload{Reason: orNone(c, p.Reason), Patch: orNone(c, p.Patch), Annotations: orNone(c, p.Annotations)}
	sum := payload.Hash(c.digest(p.Salt))
	if !c.ok {
		return "of a payload that cannot be"
	}
	return hex.EncodeToString(sum[:])
}

// reading takes columns as Go values, and remembers whether all were some.
type reading struct{ ok bool }

func (c *reading) text(v *string) string {
	c.ok = c.ok && v != nil
	return orZero(v)
}

func (c *reading) integer(v *int64) int64 {
	c.ok = c.ok && v != nil
	return orZero(v)
}

func (c *reading) boolean(v *bool) bool {
	c.ok = c.ok && v != nil
	return orZero(v)
}

// orNone is for columns that are NULL instead of empty.
func orNone[T string | int64](c *reading, v *T) T {
	var none T
	c.ok = c.ok && (v == nil || *v != none)
	return orZero(v)
}

func (c *reading) digest(v *string) (sum [32]byte) {
	n, err := hex.Decode(sum[:], []byte(orZero(v))[:min(len(orZero(v)), 64)])
	c.ok = c.ok && err == nil && n == len(sum) && len(orZero(v)) == 64
	return sum
}

func (c *reading) duration(v *int64, unit time.Duration) time.Duration {
	n := c.integer(v)
	c.ok = c.ok && n <= math.MaxInt64/int64(unit) && n >= math.MinInt64/int64(unit)
	return time.Duration(n) * unit
}

// list takes JSON; what is no list of texts comes as NULL.
func (c *reading) list(v json.RawMessage) (texts []string) {
	err := json.Unmarshal(v, &texts)
	c.ok = c.ok && err == nil && texts != nil
	return texts
}
