package looptest

import (
	"reflect"
	"testing"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// The part of the conformance suite that is about what clients say about
// sessions.

func testDescription(t *testing.T, log loop.Log) {
	b := on(log)
	ref, err := b.Commands.CreateSession(t.Context(), loop.CreateSession{
		TenantID: Tenant, ExternalID: "mine", Title: "Trip to Rome", User: "u-1", Metadata: map[string]string{"team": "a", "plan": "gold"}, Actor: Tester,
	})
	if err != nil {
		t.Fatal(err)
	}
	update := func(title *string, metadata map[string]*string) {
		t.Helper()
		err := b.Commands.UpdateSession(t.Context(), loop.UpdateSession{
			TenantID: Tenant, SessionID: ref.SessionID, Title: title, Metadata: metadata, Actor: Tester,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	says := func(title string, metadata map[string]string, events int) {
		t.Helper()
		byID, err := log.Head(t.Context(), Tenant, ref.SessionID)
		if err != nil {
			t.Fatal(err)
		}
		byName, err := log.HeadByExternalID(t.Context(), Tenant, "mine")
		if err != nil {
			t.Fatal(err)
		}
		s := loop.FoldAll(loop.State{}, b.Events(t, ref.SessionID))
		for where, got := range map[string]loop.Head{
			"head": byID, "head by external id": byName, "fold": {Title: s.Title, User: s.User, Metadata: s.Metadata, LastSeq: s.LastSeq},
		} {
			if got.Title != title || got.User != "u-1" || !reflect.DeepEqual(got.Metadata, metadata) || got.LastSeq != int64(events) {
				t.Errorf("%s: title %q, user %q, metadata %v, last seq %d; want %q, u-1, %v, %d",
					where, got.Title, got.User, got.Metadata, got.LastSeq, title, metadata, events)
			}
		}
	}
	says("Trip to Rome", map[string]string{"team": "a", "plan": "gold"}, 1)
	update(new("Trip to Rome"), map[string]*string{"team": new("a"), "none": nil})
	says("Trip to Rome", map[string]string{"team": "a", "plan": "gold"}, 1)
	update(new("Rome"), map[string]*string{"team": nil, "plan": new("gold"), "city": new(`R"ö\me`)})
	says("Rome", map[string]string{"plan": "gold", "city": `R"ö\me`}, 2)
	update(new(""), nil)
	says("", map[string]string{"plan": "gold", "city": `R"ö\me`}, 3)
	update(nil, map[string]*string{"plan": nil, "city": nil})
	says("", nil, 4)
	j := b.Start(t, ref.SessionID, "hi")
	update(new("under a run"), map[string]*string{"empty": new("")})
	b.Advance(t, j)
	got, err := log.Load(t.Context(), Tenant, ref.SessionID, j.RunID)
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, loop.FoldAll(loop.State{}, b.Events(t, ref.SessionID)))
	if got.Title != "under a run" || got.User != "u-1" || !reflect.DeepEqual(got.Metadata, map[string]string{"empty": ""}) {
		t.Errorf("loaded: %q, %q, %v", got.Title, got.User, got.Metadata)
	}
}

// testDescriptionsInOneAppend: what several events of one append come to.
func testDescriptionsInOneAppend(t *testing.T, log loop.Log) {
	id := NewID()
	in := make([]event.Event, 0, 3)
	for _, p := range []event.Payload{
		event.SessionCreated{TenantID: Tenant, Title: "one", Metadata: map[string]string{"a": "1", "b": "1"}},
		event.SessionUpdated{Metadata: map[string]*string{"a": nil, "c": new("2")}},
		event.SessionUpdated{Title: new("three"), Metadata: map[string]*string{"a": new("3"), "c": nil}},
	} {
		in = append(in, made(t, id, p))
	}
	if _, err := log.Append(t.Context(), loop.Append{ID: NewID(), TenantID: Tenant, SessionID: id, Events: in}); err != nil {
		t.Fatal(err)
	}
	h, err := log.Head(t.Context(), Tenant, id)
	if want := map[string]string{"a": "3", "b": "1"}; err != nil || h.Title != "three" || h.User != "" || !reflect.DeepEqual(h.Metadata, want) {
		t.Errorf("%q, %q, %v, %v; want three and %v", h.Title, h.User, h.Metadata, err, want)
	}
}
