package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

// checkPolicy refuses what no policy says.
func checkPolicy(cmd StartRun) error {
	switch {
	case cmd.Policy != "" && !slices.Contains(event.Policies(), cmd.Policy):
		var known []string
		for _, p := range event.Policies() {
			known = append(known, string(p))
		}
		return &InvalidError{Field: "policy", Problem: fmt.Sprintf(
			"%q is no policy: use one of %s", event.Shorten(string(cmd.Policy), 80), strings.Join(known, ", "),
		)}
	case cmd.ReplaceFrom != "" && cmd.Policy != "" && cmd.Policy != event.PolicyReject:
		return &InvalidError{Field: "policy", Problem: fmt.Sprintf(
			"%q does not go with replace_from: what is replaced has to stand still. Cancel the active run and wait for its end", cmd.Policy,
		)}
	}
	return nil
}

// policy is what becomes of the message of a busy session.
func (s *starting) policy() event.Policy {
	p := s.cmd.Policy
	if p == "" && s.cmd.ReplaceFrom == "" {
		p = s.c.Policies[s.agent]
	}
	if p == "" {
		p = event.PolicyReject
	}
	return p
}

// busy plans for a session whose run h.ActiveRunID is active.
func (s *starting) busy(ctx context.Context, h Head) (Append, error) {
	policy := s.policy()
	if policy == event.PolicyReject {
		return s.reject(h, policy, &BusyError{ActiveRunID: h.ActiveRunID})
	}
	state, err := s.c.Log.Load(ctx, h.TenantID, h.SessionID, h.ActiveRunID)
	// One whose stored state is broken ends like others.
	if bad := new(BadStateError); err != nil && !errors.As(err, &bad) {
		return Append{}, err
	}
	if a, ok := state.active(); !ok || a.ID != h.ActiveRunID {
		return Append{}, ErrConflict // it has ended since
	}
	if state.LastSeq != h.LastSeq {
		// What was appended since may be this very request.
		if done, err := s.repeated(ctx); done || err != nil {
			return Append{}, err
		}
	}
	if state.enqueued() >= MaxEnqueued {
		h.LastSeq, h.Ledger = state.LastSeq, state.Ledger
		return s.reject(h, policy, &BusyError{ActiveRunID: h.ActiveRunID, Full: true})
	}
	d := newDraft(s.c.NewID, state, event.Scope{SessionID: h.SessionID, At: s.c.Now(), Actor: s.cmd.Actor})
	d.random = s.c.Random
	s.run(d, policy)
	d.decide(s.said.decisions)
	if policy.First() {
		s.stop(d, h.ActiveRunID, policy)
	}
	a, err := d.done()
	own, _ := d.state.Run(s.out.RunID)
	s.out.Enqueued = own.Status == RunEnqueued
	return a, err
}

// The reasons of a run that a message has cancelled.
const (
	reasonInterrupted = "interrupted by a new message"
	reasonRolledBack  = "rolled back by a new message"
)

// stop cancels the active run in the append that has the new one: neither is
// there without the other. A run that nobody holds ends at once.
func (s *starting) stop(d *draft, runID string, policy event.Policy) {
	d.scope.RunID = runID
	r, rollback := d.run(), policy == event.PolicyRollback
	ask := event.RunCancelRequested{Reason: reasonInterrupted, Rollback: rollback}
	switch {
	case r.CancelRequested:
		ask.Reason = r.CancelReason
	case rollback:
		ask.Reason = reasonRolledBack
	}
	if !r.CancelRequested || rollback && !r.RolledBack {
		d.add(ask)
	}
	if r.Status != RunRunning {
		d.add(closing(s.c.NewID, r, stopCancelled)...)
		d.add(event.RunCancelled{Reason: d.run().CancelReason})
		s.stopped = d.run()
	}
}

// reject refuses the message; only decisions about it are a reason to write
// that down.
func (s *starting) reject(h Head, policy event.Policy, refusal *BusyError) (Append, error) {
	if len(s.said.decisions) == 0 {
		return Append{}, refusal
	}
	d := s.c.draft(h, s.cmd.Actor, "")
	d.add(event.InputRejected{
		InputID: s.inputID, Agent: s.agent, Input: s.input(), Policy: string(policy), ActiveRunID: h.ActiveRunID,
		IdempotencyKey: s.cmd.IdempotencyKey, RequestSHA256: s.digest,
	})
	s.refusal = refusal
	d.decide(s.said.decisions)
	return d.done()
}

// Busy is the error that the event stands for.
func Busy(p event.InputRejected) *BusyError {
	full := slices.Contains(event.Policies()[1:], event.Policy(p.Policy)) // all but reject
	return &BusyError{ActiveRunID: p.ActiveRunID, Full: full}
}
