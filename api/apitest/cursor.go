// Package apitest holds what every server of the API has to pass, whatever
// store is behind it: its tests run it on the in-memory log, and those of the
// whole program on Postgres.
package apitest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Cursor is one way to ask for the event stream of a session, and the answer.
type Cursor struct {
	Name string
	// Header is Last-Event-ID; nil sends none.
	Header []string
	// Query is the raw query, "" for none.
	Query string
	// Reason is that of a 400; "" means that the events above After are sent.
	Reason string
	After  int64
}

// Cursors are the good, bad, old and future cursors of a session whose last seq
// is newest, which is at least 2.
func Cursors(newest int64) []Cursor {
	const bad, ahead = "bad_cursor", "cursor_ahead"
	at := func(n int64) string { return strconv.FormatInt(n, 10) }
	header := func(v ...string) []string { return v }
	return []Cursor{
		{Name: "none"},
		{Name: "empty header", Header: header("")},
		{Name: "empty header gives way to the parameter", Header: header(""), Query: "after=1", After: 1},
		{Name: "empty parameter", Query: "after="},
		{Name: "zero", Header: header("0")},
		{Name: "leading zeros", Header: header("01"), After: 1},
		{Name: "earlier", Header: header("1"), After: 1},
		{Name: "earlier by parameter", Query: "after=1", After: 1},
		{Name: "newest", Header: header(at(newest)), After: newest},
		{Name: "newest by parameter", Query: "after=" + at(newest), After: newest},
		{Name: "header wins over parameter", Header: header("1"), Query: "after=" + at(newest), After: 1},
		{Name: "header wins over a bad parameter", Header: header("1"), Query: "after=abc", After: 1},
		{Name: "one above the newest", Header: header(at(newest + 1)), Reason: ahead},
		{Name: "the largest number", Header: header("9223372036854775807"), Reason: ahead},
		{Name: "above the newest by parameter", Query: "after=" + at(newest+1), Reason: ahead},
		{Name: "future header with a good parameter", Header: header(at(newest + 1)), Query: "after=1", Reason: ahead},
		{Name: "word", Header: header("abc"), Reason: bad},
		{Name: "word by parameter", Query: "after=abc", Reason: bad},
		{Name: "negative", Header: header("-1"), Reason: bad},
		{Name: "plus sign", Query: "after=%2B1", Reason: bad},
		{Name: "exponent", Header: header("1e3"), Reason: bad},
		{Name: "fraction", Header: header("1.0"), Reason: bad},
		{Name: "hexadecimal", Header: header("0x1"), Reason: bad},
		{Name: "underscore", Header: header("1_0"), Reason: bad},
		{Name: "inner space", Header: header("1 2"), Reason: bad},
		{Name: "overflow by one", Header: header("9223372036854775808"), Reason: bad},
		{Name: "Arabic digit", Header: header("٣"), Reason: bad},
		{Name: "Arabic digit by parameter", Query: "after=%D9%A3", Reason: bad},
		{Name: "line break", Query: "after=5%0A6", Reason: bad},
		{Name: "NUL", Query: "after=1%00", Reason: bad},
		{Name: "10 KB of nines", Header: header(strings.Repeat("9", 10<<10)), Reason: bad},
		{Name: "10 KB of zeros", Header: header(strings.Repeat("0", 10<<10)), Reason: bad},
		{Name: "header twice", Header: header("1", "2"), Reason: bad},
		{Name: "header twice, once empty", Header: header("", "1"), Reason: bad},
		{Name: "parameter twice", Query: "after=1&after=2", Reason: bad},
		{Name: "broken escape", Query: "after=%zz", Reason: bad},
		{Name: "semicolon", Query: "after=1;until=idle", Reason: bad},
	}
}

// CheckCursor asks for the event stream at url (without a query), whose session
// is idle and has the last seq newest, and says how the answer differs from what
// it should be. It is for sessions without holes.
func CheckCursor(ctx context.Context, client *http.Client, url, key string, newest int64, c Cursor) error {
	return CheckRunCursor(ctx, client, url, key, 1, newest, c)
}

// CheckRunCursor is [CheckCursor] for the event stream of a run, whose events
// are those from first to newest, the last seq of its session.
func CheckRunCursor(ctx context.Context, client *http.Client, url, key string, first, newest int64, c Cursor) error {
	query := strings.Trim(c.Query+"&until=idle", "&")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"?"+query, http.NoBody)
	if err != nil {
		return err
	}
	req.Header["Last-Event-Id"] = c.Header
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	switch {
	case c.Reason != "":
		return checkRefused(res, c.Reason)
	case c.After == newest:
		return checkStatus(res, http.StatusNoContent)
	}
	if err := checkStatus(res, http.StatusOK); err != nil {
		return err
	}
	return checkIDs(res.Body, max(c.After, first-1), newest)
}

func checkStatus(res *http.Response, want int) error {
	if res.StatusCode != want {
		return fmt.Errorf("status %d, want %d", res.StatusCode, want)
	}
	return nil
}

func checkRefused(res *http.Response, reason string) error {
	if err := checkStatus(res, http.StatusBadRequest); err != nil {
		return err
	}
	var body struct{ Code, Reason, Message string }
	if err := json.NewDecoder(res.Body).Decode(&body); err != nil {
		return fmt.Errorf("error body: %w", err)
	}
	if body.Reason != reason || body.Code == "" || body.Message == "" {
		return fmt.Errorf("error %+v, want reason %q, a code and a message", body, reason)
	}
	return nil
}

// checkIDs wants the ids after+1 … newest.
func checkIDs(stream io.Reader, after, newest int64) error {
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, 64<<20)
	next := after + 1
	for lines.Scan() {
		id, ok := strings.CutPrefix(lines.Text(), "id: ")
		if !ok {
			continue
		}
		if id != strconv.FormatInt(next, 10) {
			return fmt.Errorf("id %s, want %d", id, next)
		}
		next++
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the stream: %w", err)
	}
	if next != newest+1 {
		return fmt.Errorf("the stream ended before id %d, want it to end after %d", next, newest)
	}
	return nil
}
