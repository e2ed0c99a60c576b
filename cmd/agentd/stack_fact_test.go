package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// fact is an event as somebody tells it: two tellings are the same if their
// facts are equal.
type fact struct {
	Seq       int64
	SessionID string
	RunID     string
	Turn      int
	Type      event.Type
	At        string
	ActorKind string
	ActorID   string
	// Payload is byte for byte.
	Payload string
}

func factTime(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }

// stored is what a person at psql is told of a session.
func stored(t *testing.T, db *storetest.DB, sessionID string) []fact {
	t.Helper()
	rows, err := db.Pool.Query(t.Context(), `
		SELECT seq, session_id::text, coalesce(run_id::text, ''), coalesce(turn_no, 0), type, at, actor_kind, actor_id, payload::text
		FROM agentd.events WHERE session_id = $1 ORDER BY seq`, sessionID)
	if err != nil {
		t.Fatal(err)
	}
	facts, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (f fact, err error) {
		var at time.Time
		err = row.Scan(&f.Seq, &f.SessionID, &f.RunID, &f.Turn, &f.Type, &at, &f.ActorKind, &f.ActorID, &f.Payload)
		f.At = factTime(at)
		return f, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return facts
}

// toldBySSE reads the data of a frame. Its payload is the last field, so that
// its bytes can be cut out as they are.
func toldBySSE(t *testing.T, fr sseFrame) fact {
	t.Helper()
	var e struct {
		Seq       int64           `json:"seq"`
		SessionID string          `json:"session_id"`
		RunID     string          `json:"run_id"`
		Turn      int             `json:"turn"`
		Type      event.Type      `json:"type"`
		At        time.Time       `json:"at"`
		Actor     event.Actor     `json:"actor"`
		Data      json.RawMessage `json:"data"`
	}
	d := json.NewDecoder(bytes.NewReader(fr.data))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		t.Fatalf("%s: %v", fr.data, err)
	}
	if e.Seq != fr.id {
		t.Errorf("id %d and seq %d in one frame", fr.id, e.Seq)
	}
	return fact{
		Seq: e.Seq, SessionID: e.SessionID, RunID: e.RunID, Turn: e.Turn, Type: e.Type, At: factTime(e.At),
		ActorKind: string(e.Actor.Kind), ActorID: e.Actor.ID, Payload: string(e.Data),
	}
}

func toldByConnect(e *agentdv1.Event) fact {
	return fact{
		Seq: int64(e.GetSeq()), SessionID: e.GetSessionId(), RunID: e.GetRunId(), Turn: int(e.GetTurn()),
		Type: event.Type(e.GetType()), At: factTime(e.GetAt().AsTime()),
		ActorKind: e.GetActor().GetKind(), ActorID: e.GetActor().GetId(), Payload: e.GetDataJson(),
	}
}

// sameStory compares a telling with another one, event by event.
func sameStory(t *testing.T, teller string, got, want []fact) {
	t.Helper()
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Errorf("%s: event %d\n got %+v\nwant %+v", teller, i+1, got[i], want[i])
			return
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s: %d events, want %d", teller, len(got), len(want))
	}
}

// above are the facts with a higher seq.
func above(facts []fact, seq int64) []fact {
	for i, f := range facts {
		if f.Seq > seq {
			return facts[i:]
		}
	}
	return nil
}

// decoded returns the payloads of type P, in order.
func decoded[P event.Payload](t *testing.T, facts []fact) []P {
	t.Helper()
	var out []P
	for _, f := range facts {
		p, err := event.Decode(event.Event{Seq: f.Seq, Type: f.Type, Payload: json.RawMessage(f.Payload)})
		if err != nil {
			t.Fatal(err)
		}
		if p, ok := p.(P); ok {
			out = append(out, p)
		}
	}
	return out
}

// only is the one payload of type P.
func only[P event.Payload](t *testing.T, facts []fact) P {
	t.Helper()
	list := decoded[P](t, facts)
	if len(list) != 1 {
		var p P
		t.Fatalf("%d events of type %s, want one", len(list), p.EventType())
	}
	return list[0]
}
