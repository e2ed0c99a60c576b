package api_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/seed-2ca4966b/agentd/api"
	"github.com/seed-2ca4966b/agentd/api/apitest"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

func runEventsPath(runID, query string) string { return "/v1/runs/" + runID + "/events" + query }

// eventsOf are the events of a run.
func (b *bundle) eventsOf(t *testing.T, sessionID, runID string) []event.Event {
	t.Helper()
	var own []event.Event
	for _, e := range b.events(t, sessionID) {
		if e.RunID == runID {
			own = append(own, e)
		}
	}
	return own
}

func wantFrames(t *testing.T, got []frame, want []event.Event) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d events, want %d", len(got), len(want))
	}
	for i := range want {
		wantFrame(t, got[i], want[i])
	}
}

// threeRuns makes a session with three runs, all of which have ended.
func (b *bundle) threeRuns(t *testing.T) (sessionID string, runs []string) {
	t.Helper()
	sessionID = b.newSession(t)
	for _, end := range []event.Payload{event.RunCancelled{}, nil, event.RunFailed{Reason: event.FailModel, Error: "no"}} {
		run := b.start(t, sessionID, "go").RunID
		if end == nil {
			b.begin(t, sessionID, run)
			b.delta(t, sessionID, run, "hi")
			b.complete(t, sessionID, run, "hi")
		} else {
			b.append(t, sessionID, run, 0, end)
		}
		runs = append(runs, run)
	}
	return sessionID, runs
}

func TestRunSSECursors(t *testing.T) {
	t.Parallel()
	b := setup(t, withKey("k"))
	sessionID, run := b.finishedSession(t)
	newest := int64(len(b.events(t, sessionID)))
	for _, c := range apitest.Cursors(newest) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			if err := apitest.CheckRunCursor(t.Context(), b.client, b.url+runEventsPath(run, ""), "k", 2, newest, c); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRunSSESendsTheEventsOfTheRunAloneAndEnds(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config, _ *http.Server) { c.Heartbeat = time.Hour })
	sessionID, runs := b.threeRuns(t)
	newest := int64(len(b.events(t, sessionID)))
	for _, run := range runs {
		want := b.eventsOf(t, sessionID, run)
		res := b.get(t, runEventsPath(run, ""), nil)
		if res.header.Get("Content-Type") != "text/event-stream" || res.header.Get("Cache-Control") != "no-cache, no-transform" || res.header.Get("X-Accel-Buffering") != "no" {
			t.Errorf("headers %v", res.header)
		}
		wantFrames(t, readFrames(t, res.body).rest(), want)
		// From every place at which a reader may have been cut off.
		for i, e := range want[:len(want)-1] {
			wantFrames(t, readFrames(t, b.get(t, runEventsPath(run, ""), lastID(e.Seq)).body).rest(), want[i+1:])
		}
		wantFrames(t, readFrames(t, b.get(t, runEventsPath(run, "?until=idle"), nil).body).rest(), want)
		for seq := want[len(want)-1].Seq; seq <= newest; seq++ {
			res := b.get(t, runEventsPath(run, ""), lastID(seq))
			if body, err := io.ReadAll(res.body); res.status != http.StatusNoContent || len(body) != 0 || err != nil {
				t.Errorf("after %d: %d %q %v, want 204", seq, res.status, body, err)
			}
		}
		wantJSONError(t, b.get(t, runEventsPath(run, ""), lastID(newest+1)), 400, "out_of_range", "cursor_ahead")
	}
}

func TestRunSSEFollowsALiveRunToItsEnd(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config, _ *http.Server) { c.Heartbeat = time.Hour })
	sessionID, _ := b.threeRuns(t)
	run := b.start(t, sessionID, "go").RunID
	follow := readFrames(t, b.get(t, runEventsPath(run, ""), nil).body)
	got := []frame{follow.event()}
	b.begin(t, sessionID, run)
	b.delta(t, sessionID, run, "hi")
	late := readFrames(t, b.get(t, runEventsPath(run, ""), lastID(int64(len(b.events(t, sessionID))))).body)
	if fr, ok := late.next(); !ok || fr.retry != "1000" {
		t.Errorf("%+v, want an open stream that waits", fr)
	}
	b.complete(t, sessionID, run, "hi")
	b.start(t, sessionID, "another run, which is not shown")
	want := b.eventsOf(t, sessionID, run)
	wantFrames(t, append(got, follow.rest()...), want)
	wantFrames(t, late.rest(), want[len(want)-3:])
}

