package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// ListenQuiet sets, before Start, after how long a silence the listener looks
// whether its connection is still there, and how long it waits for the answer.
func ListenQuiet(s *Store, quiet, patience time.Duration) {
	s.delivery.listener.quiet, s.delivery.listener.patience = quiet, patience
}

// Moved is what a poll finds that knows these sessions at these seqs: for each
// id what it knew, what is, and whether the session is deleted.
func Moved(ctx context.Context, pool *pgxpool.Pool, ids []string, seqs []int64) (map[string][3]any, error) {
	heads, err := poolReader{pool}.moved(ctx, ids, seqs)
	moved := map[string][3]any{}
	for _, h := range heads {
		moved[h.sessionID] = [3]any{h.knownSeq, h.lastSeq, h.deleted}
	}
	return moved, err
}
