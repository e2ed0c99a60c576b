package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/seed-2ca4966b/agentd/api/client"
	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
)

const (
	messagesPerSession = 8
	// endPatience is how long a run may take, with all that is done to it.
	endPatience = 2 * time.Minute
	pollEvery   = 60 * time.Millisecond
)

// acceptance is a message that the API said it has taken.
type acceptance struct {
	session, run, text string
	// policy is what the message asked for, "" for a session without another
	// run.
	policy string
}

// load is users who talk to agentd. It is safe for concurrent use.
type load struct {
	doors *doors
	seed  uint64

	mu        sync.Mutex
	accepted  []acceptance
	followers []*follower
	// wrong are answers that no user should get.
	wrong []string
}

// talk lets so many users talk until ctx is done, and then until what they
// have begun is over, for which they use whole.
func (l *load) talk(ctx, whole context.Context, users int) {
	var all sync.WaitGroup
	for i := range users {
		all.Go(func() {
			random := rand.New(rand.NewPCG(l.seed, uint64(i)+100))
			for n := 0; ctx.Err() == nil && whole.Err() == nil; n++ {
				u := &user{load: l, random: random, name: fmt.Sprintf("u%d-s%d", i, n)}
				if err := u.session(ctx, whole); err != nil && whole.Err() == nil {
					l.complain("%s: %v", u.name, err)
				}
			}
		})
	}
	all.Wait()
}

