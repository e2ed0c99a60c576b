package sse

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/seed-2ca4966b/agentd/loop"
)

// Errors that say what is wrong with a cursor.
var (
	// ErrBadCursor: the cursor is no seq.
	ErrBadCursor = errors.New("the cursor is no event id: send the id of the last event that was received, in decimal digits")
	// ErrCursorAhead: the cursor is above the session's last event, so it comes
	// from another session.
	ErrCursorAhead = errors.New("the cursor is above the session's last event: it belongs to another session")
)

// maxDigits is the length of the largest int64. It bounds the work on a hostile
// cursor.
const maxDigits = 19

// ParseCursor reads a seq. The empty text is 0, the cursor before the first
// event. Everything that is not plain digits of an int64 is [ErrBadCursor].
func ParseCursor(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	if len(s) > maxDigits {
		return 0, ErrBadCursor
	}
	// ParseInt also takes a sign, which no id has.
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, ErrBadCursor
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, ErrBadCursor
	}
	return n, nil
}

// Query is what a request asks for.
type Query struct {
	// After is the cursor.
	After     int64
	UntilIdle bool
	// Types are the names of the event types that are to be sent, as the request has
	// them; none is every type.
	Types []string
	// Channel is that of the emissions that are to be sent; "" is every channel.
	Channel string
}

func parseQuery(r *http.Request) (Query, error) {
	params, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		// URL.Query drops what it cannot read, and a lost cursor replays all.
		return Query{}, ErrBadCursor
	}
	var q Query
	switch params.Get("until") {
	case "":
	case "idle":
		q.UntilIdle = true
	default:
		return Query{}, &loop.InvalidError{Field: "until", Problem: `is unknown: send until=idle or leave it out`}
	}
	for _, list := range params["types"] {
		q.Types = append(q.Types, strings.Split(list, ",")...)
	}
	switch channels := params["channel"]; {
	case len(channels) > 1:
		return Query{}, &loop.InvalidError{Field: "channel", Problem: "is there twice: send one, or none for all of them"}
	case len(channels) == 1 && channels[0] == "":
		// A reader of a channel that lost its name would get everything.
		return Query{}, &loop.InvalidError{Field: "channel", Problem: "is empty: name a channel or leave it out"}
	}
	q.Channel = params.Get("channel")
	// An empty header is what a client has that never received an id.
	cursors := r.Header.Values("Last-Event-ID")
	if r.Header.Get("Last-Event-ID") == "" && len(cursors) < 2 {
		cursors = params["after"]
	}
	if len(cursors) > 1 {
		return Query{}, ErrBadCursor
	}
	if len(cursors) == 1 {
		q.After, err = ParseCursor(cursors[0])
	}
	return q, err
}
