package loop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

// CreateSession asks for a session.
type CreateSession struct {
	TenantID string
	// ExternalID is the client's own name for it, "" for none.
	ExternalID string
	// Title is for people, "" for none.
	Title string
	// Metadata is what the client wants to find the session by.
	Metadata map[string]string
	// User is the client's own name of its end user, "" for none. It never
	// changes.
	User  string
	Actor event.Actor
	// Sanitized says that the title or a value of the metadata was already made
	// valid where it came in.
	Sanitized bool
}

// SessionRef is the answer to [CreateSession].
type SessionRef struct {
	SessionID string
	// Created is false if the external id was already in use: the session is
	// the existing one.
	Created bool
}

// UpdateSession changes what a client says about a session.
type UpdateSession struct {
	TenantID  string
	SessionID string
	// Title replaces the title; nil leaves it, "" takes it away.
	Title *string
	// Metadata is merged: a nil value removes its key, and keys that are not
	// named stay.
	Metadata map[string]*string
	Actor    event.Actor
	// Sanitized says that the title or a value of the metadata was already made
	// valid where it came in.
	Sanitized bool
}

// CreateSession creates a session. A repeated external id gives the session
// that has it, as it is: what else the request says is then ignored.
func (c *Commands) CreateSession(ctx context.Context, cmd CreateSession) (SessionRef, error) {
	p, err := created(cmd)
	if err != nil {
		return SessionRef{}, err
	}
	for {
		if p.ExternalID != "" {
			h, err := c.Log.HeadByExternalID(ctx, cmd.TenantID, p.ExternalID)
			if err == nil {
				return SessionRef{SessionID: h.SessionID}, nil
			}
			if !errors.Is(err, ErrNotFound) {
				return SessionRef{}, err
			}
		}
		id := c.NewID()
		e, err := event.New(event.Scope{SessionID: id, At: c.Now(), Actor: cmd.Actor}, p)
		if err != nil {
			return SessionRef{}, err
		}
		_, err = c.Log.Append(ctx, Append{ID: c.NewID(), TenantID: cmd.TenantID, SessionID: id, Events: []event.Event{e}})
		if err == nil {
			return SessionRef{SessionID: id, Created: true}, nil
		}
		if !errors.Is(err, ErrConflict) || p.ExternalID == "" {
			return SessionRef{}, err
		}
	}
}

// created checks the request.
func created(cmd CreateSession) (p event.SessionCreated, err error) {
	p = event.SessionCreated{TenantID: cmd.TenantID, ExternalID: cmd.ExternalID, User: cmd.User, Sanitized: cmd.Sanitized}
	if err := checkName("external_id", p.ExternalID); err != nil {
		return p, err
	}
	if err := checkName("user", p.User); err != nil {
		return p, err
	}
	if len(p.User) > MaxUser {
		return p, &InvalidError{Field: "user", Problem: fmt.Sprintf("has %d bytes: send at most %d", len(p.User), MaxUser)}
	}
	patch := map[string]*string{}
	for k, v := range cmd.Metadata {
		patch[k] = &v
	}
	u, err := updated(UpdateSession{Title: &cmd.Title, Metadata: patch, Sanitized: cmd.Sanitized})
	if err != nil {
		return p, err
	}
	p.Title, p.Metadata, p.Sanitized = *u.Title, merge(nil, u.Metadata), u.Sanitized
	return p, checkCount(p.Metadata)
}

// UpdateSession changes the title and the metadata. What changes nothing is no
// error, and no event.
func (c *Commands) UpdateSession(ctx context.Context, cmd UpdateSession) error {
	u, err := updated(cmd)
	if err != nil {
		return err
	}
	return c.retry(ctx, cmd.TenantID, cmd.SessionID, func(h Head) (Append, error) {
		p := changes(h, u)
		if p.Title == nil && p.Metadata == nil {
			return Append{}, nil
		}
		if err := checkCount(merge(h.Metadata, p.Metadata)); err != nil {
			return Append{}, err
		}
		d := c.draft(h, cmd.Actor, "")
		d.add(p)
		return d.done()
	})
}

// updated makes the texts valid and checks each by itself.
func updated(cmd UpdateSession) (u event.SessionUpdated, err error) {
	u.Sanitized = cmd.Sanitized
	if cmd.Title != nil {
		title, changed := event.CleanText(*cmd.Title)
		if n := utf8.RuneCountInString(title); n > MaxTitle {
			return u, &InvalidError{Field: "title", Problem: fmt.Sprintf("has %d characters: send at most %d", n, MaxTitle)}
		}
		u.Title, u.Sanitized = &title, u.Sanitized || changed
	}
	for _, k := range slices.Sorted(maps.Keys(cmd.Metadata)) {
		v, changed, err := metadata(k, cmd.Metadata[k])
		if err != nil {
			return u, err
		}
		if u.Metadata == nil {
			u.Metadata = map[string]*string{}
		}
		u.Metadata[k], u.Sanitized = v, u.Sanitized || changed
	}
	return u, nil
}

// metadata checks one pair and makes the value valid.
func metadata(key string, value *string) (v *string, sanitized bool, err error) {
	problem := ""
	switch _, changed := event.CleanText(key); {
	case changed:
		problem = "has a key that is not valid text: send UTF-8 without U+0000"
	case key == "":
		problem = "has an empty key: give it a name"
	case len(key) > MaxMetadataKey:
		problem = fmt.Sprintf("has the key %q with %d bytes: send at most %d", event.Shorten(key, 80), len(key), MaxMetadataKey)
	case value != nil && len(*value) > MaxMetadataValue:
		problem = fmt.Sprintf("has a value of %d bytes under %q: send at most %d", len(*value), key, MaxMetadataValue)
	case value == nil:
		return nil, false, nil
	default:
		clean, changed := event.CleanText(*value)
		return &clean, changed, nil
	}
	return nil, false, &InvalidError{Field: "metadata", Problem: problem}
}

func checkCount(metadata map[string]string) error {
	if n := len(metadata); n > MaxMetadataKeys {
		return &InvalidError{Field: "metadata", Problem: fmt.Sprintf("would have %d keys: at most %d fit", n, MaxMetadataKeys)}
	}
	return nil
}

// checkName refuses text that would have to be changed: two names that differ
// must not become one.
func checkName(field, name string) error {
	if _, changed := event.CleanText(name); changed {
		return &InvalidError{Field: field, Problem: "is not valid text: send UTF-8 without U+0000"}
	}
	return nil
}

// changes leaves out of u what h says already.
func changes(h Head, u event.SessionUpdated) event.SessionUpdated {
	p := event.SessionUpdated{Sanitized: u.Sanitized}
	if u.Title != nil && *u.Title != h.Title {
		p.Title = u.Title
	}
	for k, v := range u.Metadata {
		old, has := h.Metadata[k]
		if v == nil && !has || v != nil && has && old == *v {
			continue
		}
		if p.Metadata == nil {
			p.Metadata = map[string]*string{}
		}
		p.Metadata[k] = v
	}
	return p
}

// DeleteSession hides a session. It refuses with a [BusyError] while a run is
// active.
func (c *Commands) DeleteSession(ctx context.Context, tenantID, sessionID string, actor event.Actor) error {
	return c.retry(ctx, tenantID, sessionID, func(h Head) (Append, error) {
		if h.ActiveRunID != "" {
			return Append{}, &BusyError{ActiveRunID: h.ActiveRunID}
		}
		d := c.draft(h, actor, "")
		d.add(event.SessionDeleted{})
		return d.done()
	})
}
