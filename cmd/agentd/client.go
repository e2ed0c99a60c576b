package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/google/uuid"

	"github.com/seed-2ca4966b/agentd/api/client"
	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
)

// clientFlags say which server to talk to.
type clientFlags struct {
	URL string `default:"http://127.0.0.1:8080" env:"AGENTD_URL" help:"The server to talk to."`
	keyFlags
	Patience time.Duration `default:"${patience}" env:"AGENTD_PATIENCE" help:"How long to wait for a server that is away."`
}

// client returns one that says nothing of outages.
func (f clientFlags) client() (*client.Client, error) {
	key, err := f.key()
	if err != nil {
		return nil, err
	}
	// No patience at all would be that of a program, which is endless in places.
	c, err := client.New(f.URL, client.WithAPIKey(key), client.WithPatience(max(f.Patience, 1)))
	if err != nil {
		return nil, fmt.Errorf("%q is no server to talk to: give --url or AGENTD_URL something like http://127.0.0.1:8080", f.URL)
	}
	return c, nil
}

// telling is client for commands whose reader sees w.
func (f clientFlags) telling(w io.Writer) (*client.Client, error) {
	c, err := f.client()
	if err != nil {
		return nil, err
	}
	return c.With(tellOutages(w, f.Patience)), nil
}

// findSession finds the session of that id or external id. With create, an
// external id that no session has gets one, and so does "".
func findSession(ctx context.Context, c *client.Client, name string, create bool) (string, error) {
	if looksOurs(name) {
		session, err := c.GetSession(ctx, name)
		if client.ReasonOf(err) != "not_found" {
			return session.GetId(), err
		}
	}
	if name != "" {
		session, err := c.GetSessionByExternalID(ctx, name)
		switch {
		case client.ReasonOf(err) != "not_found":
			return session.GetId(), err
		case !create || looksOurs(name):
			// A new session is not given somebody's mistyped id as a name.
			return "", fmt.Errorf("there is no session %q", name)
		}
	}
	made, err := c.CreateSession(ctx, &agentdv1.CreateSessionRequest{ExternalId: name})
	return made.GetSessionId(), err
}

// looksOurs reports whether a session's name is written like agentd's own ids.
func looksOurs(name string) bool {
	_, err := uuid.Parse(name)
	return err == nil && len(name) == len(uuid.Nil.String())
}

// collect returns all of a list.
func collect[T any](list iter.Seq2[T, error]) ([]T, error) {
	var all []T
	for v, err := range list {
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// first are the first n of a list.
func first[T any](n int, list iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		left := n
		for v, err := range list {
			if left--; !yield(v, err) || left == 0 {
				return
			}
		}
	}
}
