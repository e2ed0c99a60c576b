package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// openAppend appends an event and leaves its transaction open, as a process does
// that is stopped between its write and its commit.
func openAppend(t *testing.T, db *storetest.DB, sessionID string, seq int64) pgx.Tx {
	t.Helper()
	tx, err := connect(t, db.URL).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		`UPDATE agentd.sessions SET last_seq = $2, updated_at = agentd.clock() WHERE id = $1 AND last_seq = $2 - 1`,
		`INSERT INTO agentd.events (session_id, seq, tenant_id, type, payload, actor_kind, actor_id, at, append_id)
			SELECT id, $2, tenant_id, 'of.tomorrow', '{}', 'system', 'test', updated_at, gen_random_uuid() FROM agentd.sessions WHERE id = $1`,
	} {
		if tag, err := tx.Exec(t.Context(), statement, sessionID, seq); err != nil || tag.RowsAffected() != 1 {
			t.Fatalf("%v, %v", tag, err)
		}
	}
	return tx
}

// nothing checks that a reader is given nothing behind a seq, live or listed.
func nothing(t *testing.T, s *store.Store, sessionID string, after int64) {
	t.Helper()
	// Long enough for two polls.
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if got, err := s.Next(ctx, looptest.Tenant, sessionID, after, 10); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, %v is told behind %d", got, err, after)
	}
	if got, err := s.Events(limit(t), looptest.Tenant, sessionID, after, 10); err != nil || len(got) > 0 {
		t.Errorf("%v, %v is listed behind %d", got, err, after)
	}
}

// TestANumberThatIsGivenFirstIsReadFirstHoweverLateItCommits: a seq is given under
// the lock of its session, so the next one waits for what becomes of it. Seqs of
// other sessions have nothing to do with it: there is no cursor over several.
func TestANumberThatIsGivenFirstIsReadFirstHoweverLateItCommits(t *testing.T) {
	t.Parallel()
	for name, commits := range map[string]bool{"Committed": true, "RolledBack": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			writer, reader := startStore(t, db, store.Options{}), startStore(t, db, store.Options{PollEvery: 50 * time.Millisecond})
			id, other := newSession(t, writer), newSession(t, writer)
			first := openAppend(t, db, id, 2)

			second := make(chan error, 1)
			go func() {
				_, err := writer.Append(limit(t), say(t, id, 1))
				second <- err
			}()
			mustAppend(t, writer, say(t, other, 1))
			mustFollow(t, reader, other, 0, 2)
			nothing(t, reader, id, 1)
			select {
			case err := <-second:
				t.Fatalf("the second append did not wait: %v", err)
			default:
			}

			last := int64(2)
			if commits {
				if err := first.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := <-second; !errors.Is(err, loop.ErrConflict) {
					t.Fatalf("%v, want the seq to be taken", err)
				}
				mustAppend(t, writer, say(t, id, 2)) // planned again
				last = 3
			} else {
				if err := first.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := <-second; err != nil {
					t.Fatal(err)
				}
			}
			mustFollow(t, reader, id, 1, last)
		})
	}
}
