package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/seed-2ca4966b/agentd/api/client"
)

// callPatience is how long a call is repeated before it counts as lost. It is
// longer than anything in the schedule lasts.
const callPatience = 60 * time.Second

// doors are the API processes. Calls go to one of them, and to the next if it
// is not there.
type doors struct {
	urls    []string
	clients []*client.Client
	http    *http.Client
}

func newDoors(urls []string) (*doors, error) {
	d := &doors{urls: urls, http: &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 32}}}
	for _, url := range urls {
		c, err := client.New(url, client.WithHTTPClient(d.http))
		if err != nil {
			return nil, err
		}
		d.clients = append(d.clients, c)
	}
	return d, nil
}

func (d *doors) close() { d.http.CloseIdleConnections() }

// through makes a call at one door after the other, until it is answered. An
// answer that would be the same anywhere is the last.
func through[T any](ctx context.Context, d *doors, first int, do func(ctx context.Context, c *client.Client) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	for i := first; ; i++ {
		out, err := do(ctx, d.clients[i%len(d.clients)])
		if err == nil || !passes(err) {
			return out, err
		}
		if pause(ctx, 50*time.Millisecond) != nil {
			return out, fmt.Errorf("not answered for %s: %w", callPatience, err)
		}
	}
}

// passes reports whether a call that ended with err may be repeated: nobody was
// there, or the database was not.
func passes(err error) bool {
	var answered *client.Error
	if !errors.As(err, &answered) {
		return true // a broken connection
	}
	switch answered.Code {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeCanceled, connect.CodeInternal, connect.CodeUnknown:
		return true
	case connect.CodeAborted:
		return answered.Reason == "conflict"
	default:
		return false
	}
}
