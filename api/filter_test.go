package api_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// emit leaves an emission in a turn that is under way.
func (b *backend) emit(t *testing.T, sessionID, runID, channel string, n int) {
	t.Helper()
	b.append(t, sessionID, runID, 1, event.Emission{
		Attempt: 1, Observer: "o", Channel: channel, Envelope: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n)), Chunk: n,
	})
}

// emittingSession has a run that has ended, whose observers emitted on two channels
// between the deltas.
func (b *bundle) emittingSession(t *testing.T) (sessionID, runID string) {
	t.Helper()
	sessionID = b.newSession(t)
	runID = b.start(t, sessionID, "hello").RunID
	b.begin(t, sessionID, runID)
	for i, channel := range []string{"metrics", "other", "metrics"} {
		b.delta(t, sessionID, runID, "word ")
		b.emit(t, sessionID, runID, channel, i+1)
	}
	b.complete(t, sessionID, runID, "word word word ")
	return sessionID, runID
}

// only are the events that pass.
func only(events []event.Event, pass func(event.Event) bool) []event.Event {
	return slices.DeleteFunc(slices.Clone(events), func(e event.Event) bool { return !pass(e) })
}

func ofTypes(types ...event.Type) func(event.Event) bool {
	return func(e event.Event) bool { return slices.Contains(types, e.Type) }
}

func onChannel(channel string) func(event.Event) bool {
	return func(e event.Event) bool {
		return e.Type == event.TypeEmission && strings.Contains(string(e.Payload), `"channel":"`+channel+`"`)
	}
}

var filters = []struct {
	query   string
	types   []string
	channel string
	pass    func(event.Event) bool
}{
	{"types=emission", []string{"emission"}, "", ofTypes(event.TypeEmission)},
	{"types=emission,run.completed", []string{"emission", "run.completed"}, "", ofTypes(event.TypeEmission, event.TypeRunCompleted)},
	{"types=run.completed&types=emission,emission", []string{"run.completed", "emission", "emission"}, "", ofTypes(event.TypeEmission, event.TypeRunCompleted)},
	{"channel=metrics", nil, "metrics", onChannel("metrics")},
	{"types=emission,run.completed&channel=metrics", []string{"emission", "run.completed"}, "metrics", func(e event.Event) bool {
		return onChannel("metrics")(e) || e.Type == event.TypeRunCompleted
	}},
	{"channel=nobody", nil, "nobody", func(event.Event) bool { return false }},
}

