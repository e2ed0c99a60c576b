package loop

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// Commands are what people ask of the loop. Every command reads where the
// session stands, validates, plans, and appends at that point; when somebody
// else was faster it plans again. No command takes a lock. The fields are set
// before the first use; the methods are safe for concurrent use.
type Commands struct {
	Log Log
	// Agents says which agent names exist; the first is used when a request
	// names none.
	Agents []string
	// Policies say what becomes of a message that comes while a run of its
	// session is active, by the name of the agent that is asked for and where
	// the request does not say it. Who is not in it rejects.
	Policies map[string]event.Policy
	// Tools are those of the agents, by name: arguments that a person gives a
	// call have to fit them. What is not in it is checked where the call runs, and
	// nowhere else.
	Tools map[string][]Tool
	// Hooks are asked about messages and told of runs that end here; only
	// BeforeInput and OnRunEnd are used. Asker may be nil without the former.
	Hooks hooks.Hooks
	Asker *hooks.Asker
	// Switch is as in [Engine].
	Switch *Switch
	NewID  func() string
	Now    func() time.Time
	// Logger is told of hooks that panic. It may be nil without OnRunEnd.
	Logger *slog.Logger
	// Random is as in [Engine].
	Random io.Reader
}

// StartRun asks for a run that answers Text.
type StartRun struct {
	TenantID  string
	SessionID string
	// Agent is "" for the default agent.
	Agent string
	Text  string
	// ReplaceFrom is a message of the conversation, "" for none: the new message
	// and its run take the place of it and of everything behind it. With a user
	// message and no Text, it is said again; with an answer or a tool's result,
	// the message that its run answers is said again, and Text has to be empty.
	// Without an Agent it is then the one that answered before.
	ReplaceFrom string
	// Policy is what becomes of the message if a run of the session is active;
	// "" is the agent's own. What replaces messages can only be rejected.
	Policy event.Policy
	// IdempotencyKey makes a repeated request the same run for 24 h; "" for
	// none.
	IdempotencyKey string
	Actor          event.Actor
	// Sanitized says that Text was already made valid where it came in.
	Sanitized bool
}

// StartedRun is the answer to [StartRun].
type StartedRun struct {
	RunID              string
	MessageID          string
	AssistantMessageID string
	// Seq is the seq before the run's first event: watch from there.
	Seq int64
	// Enqueued says that the run begins when those before it have ended.
	Enqueued bool
	// Repeated says that the idempotency key was seen before and nothing was
	// started.
	Repeated bool
	// Handled says that a hook answered by itself, with Reply: nothing was
	// started, and the ids are empty.
	Handled bool
	Reply   string
}

// CancelRun asks a run to stop.
type CancelRun struct {
	TenantID  string
	SessionID string
	RunID     string
	Reason    string
	Actor     event.Actor
	// Sanitized says that Reason was already made valid where it came in.
	Sanitized bool
}

// CancelRun asks a run to stop. A run that a worker holds is stopped by that
// worker; one that nobody holds is cancelled here, and one that is enqueued never
// was part of the conversation. Asking again is no error;
// asking for a run that has ended otherwise is [ErrRunEnded].
func (c *Commands) CancelRun(ctx context.Context, cmd CancelRun) error {
	reason, sanitized := event.CleanText(cmd.Reason)
	ended := false
	_, err := c.replan(ctx, cmd.TenantID, cmd.SessionID, cmd.RunID, cmd.Actor, func(d *draft, r Run) bool {
		ended = r.Status.Terminal() && r.Status != RunCancelled
		if r.Status.Terminal() || r.CancelRequested && r.Status == RunRunning {
			return false
		}
		if !r.CancelRequested {
			d.add(event.RunCancelRequested{Reason: reason, Sanitized: sanitized || cmd.Sanitized})
		}
		d.add(d.state.withdrawn(r)...)
		if r.Status != RunRunning {
			d.add(closing(c.NewID, r, stopCancelled)...)
			d.add(event.RunCancelled{Reason: d.run().CancelReason})
		}
		return true
	})
	if err == nil && ended {
		return ErrRunEnded
	}
	return err
}

// retry plans on the head until the append holds. A plan without events means
// that there is nothing to do, and one that is [ErrConflict] is made again.
func (c *Commands) retry(ctx context.Context, tenantID, sessionID string, plan func(Head) (Append, error)) error {
	for {
		h, err := c.Log.Head(ctx, tenantID, sessionID)
		if err != nil {
			return err
		}
		if h.Deleted {
			return ErrNotFound
		}
		a, err := plan(h)
		if err == nil && len(a.Events) == 0 {
			return nil
		}
		if err == nil {
			_, err = c.Log.Append(ctx, a)
		}
		if !errors.Is(err, ErrConflict) {
			return err
		}
	}
}

func (c *Commands) draft(h Head, actor event.Actor, runID string) *draft {
	base := State{SessionID: h.SessionID, TenantID: h.TenantID, LastSeq: h.LastSeq, Epoch: h.Epoch, Ledger: h.Ledger}
	d := newDraft(c.NewID, base, event.Scope{SessionID: h.SessionID, RunID: runID, At: c.Now(), Actor: actor})
	d.random = c.Random
	return d
}

func (c *Commands) agent(name string) (string, error) {
	if name == "" && len(c.Agents) > 0 {
		return c.Agents[0], nil
	}
	for _, a := range c.Agents {
		if a == name {
			return name, nil
		}
	}
	if len(c.Agents) == 0 {
		return "", &InvalidError{Field: "agent", Problem: "no agent is configured on this server"}
	}
	return "", &InvalidError{
		Field:   "agent",
		Problem: fmt.Sprintf("no agent is called %q: use one of %s", event.Shorten(name, 80), strings.Join(c.Agents, ", ")),
	}
}

// requestDigest covers what makes two requests the same, each part with its
// length so that no two requests share a digest.
func requestDigest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s,", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))
}
