package loop

import (
	"context"
	"errors"
	"strconv"

	"github.com/google/uuid"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// StartRun stores the message and queues a run that answers it. The gate
// BeforeInput is asked first: a message that it blocks is a [BlockedError], and
// one that it handles starts nothing. Only then, if the session is busy, the
// policy says what becomes of it: it is refused with a [BusyError], or its run is
// enqueued, and the active one may be cancelled.
func (c *Commands) StartRun(ctx context.Context, cmd StartRun) (StartedRun, error) {
	asks, done := c.inForce()
	defer done()
	s := starting{c: c, asks: asks, cmd: cmd}
	if err := s.validate(); err != nil {
		return StartedRun{}, err
	}
	err := c.retry(ctx, cmd.TenantID, cmd.SessionID, func(h Head) (Append, error) { return s.plan(ctx, h) })
	if err == nil {
		err = s.refusal
	}
	if err != nil {
		return StartedRun{}, err
	}
	if s.stopped.ID != "" {
		notifyEnd(ctx, c.Logger, s.asks.Hooks, cmd.TenantID, cmd.SessionID, s.stopped)
	}
	return s.out, nil
}

// starting is a StartRun under way.
type starting struct {
	c    *Commands
	asks InForce
	cmd  StartRun
	// agent, text and digest are what the request comes to.
	agent     string
	text      string
	sanitized bool
	digest    string
	inputID   string
	// tail are the messages that this one takes the place of.
	tail []string
	// said is what the gate answered; it is asked once, at the seq askedAt.
	said    *ruling[hooks.BeforeInput]
	askedAt int64

	out StartedRun
	// stopped is the run that was active and ended here, if one did.
	stopped Run
	// refusal is the caller's error once its reasons are stored.
	refusal error
}

func (s *starting) validate() (err error) {
	if s.agent, err = s.c.agent(s.cmd.Agent); err != nil {
		return err
	}
	s.text, s.sanitized = event.CleanText(s.cmd.Text)
	s.sanitized = s.sanitized || s.cmd.Sanitized
	if blank(s.text) && (s.text != "" || s.cmd.ReplaceFrom == "") {
		return &InvalidError{Field: "text", Problem: "is empty: send what the user said"}
	}
	if err := checkName("idempotency_key", s.cmd.IdempotencyKey); err != nil {
		return err
	}
	if err := checkPolicy(s.cmd); err != nil {
		return err
	}
	s.inputID = s.c.NewID()
	switch {
	case s.cmd.IdempotencyKey == "":
	case s.cmd.Policy != "" && s.cmd.Policy != event.PolicyReject:
		s.digest = requestDigest(s.agent, s.cmd.Text, "", string(s.cmd.Policy))
	case s.cmd.ReplaceFrom == "":
		s.digest = requestDigest(s.agent, s.cmd.Text)
	default:
		s.digest = requestDigest(s.cmd.Agent, s.cmd.Text, s.cmd.ReplaceFrom)
	}
	return nil
}

func (s *starting) plan(ctx context.Context, h Head) (Append, error) {
	s.stopped = Run{}
	if done, err := s.repeated(ctx); done || err != nil {
		return Append{}, err
	}
	if err := s.replaces(ctx); err != nil {
		return Append{}, err
	}
	if err := s.ask(ctx, h); err != nil {
		return Append{}, err
	}
	v := s.said.verdict
	d := s.c.draft(h, s.cmd.Actor, "")
	input := s.input()
	switch {
	case v.Action == hooks.ActionBlock:
		text, sanitized := event.CleanText(v.Reason.Text)
		text = event.Shorten(text, 2000)
		d.add(event.InputBlocked{
			InputID: s.inputID, Agent: s.agent, Input: input, ReasonCode: v.Reason.Code, Reason: text,
			IdempotencyKey: s.cmd.IdempotencyKey, RequestSHA256: s.digest, Sanitized: sanitized,
		})
		s.refusal = &BlockedError{ReasonCode: v.Reason.Code, Reason: text}
	case v.Action == hooks.ActionHandled:
		reply, sanitized := event.CleanText(v.Reply)
		d.add(event.InputHandled{
			InputID: s.inputID, Agent: s.agent, Input: input, Reply: reply,
			IdempotencyKey: s.cmd.IdempotencyKey, RequestSHA256: s.digest, Sanitized: sanitized,
		})
		s.out = StartedRun{Handled: true, Reply: reply, Seq: h.LastSeq}
	case h.ActiveRunID != "":
		return s.busy(ctx, h)
	case s.cmd.ReplaceFrom != "" && s.tail == nil && len(s.said.decisions) == 0:
		return Append{}, errReplaceFrom
	case s.cmd.ReplaceFrom != "" && s.tail == nil:
		d.add(event.InputRejected{
			InputID: s.inputID, Agent: s.agent, Input: input, Policy: policyReplaced,
			IdempotencyKey: s.cmd.IdempotencyKey, RequestSHA256: s.digest,
		})
		s.refusal = errReplaceFrom
	default:
		s.run(d, "")
		d.add(event.RunQueued{Ticket: 1})
		d.job(1)
	}
	d.decide(s.said.decisions)
	return d.done()
}

func (s *starting) input() event.Digest {
	return event.Digest{SHA256: digest(s.text), Bytes: int64(len(s.text))}
}

// run drafts the message and its run, which is enqueued if there is a policy.
func (s *starting) run(d *draft, policy event.Policy) {
	c := s.c
	text, sanitized := event.CleanText(s.said.verdict.Value.Text)
	s.out = StartedRun{
		RunID: c.NewID(), MessageID: c.NewID(), AssistantMessageID: c.NewID(), Seq: d.base.LastSeq, Enqueued: policy != "",
	}
	s.refusal = nil
	d.scope.RunID = s.out.RunID
	s.replace(d)
	d.add(
		event.MessageCreated{
			MessageID: s.out.MessageID, Role: hooks.RoleUser, Sanitized: s.sanitized || sanitized,
			Parts: []hooks.Part{{Type: hooks.PartText, Text: text}}, Enqueued: policy != "",
		},
		event.RunCreated{
			Agent: s.agent, MessageID: s.out.MessageID, AssistantMessageID: s.out.AssistantMessageID,
			IdempotencyKey: s.cmd.IdempotencyKey, RequestSHA256: s.digest, Policy: policy,
		},
	)
}

// repeated answers a request whose key was seen before.
func (s *starting) repeated(ctx context.Context) (bool, error) {
	if s.cmd.IdempotencyKey == "" {
		return false, nil
	}
	prior, ok, err := s.c.Log.Request(ctx, s.cmd.TenantID, s.cmd.SessionID, s.cmd.IdempotencyKey)
	if err != nil || !ok {
		return false, err
	}
	if prior.Rejected != nil {
		return s.rejected(prior), nil
	}
	if prior.RequestSHA256 != s.digest {
		return false, ErrKeyReused
	}
	s.refusal = nil
	if prior.Blocked != nil {
		s.refusal = prior.Blocked
	}
	s.out = StartedRun{
		RunID: prior.RunID, MessageID: prior.MessageID, AssistantMessageID: prior.AssistantMessageID,
		Seq: prior.Seq, Enqueued: prior.Enqueued, Repeated: true, Handled: prior.Handled, Reply: prior.Reply,
	}
	return true, nil
}

// rejected reports whether a rejection answers this request: one that came
// while its own input was asked about, and so may hold the decisions. Any other
// is history: who comes again when the session is free is welcome.
func (s *starting) rejected(prior Request) bool {
	if s.said == nil || prior.Seq < s.askedAt {
		return false
	}
	s.refusal = prior.Rejected
	if prior.Rejected.ActiveRunID == "" {
		s.refusal = errReplaceFrom
	}
	return true
}

var errBlankInput = errors.New("the text is blank")

func (s *starting) ask(ctx context.Context, h Head) error {
	if s.said != nil {
		return nil
	}
	s.askedAt = h.LastSeq
	if key := s.cmd.IdempotencyKey; key != "" {
		// A request that is repeated before anything was decided asks about the
		// same input. Once it was decided, the ledger has moved on, and so the
		// input is another when the key has run out.
		name := requestDigest(s.cmd.SessionID, key, s.digest, strconv.FormatInt(h.Ledger.Seq, 10))
		s.inputID = uuid.NewSHA1(uuid.NameSpaceOID, []byte(name)).String()
	}
	in := hooks.BeforeInput{
		TenantID: s.cmd.TenantID, SessionID: s.cmd.SessionID, InputID: s.inputID, Agent: s.agent, Text: s.text,
	}
	v, decisions, err := hooks.Ask(ctx, s.asks.Asker, s.asks.Hooks.BeforeInput, hooks.Position{
		TenantID: in.TenantID, SessionID: in.SessionID, Subject: in.InputID, Attempt: 1,
	}, in, func(in hooks.BeforeInput) error {
		if blank(in.Text) {
			return errBlankInput
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.said = &ruling[hooks.BeforeInput]{v, decisions}
	return nil
}
