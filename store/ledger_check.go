package store

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
)

// LedgerProblem is one thing that is wrong with a ledger.
type LedgerProblem struct {
	SessionID string
	// LedgerSeq is the place in the session's ledger, 0 for the whole of it.
	LedgerSeq int64
	// DecisionID is the decision at that place, "" if there is none.
	DecisionID string
	// Problem is a word, see docs/ledger.md.
	Problem string
	Got     string
	Want    string
}

// String names the place and says what is wrong there.
func (p LedgerProblem) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "session %s", p.SessionID)
	if p.LedgerSeq != 0 {
		fmt.Fprintf(&b, " row %d", p.LedgerSeq)
	}
	if p.DecisionID != "" {
		fmt.Fprintf(&b, " (decision %s)", p.DecisionID)
	}
	fmt.Fprintf(&b, ": %s: got %s, want %s", p.Problem, p.Got, p.Want)
	return b.String()
}

// The problems. The same words stand in agentd.verify_ledger and in
// examples/verify-ledger.
const (
	problemSession    = "session"
	problemMissing    = "missing"
	problemPrevHash   = "prev_hash"
	problemRowHash    = "row_hash"
	problemPayload    = "payload"
	problemEventSeq   = "event_seq"
	problemTenant     = "tenant_id"
	problemBeyondHead = "beyond_head"
	problemHead       = "ledger_head"
	problemMark       = "mark"
	problemAnchor     = "anchor"
)

// VerifyLedger computes the hashes of ledgers again, in this process, and takes
// no function of the database's word for them. It hands
// each problem to report as it is found, and ends with report's error. All is
// read in one snapshot, which vacuum has to keep until it returns; in memory
// are a page of rows and, of one session, a mark per run. A session of the
// scope that neither is nor was there is [loop.ErrNotFound].
func VerifyLedger(ctx context.Context, pool *pgxpool.Pool, scope LedgerScope, report func(LedgerProblem) error) (LedgerCount, error) {
	count, err := walkLedgers(ctx, pool, scope, &ledgerCheck{links: links{report: report}})
	if err != nil {
		return count, fmt.Errorf("verify ledger: %w", err)
	}
	return count, nil
}

// links checks that the rows of a session hang together.
type links struct {
	report func(LedgerProblem) error
	// seq, hash and eventSeq are those of the row before.
	seq      int64
	hash     string
	eventSeq int64
}

// begin is for the next session.
func (c *links) begin() { *c = links{report: c.report, hash: strings.Repeat("0", 64)} }

// add reports what is wrong with a row and its payload. r is what the row
// could be read as.
func (c *links) add(l *decisionLine) error {
	if l.LedgerSeq != c.seq+1 {
		if err := c.missing(l.SessionID, l.LedgerSeq-1); err != nil {
			return err
		}
	} else if prev := orZero(l.PrevHash); prev != c.hash {
		if err := c.wrong(l, problemPrevHash, prev, c.hash); err != nil {
			return err
		}
	}
	r, ok := l.row()
	computed := "of a row that cannot be"
	if sum := r.Hash(); ok {
		computed = hex.EncodeToString(sum[:])
	}
	stored := orZero(l.RowHash)
	if stored != computed {
		if err := c.wrong(l, problemRowHash, stored, computed); err != nil {
			return err
		}
	}
	if l.Payload != nil {
		if sum := l.Payload.hash(); l.PayloadSHA256 == nil || sum != *l.PayloadSHA256 {
			if err := c.wrong(l, problemPayload, sum, orElse(l.PayloadSHA256, "no payload")); err != nil {
				return err
			}
		}
	}
	c.seq, c.hash, c.eventSeq = l.LedgerSeq, stored, max(c.eventSeq, orZero(l.EventSeq))
	return nil
}

// missing reports that the rows up to last are not there.
func (c *links) missing(sessionID string, last int64) error {
	return c.report(LedgerProblem{
		SessionID: sessionID, LedgerSeq: c.seq + 1, Problem: problemMissing, Got: "no row", Want: "rows up to " + strconv.FormatInt(last, 10),
	})
}

func (c *links) wrong(l *decisionLine, problem, got, want string) error {
	return c.report(LedgerProblem{
		SessionID: l.SessionID, LedgerSeq: l.LedgerSeq, DecisionID: orZero(l.DecisionID), Problem: problem, Got: got, Want: want,
	})
}

// ledgerCheck holds a ledger against its session's row and the log as well.
type ledgerCheck struct {
	links
	of *sessionLine
	// ended is the last event that a run ended with before the next row.
	ended int64
	// decisionID is that of the row before.
	decisionID string
	orphan     bool // has been reported
}

func (c *ledgerCheck) session(l *sessionLine) error {
	c.begin()
	c.of, c.ended, c.decisionID, c.orphan = l, 0, "", false
	if l.Tombstone != nil && l.LastSeq != nil {
		return c.remains()
	}
	return nil
}

// remains reports rows without their session.
func (c *ledgerCheck) remains() error {
	if c.orphan {
		return nil
	}
	c.orphan = true
	p := LedgerProblem{SessionID: c.of.SessionID, Problem: problemSession, Got: "no session", Want: "a session"}
	if c.of.Tombstone != nil {
		p.Got, p.Want = "it is there", "nothing of it: it was purged"
	}
	return c.report(p)
}

func (c *ledgerCheck) decision(l *decisionLine) error {
	if c.of.LastSeq == nil {
		if err := c.remains(); err != nil {
			return err
		}
	}
	before := c.eventSeq
	if err := c.add(l); err != nil {
		return err
	}
	c.decisionID = orZero(l.DecisionID)
	from, to := max(before, c.ended+1), orZero(c.of.LastSeq)
	if seq := orZero(l.EventSeq); seq < from || c.of.LastSeq != nil && seq > to {
		if err := c.wrong(l, problemEventSeq, strconv.FormatInt(seq, 10), fmt.Sprintf("%d to %d", from, to)); err != nil {
			return err
		}
	}
	if c.of.LastSeq == nil {
		return nil
	}
	if owner := orZero(c.of.TenantID); orZero(l.TenantID) != owner {
		if err := c.wrong(l, problemTenant, orZero(l.TenantID), owner); err != nil {
			return err
		}
	}
	switch last := orZero(c.of.LedgerSeq); {
	case l.LedgerSeq > last:
		return c.wrong(l, problemBeyondHead, "a row", fmt.Sprintf("no row after %d", last))
	case l.LedgerSeq == last && c.hash != orZero(c.of.LedgerHead):
		return c.wrong(l, problemHead, c.hash, orZero(c.of.LedgerHead))
	}
	return nil
}

func (c *ledgerCheck) mark(m *markLine) error {
	got, decision := "no row", ""
	if m.LedgerSeq == c.seq && c.seq > 0 {
		got, decision = c.hash, c.decisionID
	}
	c.ended = max(c.ended, m.EventSeq)
	if m.LedgerSeq == 0 && m.LedgerHead == "" || got == m.LedgerHead {
		return nil
	}
	return c.report(LedgerProblem{
		SessionID: m.SessionID, LedgerSeq: m.LedgerSeq, DecisionID: decision, Problem: problemMark, Got: got,
		Want: strings.TrimPrefix(m.LedgerHead+", as event ", ", ") + strconv.FormatInt(m.EventSeq, 10) + " says",
	})
}

func (c *ledgerCheck) endSession() error {
	if last := orZero(c.of.LedgerSeq); c.seq < last {
		return c.missing(c.of.SessionID, last)
	}
	return nil
}

func orElse(v *string, other string) string {
	if v == nil {
		return other
	}
	return *v
}
