package loop

import (
	"context"
	"errors"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// Tail is the end of a conversation, from a user message on.
type Tail struct {
	// Role is that of the message that was asked for. The tail begins with it
	// if it is a user's, else with the message that its run answers.
	Role hooks.Role
	// Text is what the user said.
	Text string
	// Agent is the one that answered, "" if none was asked.
	Agent string
	// MessageIDs are all messages of the tail, in order of position.
	MessageIDs []string
}

// Tail returns the end of the conversation that a new message takes the place
// of when it replaces the one with that id; false if there is no such message,
// or nobody asked for it.
func (s State) Tail(messageID string) (Tail, bool) {
	at := s.messageIndex(messageID)
	if at < 0 {
		return Tail{}, false
	}
	r, _ := s.Run(s.Messages[at].RunID)
	t := Tail{Role: s.Messages[at].Role, Agent: r.Agent}
	if t.Role != hooks.RoleUser {
		at = s.messageIndex(r.MessageID)
	}
	if at < 0 {
		return Tail{}, false
	}
	t.Text = s.Messages[at].Text()
	for _, m := range s.Messages[at:] {
		t.MessageIDs = append(t.MessageIDs, m.ID)
	}
	return t, true
}

// policyReplaced stands in input.rejected where what the message was to replace
// was gone when the hooks had let it through.
const policyReplaced = "replace_from"

var errReplaceFrom = &InvalidError{
	Field: "replace_from", Problem: "names no message of the conversation: it never was one, or was replaced itself. List the messages again",
}

// replaces finds out what the message takes the place of. That may be gone when
// the step is planned again: the decisions about the message stay.
func (s *starting) replaces(ctx context.Context) error {
	if s.cmd.ReplaceFrom == "" {
		return nil
	}
	t, err := s.c.Log.Tail(ctx, s.cmd.TenantID, s.cmd.SessionID, s.cmd.ReplaceFrom)
	switch {
	case errors.Is(err, ErrNotFound) && s.said == nil:
		return errReplaceFrom
	case errors.Is(err, ErrNotFound):
		s.tail = nil
		return nil
	case err != nil:
		return err
	case t.Role != hooks.RoleUser && s.cmd.Text != "":
		return &InvalidError{Field: "text", Problem: "must be empty where an answer is replaced: what the user said is said again. To change it, replace the user's message"}
	}
	s.tail = t.MessageIDs
	if s.text == "" {
		s.text = t.Text
	}
	if s.cmd.Agent == "" && t.Agent != "" {
		s.agent, err = s.c.agent(t.Agent)
	}
	return err
}

// replace takes the tail out of the conversation.
func (s *starting) replace(d *draft) {
	if len(s.tail) == 0 {
		return
	}
	for _, id := range s.tail {
		d.state.Messages = append(d.state.Messages, hooks.Message{ID: id})
	}
	d.add(event.MessagesReplaced{FromMessageID: s.tail[0], MessageIDs: s.tail})
}
