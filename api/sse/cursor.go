package sse

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"

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

// query is what a request asks for.
type query struct {
	after     int64
	untilIdle bool
}

func parseQuery(r *http.Request) (query, error) {
	params, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		// URL.Query drops what it cannot read, and a lost cursor replays all.
		return query{}, ErrBadCursor
	}
	var q query
	switch params.Get("until") {
	case "":
	case "idle":
		q.untilIdle = true
	default:
		return query{}, &loop.InvalidError{Field: "until", Problem: `is unknown: send until=idle or leave it out`}
	}
	// An empty header is what a client has that never received an id.
	cursors := r.Header.Values("Last-Event-ID")
	if r.Header.Get("Last-Event-ID") == "" && len(cursors) < 2 {
		cursors = params["after"]
	}
	if len(cursors) > 1 {
		return query{}, ErrBadCursor
	}
	if len(cursors) == 1 {
		q.after, err = ParseCursor(cursors[0])
	}
	return q, err
}
