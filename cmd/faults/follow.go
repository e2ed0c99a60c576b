package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// follower reads the events of a session as a front end does, and comes and
// goes. It is used by one goroutine until it is done.
type follower struct {
	doors     *doors
	sessionID string
	random    *rand.Rand
	http      *http.Client

	// joins are what it has seen, each from a cursor on.
	joins []join
	// wrong is the first answer that no client should get.
	wrong string
}

// join is what a client has seen behind a cursor, over any number of
// connections.
type join struct {
	after int64
	seen  []sighting
}

// sighting is an event as a client has seen it.
type sighting struct {
	seq int64
	sum uint64
}

func newFollower(d *doors, sessionID string, seed uint64) *follower {
	return &follower{
		doors: d, sessionID: sessionID, random: rand.New(rand.NewPCG(seed, 7)),
		http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, joins: []join{{}},
	}
}

// follow reads until the session is over, and then what is left.
func (f *follower) follow(over, whole context.Context) {
	for over.Err() == nil {
		ctx, leave := context.WithTimeout(over, time.Duration(100+f.random.IntN(3000))*time.Millisecond)
		f.connect(ctx, "")
		leave()
		if f.random.IntN(8) == 0 {
			f.anew()
		}
		_ = pause(over, time.Duration(f.random.IntN(200))*time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(whole, callPatience)
	defer cancel()
	for ctx.Err() == nil && !f.connect(ctx, "?until=idle") {
		_ = pause(ctx, 100*time.Millisecond)
	}
	if ctx.Err() != nil && whole.Err() == nil {
		f.wrong = fmt.Sprintf("session %s: the rest of the events does not come within %s", f.sessionID, callPatience)
	}
}

// anew begins a new join somewhere in what was seen.
func (f *follower) anew() {
	last := f.joins[len(f.joins)-1]
	if len(last.seen) > 0 {
		f.joins = append(f.joins, join{after: last.seen[f.random.IntN(len(last.seen))].seq})
	}
}

// connect reads one connection to its end. It reports whether the server said
// that nothing is left.
func (f *follower) connect(ctx context.Context, query string) (complete bool) {
	at := &f.joins[len(f.joins)-1]
	cursor := at.after
	if n := len(at.seen); n > 0 {
		cursor = at.seen[n-1].seq
	}
	url := f.doors.urls[f.random.IntN(len(f.doors.urls))] + "/v1/sessions/" + f.sessionID + "/events" + query
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		f.wrong = err.Error()
		return true
	}
	if cursor > 0 {
		r.Header.Set("Last-Event-ID", strconv.FormatInt(cursor, 10))
	}
	res, err := f.http.Do(r)
	if err != nil {
		return false
	}
	defer res.Body.Close()
	switch {
	case res.StatusCode == http.StatusNoContent:
		return true
	case res.StatusCode >= http.StatusInternalServerError:
		return false // it is stopping, or without its database
	case res.StatusCode != http.StatusOK:
		text, _ := io.ReadAll(io.LimitReader(res.Body, 500))
		f.wrong = fmt.Sprintf("session %s, cursor %d: %s %s", f.sessionID, cursor, res.Status, text)
		return true
	}
	f.read(res.Body, at)
	return false
}

// read takes the events of a connection. One that is cut off in the middle was
// not received.
func (f *follower) read(body io.Reader, at *join) {
	in := bufio.NewReader(body)
	var id, data string
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "id: "):
			id = line[len("id: "):]
		case strings.HasPrefix(line, "data: "):
			data = line[len("data: "):]
		case line == "" && data != "":
			seq, err := strconv.ParseInt(id, 10, 64)
			sum, ok := sumOf(data)
			if err != nil || !ok {
				f.wrong = fmt.Sprintf("session %s: event id %q, data %q", f.sessionID, id, data)
				return
			}
			at.seen = append(at.seen, sighting{seq: seq, sum: sum})
			id, data = "", ""
		}
	}
}

// sumOf is a sum of an event's type and payload, as they were sent.
func sumOf(data string) (uint64, bool) {
	var e struct {
		Type    string          `json:"type"`
		Payload json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal([]byte(data), &e); err != nil || e.Type == "" {
		return 0, false
	}
	return eventSum(e.Type, e.Payload), true
}

func eventSum(typ string, payload []byte) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, typ+"\x00") // it cannot fail
	_, _ = h.Write(payload)
	return h.Sum64()
}

// compare returns what differs between what was seen and what is stored.
func (f *follower) compare(stored []sighting) (lost, other int, err error) {
	for _, j := range f.joins {
		if j.after > int64(len(stored)) {
			return 0, 0, errors.New("a cursor behind the end")
		}
		want := stored[j.after:]
		for i, s := range j.seen {
			if i >= len(want) || s != want[i] {
				other++
				break
			}
		}
	}
	// The last one has read to the end.
	last := f.joins[len(f.joins)-1]
	if missing := len(stored) - int(last.after) - len(last.seen); missing > 0 {
		lost = missing
	}
	return lost, other, nil
}