func (l *load) complain(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

// user talks in one session after the other. It is used by one goroutine.
type user struct {
	load      *load
	random    *rand.Rand
	name      string
	sessionID string
	said      int
}

// session is a conversation of some messages, which somebody follows.
func (u *user) session(ctx, whole context.Context) error {
	s, err := through(whole, u.load.doors, u.random.IntN(2), func(ctx context.Context, c *client.Client) (*agentdv1.CreateSessionResponse, error) {
		return c.CreateSession(ctx, &agentdv1.CreateSessionRequest{ExternalId: u.name})
	})
	if err != nil {
		return fmt.Errorf("create a session: %w", err)
	}
	u.sessionID = s.GetSessionId()
	over, done := context.WithCancel(whole)
	defer done()
	var following sync.WaitGroup
	for range 1 + u.random.IntN(2) {
		f := newFollower(u.load.doors, u.sessionID, u.random.Uint64())
		u.load.mu.Lock()
		u.load.followers = append(u.load.followers, f)
		u.load.mu.Unlock()
		following.Go(func() { f.follow(over, whole) })
	}
	defer following.Wait()
	defer done()
	for range messagesPerSession {
		if ctx.Err() != nil {
			return nil
		}
		if err := u.message(whole); err != nil {
			return err
		}
	}
	return nil
}

// message says something and does with it what people do.
func (u *user) message(ctx context.Context) error {
	n := u.random.IntN(100)
	switch {
	case n < 24:
		return u.simple(ctx, "text")
	case n < 32:
		return u.simple(ctx, "long")
	case n < 44:
		return u.simple(ctx, "charge")
	case n < 52:
		return u.simple(ctx, "put")
	case n < 60:
		return u.simple(ctx, "both")
	case n < 63:
		return u.simple(ctx, "denied")
	case n < 72:
		return u.approval(ctx, "pay", &agentdv1.DecideApprovalRequest{Decision: agentdv1.ApprovalDecision_APPROVAL_DECISION_APPROVE})
	case n < 75:
		return u.approval(ctx, "refuse", &agentdv1.DecideApprovalRequest{Decision: agentdv1.ApprovalDecision_APPROVAL_DECISION_DENY})
	case n < 79:
		return u.approval(ctx, "pay", &agentdv1.DecideApprovalRequest{
			Decision:  agentdv1.ApprovalDecision_APPROVAL_DECISION_EDIT,
			Arguments: fmt.Sprintf(`{"after_ms":  %d}`, u.random.IntN(200)),
		})
	case n < 89:
		return u.cancelled(ctx, []string{"long", "charge", "both", "pay"}[u.random.IntN(4)])
	default:
		return u.twice(ctx, []string{"enqueue", "interrupt", "rollback"}[u.random.IntN(3)])
	}
}

func (u *user) simple(ctx context.Context, kind string) error {
	run, err := u.say(ctx, kind, "")
	if err != nil {
		return err
	}
	return u.ends(ctx, run, agentdv1.RunStatus_RUN_STATUS_COMPLETED)
}

// approval answers what is asked, at some time.
func (u *user) approval(ctx context.Context, kind string, decision *agentdv1.DecideApprovalRequest) error {
	run, err := u.say(ctx, kind, "")
	if err != nil {
		return err
	}
	id, err := u.asked(ctx, run)
	if err != nil {
		return err
	}
	if err := pause(ctx, time.Duration(u.random.IntN(300))*time.Millisecond); err != nil {
		return err
	}
	decision.ApprovalId, decision.Reason = id, u.name
	_, err = through(ctx, u.load.doors, u.random.IntN(2), func(ctx context.Context, c *client.Client) (*agentdv1.Approval, error) {
		return c.DecideApproval(ctx, decision)
	})
	if err != nil {
		return fmt.Errorf("decide %s: %w", id, err)
	}
	return u.ends(ctx, run, agentdv1.RunStatus_RUN_STATUS_COMPLETED)
}

// asked waits until a run waits for a person, and returns the approval.
func (u *user) asked(ctx context.Context, run string) (id string, err error) {
	deadline := time.Now().Add(endPatience)
	for time.Now().Before(deadline) {
		id, err := through(ctx, u.load.doors, u.random.IntN(2), func(ctx context.Context, c *client.Client) (id string, err error) {
			for a, err := range c.Approvals(ctx, &agentdv1.ListApprovalsRequest{RunId: run, PendingOnly: true}) {
				if err != nil {
					return "", err
				}
				id = a.GetId()
			}
			return id, nil
		})
		if err != nil || id != "" {
			return id, err
		}
		if err := pause(ctx, pollEvery); err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("run %s asks nobody after %s", run, endPatience)
}

// cancelled stops a run at some time.
func (u *user) cancelled(ctx context.Context, kind string) error {
	run, err := u.say(ctx, kind, "")
	if err != nil {
		return err
	}
	if err := pause(ctx, time.Duration(u.random.IntN(1000))*time.Millisecond); err != nil {
		return err
	}
	_, err = through(ctx, u.load.doors, u.random.IntN(2), func(ctx context.Context, c *client.Client) (struct{}, error) {
		return struct{}{}, c.CancelRun(ctx, run, u.name)
	})
	if reason := client.ReasonOf(err); err != nil && reason != "run_ended" {
		return fmt.Errorf("cancel run %s: %w", run, err)
	}
	return u.ends(ctx, run, agentdv1.RunStatus_RUN_STATUS_CANCELLED, agentdv1.RunStatus_RUN_STATUS_COMPLETED)
}

// twice says a second thing while the first is worked on.
func (u *user) twice(ctx context.Context, policy string) error {
	first, err := u.say(ctx, "long", "")
	if err != nil {
		return err
	}
	if err := pause(ctx, time.Duration(u.random.IntN(800))*time.Millisecond); err != nil {
		return err
	}
	second, err := u.say(ctx, "text", policy)
	if err != nil {
		return err
	}
	err = u.ends(ctx, second, agentdv1.RunStatus_RUN_STATUS_COMPLETED)
	wanted := []agentdv1.RunStatus{agentdv1.RunStatus_RUN_STATUS_COMPLETED}
	if policy != "enqueue" {
		wanted = append(wanted, agentdv1.RunStatus_RUN_STATUS_CANCELLED)
	}
	return errors.Join(err, u.ends(ctx, first, wanted...))
}

// say sends a message until it is accepted, under one idempotency key.
func (u *user) say(ctx context.Context, kind, policy string) (run string, err error) {
	u.said++
	text := fmt.Sprintf("%s %s-m%d", kind, u.name, u.said)
	r, err := through(ctx, u.load.doors, u.random.IntN(2), func(ctx context.Context, c *client.Client) (*agentdv1.StartRunResponse, error) {
		return c.StartRun(ctx, &agentdv1.StartRunRequest{SessionId: u.sessionID, Text: text, IdempotencyKey: text, Policy: policy})
	})
	if err != nil {
		return "", fmt.Errorf("say %q: %w", text, err)
	}
	u.load.mu.Lock()
	defer u.load.mu.Unlock()
	u.load.accepted = append(u.load.accepted, acceptance{session: u.sessionID, run: r.GetRunId(), text: text, policy: policy})
	return r.GetRunId(), nil
}

// ends waits for the end of a run, which has to be one of these.
func (u *user) ends(ctx context.Context, run string, wanted ...agentdv1.RunStatus) error {
	deadline := time.Now().Add(endPatience)
	for {
		r, err := through(ctx, u.load.doors, u.random.IntN(2), func(ctx context.Context, c *client.Client) (*agentdv1.Run, error) {
			return c.GetRun(ctx, run)
		})
		if err != nil {
			return fmt.Errorf("look at run %s: %w", run, err)
		}
		if r.GetEndedAt() != nil {
			for _, w := range wanted {
				if r.GetStatus() == w {
					return nil
				}
			}
			if r.GetStatus() == agentdv1.RunStatus_RUN_STATUS_FAILED && r.GetReason() == poisoned {
				return nil // whether rightly, is looked at later
			}
			u.load.complain("run %s (session %s) is %s: %s %s", run, u.sessionID, r.GetStatus(), r.GetReason(), r.GetError())
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("run %s of session %s is %s after %s", run, u.sessionID, r.GetStatus(), endPatience)
		}
		if err := pause(ctx, pollEvery); err != nil {
			return err
		}
	}
}
