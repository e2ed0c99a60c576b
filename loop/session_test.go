package loop_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// manyKeys are n keys, each with a value.
func manyKeys(n int) map[string]string {
	out := map[string]string{}
	for i := range n {
		out[fmt.Sprintf("k%02d", i)] = "v"
	}
	return out
}

// patch sets every pair of values.
func patch(values map[string]string) map[string]*string {
	out := map[string]*string{}
	for k, v := range values {
		out[k] = &v
	}
	return out
}

func TestSessionsNameTheFieldThatDoesNotFit(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), says("hi"))
	full, err := b.Commands.CreateSession(t.Context(), loop.CreateSession{TenantID: looptest.Tenant, Metadata: manyKeys(16), Actor: looptest.Tester})
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("é", 201)
	for name, c := range map[string]struct {
		title    string
		metadata map[string]string
		field    string
		says     string
	}{
		"long title":     {title: long, field: "title", says: "has 201 characters: send at most 200"},
		"empty key":      {metadata: map[string]string{"": "v"}, field: "metadata", says: "an empty key"},
		"long key":       {metadata: map[string]string{strings.Repeat("k", 65): "v"}, field: "metadata", says: "with 65 bytes: send at most 64"},
		"key in bytes":   {metadata: map[string]string{strings.Repeat("é", 33): "v"}, field: "metadata", says: "with 66 bytes"},
		"key with a NUL": {metadata: map[string]string{"a\x00": "v"}, field: "metadata", says: "a key that is not valid text"},
		"binary key":     {metadata: map[string]string{"\xff": "v"}, field: "metadata", says: "a key that is not valid text"},
		"long value":     {metadata: map[string]string{"k": strings.Repeat("v", 513)}, field: "metadata", says: `a value of 513 bytes under "k": send at most 512`},
		"too many keys":  {metadata: manyKeys(17), field: "metadata", says: "would have 17 keys: at most 16 fit"},
	} {
		_, created := b.Commands.CreateSession(t.Context(), loop.CreateSession{
			TenantID: looptest.Tenant, Title: c.title, Metadata: c.metadata, Actor: looptest.Tester,
		})
		updated := b.Commands.UpdateSession(t.Context(), loop.UpdateSession{
			TenantID: looptest.Tenant, SessionID: full.SessionID, Title: &c.title, Metadata: patch(c.metadata), Actor: looptest.Tester,
		})
		for _, err := range []error{created, updated} {
			var invalid *loop.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != c.field || !strings.Contains(invalid.Problem, c.says) {
				t.Errorf("%s: %v; want %s: %s", name, err, c.field, c.says)
			}
		}
	}
	for _, c := range []struct {
		field string
		cmd   loop.CreateSession
	}{
		{"user", loop.CreateSession{User: "a\x00"}},
		{"user", loop.CreateSession{User: strings.Repeat("é", 101)}},
		{"external_id", loop.CreateSession{ExternalID: "\xff"}},
	} {
		c.cmd.TenantID, c.cmd.Actor = looptest.Tenant, looptest.Tester
		_, err := b.Commands.CreateSession(t.Context(), c.cmd)
		var invalid *loop.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != c.field {
			t.Errorf("%s: %v; want an InvalidError", c.field, err)
		}
	}
	if n := len(b.Events(t, full.SessionID)); n != 1 {
		t.Errorf("%d events after refused updates; want 1", n)
	}
	// The most that fits.
	err = b.Commands.UpdateSession(t.Context(), loop.UpdateSession{
		TenantID: looptest.Tenant, SessionID: full.SessionID, Title: new(long[2:]), Actor: looptest.Tester,
		Metadata: map[string]*string{"k00": nil, strings.Repeat("k", 64): new(strings.Repeat("v", 512))},
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := b.Commands.CreateSession(t.Context(), loop.CreateSession{TenantID: looptest.Tenant, User: strings.Repeat("é", 100), Actor: looptest.Tester}); err != nil {
		t.Error(err)
	}
}

func TestSessionEventsHoldWhatChanged(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), says("hi"))
	ref, err := b.Commands.CreateSession(t.Context(), loop.CreateSession{
		TenantID: looptest.Tenant, Title: "caf\xe9", User: "u", Metadata: map[string]string{"a": "1\x00", "b": "2"}, Actor: looptest.Tester,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, cmd := range []loop.UpdateSession{
		{Title: new("caf\uFFFD"), Metadata: map[string]*string{"a": new("1\uFFFD"), "c": nil}},
		{Title: new("coffee"), Metadata: map[string]*string{"a": nil, "b": new("2"), "d": new("")}},
		{Metadata: map[string]*string{"d": new("caf\xe9")}},
		{Title: new("tea"), Sanitized: true},
	} {
		cmd.TenantID, cmd.SessionID, cmd.Actor = looptest.Tenant, ref.SessionID, looptest.Tester
		for range 2 { // the second changes nothing
			if err := b.Commands.UpdateSession(t.Context(), cmd); err != nil {
				t.Fatal(err)
			}
		}
	}
	events, _ := checked(t, b, ref.SessionID)
	if got, want := only[event.SessionCreated](t, events), (event.SessionCreated{
		TenantID: looptest.Tenant, Title: "caf\uFFFD", User: "u", Metadata: map[string]string{"a": "1\uFFFD", "b": "2"}, Sanitized: true,
	}); !reflect.DeepEqual(got, want) {
		t.Errorf("created %+v; want %+v", got, want)
	}
	got := payloads[event.SessionUpdated](t, events)
	want := []event.SessionUpdated{
		{Title: new("coffee"), Metadata: map[string]*string{"a": nil, "d": new("")}},
		{Metadata: map[string]*string{"d": new("caf\uFFFD")}, Sanitized: true},
		{Title: new("tea"), Sanitized: true},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("updated %+v; want %+v", got, want)
	}
	if e := events[1]; e.RunID != "" || e.Actor != looptest.Tester {
		t.Errorf("event %+v; want it by its actor, in no run", e)
	}
}

// TestRacingUpdatesOfASessionAddUp: each is a merge into what is there by then.
func TestRacingUpdatesOfASessionAddUp(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), says("hi"))
	id := b.Session(t)
	var wg sync.WaitGroup
	for i := range 24 { // more than fit
		wg.Go(func() {
			err := b.Commands.UpdateSession(t.Context(), loop.UpdateSession{
				TenantID: looptest.Tenant, SessionID: id, Metadata: map[string]*string{fmt.Sprint("k", i): new("v")}, Actor: looptest.Tester,
			})
			if err != nil && !errors.Is(err, loop.ErrInvalid) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if _, s := checked(t, b, id); len(s.Metadata) != loop.MaxMetadataKeys {
		t.Errorf("%d keys; want %d", len(s.Metadata), loop.MaxMetadataKeys)
	}
}

func TestUpdatesOfWhatDoesNotExist(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), says("hi"))
	id, gone := b.Session(t), b.Session(t)
	if err := b.Commands.DeleteSession(t.Context(), looptest.Tenant, gone, looptest.Tester); err != nil {
		t.Fatal(err)
	}
	for _, where := range [][2]string{{looptest.Tenant, gone}, {looptest.Tenant, looptest.NewID()}, {looptest.Tenant, "nope"}, {"other", id}} {
		err := b.Commands.UpdateSession(t.Context(), loop.UpdateSession{TenantID: where[0], SessionID: where[1], Title: new("x"), Actor: looptest.Tester})
		if !errors.Is(err, loop.ErrNotFound) {
			t.Errorf("update in %v: %v; want ErrNotFound", where, err)
		}
	}
	b.Log.(*looptest.Log).FailAppends(func(loop.Append) error { return loop.ErrUnavailable })
	err := b.Commands.UpdateSession(t.Context(), loop.UpdateSession{TenantID: looptest.Tenant, SessionID: id, Title: new("x"), Actor: looptest.Tester})
	if !errors.Is(err, loop.ErrUnavailable) {
		t.Errorf("update in an outage: %v; want ErrUnavailable", err)
	}
}

// TestASessionThatExistsKeepsItsDescription: who creates it again learns its
// id, and changes nothing.
func TestASessionThatExistsKeepsItsDescription(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), says("hi"))
	create := func(title string) loop.SessionRef {
		ref, err := b.Commands.CreateSession(t.Context(), loop.CreateSession{
			TenantID: looptest.Tenant, ExternalID: "mine", Title: title, User: title, Metadata: map[string]string{"k": title}, Actor: looptest.Tester,
		})
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	first := create("one")
	if again := create("two"); again.SessionID != first.SessionID || again.Created {
		t.Errorf("again: %+v; want the session %+v", again, first)
	}
	if events, s := checked(t, b, first.SessionID); len(events) != 1 || s.Title != "one" || s.User != "one" || s.Metadata["k"] != "one" {
		t.Errorf("session %q, %q, %v after %d events", s.Title, s.User, s.Metadata, len(events))
	}
}