func TestRunSSEGoesOnBehindAFailureThatWasNotTheEnd(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config, _ *http.Server) { c.Heartbeat = time.Hour })
	sessionID := b.newSession(t)
	run := b.start(t, sessionID, "go").RunID
	fail := func() { b.append(t, sessionID, run, 0, event.RunFailed{Reason: event.FailModel, Error: "no"}) }
	fail()
	wantFrames(t, readFrames(t, b.get(t, runEventsPath(run, ""), nil).body).rest(), b.eventsOf(t, sessionID, run))
	again, err := b.RetryRun(t.Context(), loop.RetryRun{TenantID: tenant, SessionID: sessionID, RunID: run, Actor: event.System("test")})
	if err != nil {
		t.Fatal(err)
	}
	live := readFrames(t, b.get(t, runEventsPath(run, ""), nil).body)
	got := []frame{live.event()}
	fail()
	want := b.eventsOf(t, sessionID, run)
	wantFrames(t, append(got, live.rest()...), want)
	wantFrames(t, readFrames(t, b.get(t, runEventsPath(run, ""), nil).body).rest(), want)
	if res := b.get(t, runEventsPath(run, ""), lastID(again.Seq)); res.status != http.StatusOK {
		t.Errorf("behind the first failure: %d, want what follows", res.status)
	}
	if res := b.get(t, runEventsPath(run, ""), lastID(want[len(want)-1].Seq)); res.status != http.StatusNoContent {
		t.Errorf("behind the last one: %d, want 204", res.status)
	}
}

func TestRunSSEThatCannotTellWhetherItIsTheEndIsCut(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config, _ *http.Server) { c.Reader = &runFails{Reader: c.Reader, after: 2} })
	sessionID := b.newSession(t)
	run := b.start(t, sessionID, "go").RunID
	b.append(t, sessionID, run, 0, event.RunFailed{Reason: event.FailModel, Error: "no"})
	if got := readFrames(t, b.get(t, runEventsPath(run, ""), nil).body).rest(); len(got) != 0 || !strings.Contains(b.logged.String(), "gone away") {
		t.Errorf("got %+v, logged %s", got, b.logged)
	}
}

func TestRunSSERefusals(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sessionID, run := b.finishedSession(t)
	for _, id := range []string{uuid.NewString(), sessionID, "nope", "a%2Fb%00"} {
		wantJSONError(t, b.get(t, runEventsPath(id, ""), nil), 404, "not_found", "not_found")
	}
	if body := wantJSONError(t, b.get(t, runEventsPath(run, "?until=never"), nil), 400, "invalid_argument", "invalid_argument"); body["field"] != "until" {
		t.Errorf("field %q, want until", body["field"])
	}
	if err := b.DeleteSession(t.Context(), tenant, sessionID, event.System("test")); err != nil {
		t.Fatal(err)
	}
	wantJSONError(t, b.get(t, runEventsPath(run, ""), nil), 404, "not_found", "not_found")
}

// othersOnly is a feed that has only events of other runs, and one at a time.
type othersOnly struct {
	api.Feed
	turns atomic.Int64
}

func (f *othersOnly) Next(ctx context.Context, _, sessionID string, after int64, _ int) ([]event.Event, error) {
	f.turns.Add(1)
	return []event.Event{{Seq: after + 1, SessionID: sessionID, RunID: "other"}}, ctx.Err()
}

func TestRunSSEIsNotSilentWhileOtherRunsSpeak(t *testing.T) {
	t.Parallel()
	feed := &othersOnly{}
	b := setup(t, heartbeat(10*time.Millisecond), func(c *api.Config, _ *http.Server) { feed.Feed, c.Feed = c.Feed, feed })
	run := b.start(t, b.newSession(t), "go").RunID
	stream := readFrames(t, b.get(t, runEventsPath(run, ""), nil).body)
	for _, want := range []string{"", "ping", "ping"} {
		if fr, ok := stream.next(); !ok || fr.comment != want || fr.id != 0 {
			t.Fatalf("%+v, want the opening and heartbeats", fr)
		}
	}
	if feed.turns.Load() < 2 {
		t.Errorf("%d reads, want it to read on", feed.turns.Load())
	}
}

// runFails is a reader whose GetRun fails from the call after on.
type runFails struct {
	api.Reader
	calls atomic.Int64
	after int64
}

func (r *runFails) GetRun(ctx context.Context, tenantID, runID string) (run loop.RunInfo, err error) {
	if r.calls.Add(1) > r.after {
		return run, errors.New("gone away")
	}
	return r.Reader.GetRun(ctx, tenantID, runID)
}

func TestRunSSETellsWhatBreaksAtItsOpening(t *testing.T) {
	t.Parallel()
	for name, breaks := range map[string]option{
		"the run":        func(c *api.Config, _ *http.Server) { c.Reader = &runFails{Reader: c.Reader} },
		"the run, again": func(c *api.Config, _ *http.Server) { c.Reader = &runFails{Reader: c.Reader, after: 1} },
		"the session":    func(c *api.Config, _ *http.Server) { c.Feed = headFails{c.Feed, errors.New("gone away")} },
		"the events":     func(c *api.Config, _ *http.Server) { c.Feed = eventsFail{c.Feed} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, breaks)
			_, run := b.finishedSession(t)
			wantJSONError(t, b.get(t, runEventsPath(run, ""), nil), 500, "internal", "internal")
			if !strings.Contains(b.logged.String(), "gone away") {
				t.Errorf("the log has no cause: %s", b.logged)
			}
		})
	}
}

// eventsFail is a feed that cannot list.
type eventsFail struct{ api.Feed }

func (eventsFail) Events(context.Context, string, string, int64, int) ([]event.Event, error) {
	return nil, errors.New("gone away")
}
