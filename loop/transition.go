package loop

import (
	"slices"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// Allows says whether the tables let e follow s; the error is a
// [TransitionError]. An event of a type that this binary does not know is
// allowed.
func Allows(s State, e event.Event) error {
	p, err := event.Decode(e)
	if err != nil {
		return err
	}
	return allows(s, e, p)
}

func allows(s State, e event.Event, p event.Payload) error {
	refuse := func(entity, id, from string) error {
		return &TransitionError{Entity: entity, ID: id, From: from, Event: e.Type}
	}
	switch p.(type) {
	case event.Unknown:
		return nil
	case event.SessionCreated:
		if s.SessionID != "" {
			return refuse("session", s.SessionID, "created")
		}
		return nil
	}
	if s.SessionID == "" || s.Deleted {
		return refuse("session", e.SessionID, sessionStatus(s))
	}
	switch p := p.(type) {
	case event.SessionUpdated, event.MessageCreated, event.InputHandled, event.InputBlocked, event.InputRejected:
		return nil
	case event.SessionDeleted:
		if r, ok := s.active(); ok {
			return refuse("session", s.SessionID, "run "+string(r.Status))
		}
		return nil
	case event.MessagesReplaced:
		if s.neverBegins(p) {
			return nil
		}
		if r, ok := s.active(); ok {
			return refuse("session", s.SessionID, "run "+string(r.Status))
		}
		if !s.endsWith(p) {
			return refuse("message", p.FromMessageID, "")
		}
		return nil
	case event.RunCreated:
		if r, ok := s.active(); ok && p.Policy == "" {
			return refuse("session", s.SessionID, "run "+string(r.Status))
		}
	}
	r, _ := s.Run(e.RunID)
	if _, ok := runTransitions[r.Status][e.Type]; !ok {
		return refuse("run", e.RunID, string(r.Status))
	}
	if !allowsInRun(s, r, e, p) {
		return refuse("run", e.RunID, string(r.Status))
	}
	return allowsInTurn(r, e, p, refuse)
}

// endsWith reports whether p names the end of the conversation, message by
// message.
func (s State) endsWith(p event.MessagesReplaced) bool {
	at := s.messageIndex(p.FromMessageID)
	return at >= 0 && slices.EqualFunc(s.Messages[at:], p.MessageIDs, func(m hooks.Message, id string) bool { return m.ID == id })
}

func sessionStatus(s State) string {
	if s.Deleted {
		return "deleted"
	}
	return ""
}
