package looptest

import (
	"bytes"
	"encoding/hex"
	"fmt"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// CheckLedger says what is wrong with the decisions of a session: a row that
// does not follow the one before, that is recorded twice, that was committed
// with no event, or whose payload is another one.
func CheckLedger(events []event.Event, rows []loop.LedgerRow) error {
	var head loop.LedgerHead
	ids := map[string]bool{}
	type place struct {
		hooks.Position
		index int
	}
	places := map[place]bool{}
	for _, r := range rows {
		if err := checkRow(head, r); err != nil {
			return err
		}
		at := place{r.Position, r.Index}
		switch {
		case ids[r.ID] || places[at]:
			return fmt.Errorf("ledger row %d: %s was decided before at %+v", r.LedgerSeq, r.HookID, r.Position)
		case r.EventSeq < 1 || r.EventSeq > int64(len(events)):
			return fmt.Errorf("ledger row %d: there is no event %d", r.LedgerSeq, r.EventSeq)
		case events[r.EventSeq-1].SessionID != r.SessionID, r.RunID != "" && events[r.EventSeq-1].RunID != r.RunID:
			return fmt.Errorf("ledger row %d: event %d is of another session or run", r.LedgerSeq, r.EventSeq)
		case (r.Epoch == 0) != (r.WorkerID == ""), (r.RunID == "") != (r.WorkerID == ""):
			return fmt.Errorf("ledger row %d: worker %q, epoch %d, run %q", r.LedgerSeq, r.WorkerID, r.Epoch, r.RunID)
		}
		ids[r.ID], places[at] = true, true
		head = loop.LedgerHead{Seq: r.LedgerSeq, Hash: r.Hash}
	}
	return nil
}

// checkRow says whether r follows head and is what its hashes say.
func checkRow(head loop.LedgerHead, r loop.LedgerRow) error {
	var payload []byte
	if !r.Payload.Empty() {
		sum := r.Payload.Hash(r.Salt)
		payload = sum[:]
	}
	switch {
	case r.LedgerSeq != head.Seq+1 || r.PrevHash != head.Hash:
		return fmt.Errorf("ledger row %d does not follow row %d", r.LedgerSeq, head.Seq)
	case r.Hash != r.Row.Hash():
		return fmt.Errorf("ledger row %d: its hash is another", r.LedgerSeq)
	case !bytes.Equal(payload, r.PayloadSHA256):
		return fmt.Errorf("ledger row %d: its payload has the hash %s", r.LedgerSeq, hex.EncodeToString(payload))
	}
	return nil
}
