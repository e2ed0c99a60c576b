package store

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5/pgxpool"
)

// ledgerFormat names the form of an export. Other lines, or other fields in
// them that matter to the hashes, need another name.
const ledgerFormat = "agentd.ledger.v1"

// ExportLedger writes ledgers to w, a line of JSON each, in the form that
// docs/ledger.md describes: whoever has the lines can verify them without
// agentd and without the database. The last line is of the kind "end"; without
// it an export is not whole. The snapshot, the memory and the errors are those
// of [VerifyLedger].
func ExportLedger(ctx context.Context, pool *pgxpool.Pool, scope LedgerScope, w io.Writer) (LedgerCount, error) {
	buffered := bufio.NewWriterSize(w, 1<<16)
	e := &exporter{json.NewEncoder(buffered)}
	e.SetEscapeHTML(false)
	err := e.Encode(headLine{"ledger", ledgerFormat})
	var count LedgerCount
	if err == nil {
		count, err = walkLedgers(ctx, pool, scope, e)
	}
	if err == nil {
		err = e.Encode(endLine{"end", count.Sessions, count.Tombstones, count.Decisions})
	}
	if err == nil {
		err = buffered.Flush()
	}
	if err != nil {
		return count, fmt.Errorf("export ledger: %w", err)
	}
	return count, nil
}

type headLine struct {
	Kind   string `json:"kind"`
	Format string `json:"format"`
}

type endLine struct {
	Kind       string `json:"kind"`
	Sessions   int64  `json:"sessions"`
	Tombstones int64  `json:"tombstones"`
	Decisions  int64  `json:"decisions"`
}

// exporter writes what it is shown.
type exporter struct{ *json.Encoder }

func (e *exporter) session(l *sessionLine) error   { return e.Encode(l) }
func (e *exporter) decision(l *decisionLine) error { return e.Encode(l) }
func (e *exporter) mark(l *markLine) error         { return e.Encode(l) }
func (e *exporter) endSession() error              { return nil }
