package store_test

import (
	"errors"
	"testing"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// TestAnAnswerThatWaitsForItsSessionUntilItIsTooLateIsLate: what counts is when
// it is written, and not when it came.
func TestAnAnswerThatWaitsForItsSessionUntilItIsTooLateIsLate(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Unverified) // the time to answer is set by hand
	s := startStore(t, db, store.Options{Queue: jobs{}})
	p := park(t, s)
	yes := p.answer(t, s, event.DecisionApproved)
	yes.Answers = p.approvalID
	exec(t, db, `UPDATE agentd.approvals SET expires_at = agentd.clock() + interval '1 second'`)
	tx, err := db.Pool.Begin(limit(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(limit(t), `SELECT FROM agentd.sessions FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := s.Append(limit(t), yes)
		answered <- err
	}()
	for over := false; !over; {
		if err := db.Pool.QueryRow(limit(t), `SELECT bool_and(expires_at <= agentd.clock()) FROM agentd.approvals`).Scan(&over); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Rollback(limit(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; !errors.Is(err, loop.ErrExpired) {
		t.Errorf("%v; want ErrExpired", err)
	}
}
