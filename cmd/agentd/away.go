package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/seed-2ca4966b/agentd/api/client"
)

// awayError is one sentence about a server that does not answer, and what to do.
type awayError struct{ away *client.AwayError }

// Error returns the sentence.
func (e awayError) Error() string {
	return e.away.Error() + ": is it running? `agentd dev` starts one, --url or AGENTD_URL names another"
}

// Unwrap returns what is told.
func (e awayError) Unwrap() error { return e.away }

// aboutServer says what can be done about a server that does not answer. Other
// errors stay as they are.
func aboutServer(err error) error {
	var away *client.AwayError
	if errors.As(err, &away) {
		return awayError{away}
	}
	return err
}

// sayAway is what people are told while they wait.
func sayAway(patience time.Duration) string {
	return fmt.Sprintf("the server is away, waiting up to %s…", patience)
}

// tellOutages writes a line when the server goes away, and one when it is back.
func tellOutages(w io.Writer, patience time.Duration) client.Option {
	return client.WithOutage(
		func() { fmt.Fprintln(w, sayAway(patience)) },
		func() { fmt.Fprintln(w, "the server is back") },
	)
}
