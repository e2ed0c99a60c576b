package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// parseID accepts the canonical form and nothing else, since the database
// gives that form back.
func parseID(s string) (pgtype.UUID, error) {
	id, err := uuid.Parse(s)
	if err != nil || len(s) != idLength || strings.ToLower(s) != s {
		return pgtype.UUID{}, fmt.Errorf("%q is not a UUID", event.Shorten(s, 80))
	}
	return pgtype.UUID{Bytes: id, Valid: true}, nil
}

// encodeParts writes no null: a list is a list for those who read in SQL.
func encodeParts(parts []hooks.Part) string {
	if len(parts) == 0 {
		return "[]"
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(parts); err != nil {
		panic("store: a part holds something that JSON cannot: " + err.Error())
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

// noUUID, noText and noTime empty a column, which NULL in a change does not do.
var (
	noUUID = pgtype.UUID{Valid: true}
	noText = pgtype.Text{Valid: true}
	noTime = pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
)

func runStatus(s loop.RunStatus) pgtype.Text { return pgtype.Text{String: string(s), Valid: true} }

// text is NULL for "".
func text(s string) pgtype.Text { return pgtype.Text{String: s, Valid: s != ""} }

func at(t time.Time) pgtype.Timestamptz { return pgtype.Timestamptz{Time: t, Valid: true} }

func integer(n int) pgtype.Int4 { return pgtype.Int4{Int32: int32(n), Valid: true} }

func bigint(n int64) pgtype.Int8 { return pgtype.Int8{Int64: n, Valid: true} }

func boolean(b bool) pgtype.Bool { return pgtype.Bool{Bool: b, Valid: true} }