func TestFilteredStreamsKeepTheSeqsOfTheSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sessionID, runID := b.emittingSession(t)
	all := b.events(t, sessionID)
	for _, f := range filters {
		want := only(all, f.pass)
		for cursor := range int64(len(all)) + 1 {
			left := only(want, func(e event.Event) bool { return e.Seq > cursor })
			for path, until := range map[string]string{eventsPath(sessionID, "?"): "&until=idle", runEventsPath(runID, "?"): ""} {
				res := b.get(t, path+f.query+until, lastID(cursor))
				if wantStatus := map[bool]int{true: http.StatusOK, false: http.StatusNoContent}[len(left) > 0]; res.status != wantStatus {
					t.Fatalf("%s%s after %d: %d, want %d", path, f.query, cursor, res.status, wantStatus)
				}
				wantFrames(t, readFrames(t, res.body).rest(), left)
			}
			w := b.watch(t.Context(), t, b.sessions, &agentdv1.WatchEventsRequest{
				SessionId: sessionID, After: uint64(cursor), UntilIdle: true, Types: f.types, Channel: f.channel,
			})
			for _, e := range left {
				if got := w.event(); got.GetSeq() != uint64(e.Seq) || got.GetDataJson() != string(e.Payload) {
					t.Errorf("%s: got %v, want %v", f.query, got, e)
				}
			}
			if err := w.end(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestFilteredPagesJoin(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sessionID, _ := b.emittingSession(t)
	all := b.events(t, sessionID)
	for _, f := range append(filters, filters[0]) {
		for size := int32(1); size < 5; size++ {
			var got []uint64
			for after, more := uint64(0), true; more; {
				res, err := b.sessions.ListEvents(t.Context(), connect.NewRequest(&agentdv1.ListEventsRequest{
					SessionId: sessionID, After: after, PageSize: size, Types: f.types, Channel: f.channel,
				}))
				if err != nil {
					t.Fatal(err)
				}
				page := res.Msg
				if len(page.GetEvents()) > int(size) || page.GetNextAfter() < after || page.GetMore() && page.GetNextAfter() == after {
					t.Fatalf("%s: %v after %d", f.query, page, after)
				}
				for _, e := range page.GetEvents() {
					got = append(got, e.GetSeq())
				}
				after, more = page.GetNextAfter(), page.GetMore()
				if !more && after != uint64(len(all)) {
					t.Errorf("%s: the last page says everything up to %d, want %d", f.query, after, len(all))
				}
			}
			var want []uint64
			for _, e := range only(all, f.pass) {
				want = append(want, uint64(e.Seq))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s in pages of %d: %d, want %d", f.query, size, got, want)
			}
		}
	}
}

func TestAPageOfFewAmongManyEndsAndSaysHowFarItLooked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sessionID := b.newSession(t)
	runID := b.start(t, sessionID, "hello").RunID
	b.begin(t, sessionID, runID)
	deltas := make([]event.Payload, 10_100)
	for i := range deltas {
		deltas[i] = event.AssistantDelta{Attempt: 1, Lane: "text", BlockID: "0", Text: "w"}
	}
	b.append(t, sessionID, runID, 1, deltas...)
	b.emit(t, sessionID, runID, "metrics", 1)
	page := func(after uint64) *agentdv1.ListEventsResponse {
		res, err := b.sessions.ListEvents(t.Context(), connect.NewRequest(&agentdv1.ListEventsRequest{
			SessionId: sessionID, After: after, Types: []string{"emission"},
		}))
		if err != nil {
			t.Fatal(err)
		}
		return res.Msg
	}
	first := page(0)
	if len(first.GetEvents()) != 0 || !first.GetMore() || first.GetNextAfter() != 10_000 {
		t.Errorf("first page: %d events, more %v, up to %d; want none, more, up to 10000", len(first.GetEvents()), first.GetMore(), first.GetNextAfter())
	}
	if second := page(first.GetNextAfter()); len(second.GetEvents()) != 1 || second.GetMore() {
		t.Errorf("second page: %v, want the emission alone", second)
	}
}

func TestAFilteredStreamIsLiveAndBeatsMeanwhile(t *testing.T) {
	t.Parallel()
	b := setup(t, heartbeat(time.Millisecond))
	sessionID := b.newSession(t)
	runID := b.start(t, sessionID, "hello").RunID
	live := readFrames(t, b.get(t, eventsPath(sessionID, "?types=emission"), nil).body)
	ofRun := readFrames(t, b.get(t, runEventsPath(runID, "?channel=metrics"), nil).body)
	idle := readFrames(t, b.get(t, eventsPath(sessionID, "?channel=metrics&until=idle"), nil).body)
	b.begin(t, sessionID, runID)
	b.delta(t, sessionID, runID, "not for this reader")
	for _, f := range []*frames{live, ofRun, idle} {
		for { // what it does not want is silence
			fr, ok := f.next()
			if !ok || fr.id != 0 {
				t.Fatalf("%+v, %v; want a comment", fr, ok)
			}
			if fr.comment == "ping" {
				break
			}
		}
	}
	b.emit(t, sessionID, runID, "metrics", 1)
	b.complete(t, sessionID, runID, "done")
	want := only(b.events(t, sessionID), ofTypes(event.TypeEmission))
	wantFrames(t, []frame{live.event()}, want)
	wantFrames(t, ofRun.rest(), want)
	wantFrames(t, idle.rest(), want)
}

func TestAnEmissionThatCannotBeReadIsShownOnEveryChannel(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sessionID := b.newSession(t)
	runID := b.start(t, sessionID, "hello").RunID
	b.begin(t, sessionID, runID)
	b.append(t, sessionID, runID, 1, newer{"emission", json.RawMessage(`{"channel":7}`)})
	got := readFrames(t, b.get(t, eventsPath(sessionID, "?channel=metrics"), nil).body).event()
	if !strings.Contains(string(got.data), `{"channel":7}`) {
		t.Errorf("%s", got.data)
	}
}

// newer is an event of a type, with a payload that this binary would not write.
type newer struct {
	kind event.Type
	raw  json.RawMessage
}

func (n newer) EventType() event.Type        { return n.kind }
func (n newer) MarshalJSON() ([]byte, error) { return n.raw, nil }

func TestFiltersThatCanOnlyBeSlipsAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sessionID, runID := b.emittingSession(t)
	for _, c := range []struct {
		query, field string
		types        []string
		channel      string
	}{
		{"types=emissions", "types", []string{"emissions"}, ""},
		{"types=emission,", "types", []string{"emission", ""}, ""},
		{"types=", "types", []string{""}, ""},
		{"types=run.completed&channel=metrics", "channel", []string{"run.completed"}, "metrics"},
		{"channel=", "channel", nil, ""},
		{"channel=a&channel=b", "channel", nil, ""},
		{"channel=%ff", "channel", nil, ""},
		{"channel=" + strings.Repeat("x", 201), "channel", nil, strings.Repeat("x", 201)},
		{"types=%ff", "types", nil, ""},
	} {
		for _, path := range []string{eventsPath(sessionID, "?"+c.query), runEventsPath(runID, "?"+c.query)} {
			if body := wantJSONError(t, b.get(t, path, nil), 400, "invalid_argument", "invalid_argument"); body["field"] != c.field {
				t.Errorf("%s: field %q, want %q", path, body["field"], c.field)
			}
		}
		if c.types == nil && c.channel == "" {
			continue // it cannot be said in a call
		}
		_, err := b.sessions.ListEvents(t.Context(), connect.NewRequest(&agentdv1.ListEventsRequest{SessionId: sessionID, Types: c.types, Channel: c.channel}))
		if detail := wantError(t, err, connect.CodeInvalidArgument, "invalid_argument"); detail.GetField() != c.field {
			t.Errorf("%s: field %q, want %q", c.query, detail.GetField(), c.field)
		}
		w := b.watch(t.Context(), t, b.sessions, &agentdv1.WatchEventsRequest{SessionId: sessionID, Types: c.types, Channel: c.channel})
		wantError(t, w.end(), connect.CodeInvalidArgument, "invalid_argument")
	}
}

func TestAFilteredStreamFailsAsItsLogDoes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sessionID, _ := b.emittingSession(t)
	b.pageFails(io.ErrUnexpectedEOF)
	wantJSONError(t, b.get(t, eventsPath(sessionID, "?types=emission&until=idle"), nil), 500, "internal", "internal")
	_, err := b.sessions.ListEvents(t.Context(), connect.NewRequest(&agentdv1.ListEventsRequest{SessionId: sessionID, Types: []string{"emission"}}))
	wantError(t, err, connect.CodeInternal, "internal")
}

// pageFails has every reading of a page fail, and nothing else.
func (b *bundle) pageFails(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failPages = err
}
