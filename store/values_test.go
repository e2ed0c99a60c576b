package store

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// TestValuesAreSentAsTheirSliceWouldBe: byte for byte, and without an
// allocation for each.
func TestValuesAreSentAsTheirSliceWouldBe(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts for the whole process
	now := time.UnixMicro(1764446400123456)
	sent(t, pgtype.BoolArrayOID, []bool{true, false})
	sent(t, pgtype.Int4ArrayOID, []int32{-1, 0, 1 << 20})
	sent(t, pgtype.Int8ArrayOID, []int64{-1, 0, 1 << 40})
	sent(t, pgtype.TextArrayOID, []string{"", "a text", "zürich"})
	sent(t, pgtype.ByteaArrayOID, [][]byte{nil, {}, {0, 1, 255}})
	sent(t, pgtype.TimestamptzArrayOID, []time.Time{now, now.UTC(), {}})
	sent(t, pgtype.UUIDArrayOID, []pgtype.UUID{noUUID, {}, {Bytes: [16]byte{1}, Valid: true}})
	sent(t, pgtype.TextArrayOID, []pgtype.Text{{}, noText, text("a")})
	sent(t, pgtype.BoolArrayOID, []pgtype.Bool{{}, boolean(true)})
	sent(t, pgtype.Int4ArrayOID, []pgtype.Int4{{}, integer(7)})
	sent(t, pgtype.Int8ArrayOID, []pgtype.Int8{{}, bigint(1 << 40)})
	sent(t, pgtype.TimestamptzArrayOID, []pgtype.Timestamptz{{}, noTime, at(now)})
	sent(t, pgtype.TextArrayOID, []string{})
}

func sent[V any](t *testing.T, oid uint32, slice []V) {
	t.Helper()
	m, buf := pgtype.NewMap(), make([]byte, 0, 1<<10)
	want, err := m.Encode(oid, pgtype.BinaryFormatCode, pgtype.FlatArray[V](slice), nil)
	if err != nil {
		t.Fatal(err)
	}
	v := any(values[V](slice))
	got, err := m.Encode(oid, pgtype.BinaryFormatCode, v, buf)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%T is sent as %x, %v; want %x", slice, got, err, want)
	}
	many := any(values[V](slices.Repeat(slice, 100)))
	few := testing.AllocsPerRun(10, func() { _, _ = m.Encode(oid, pgtype.BinaryFormatCode, v, buf) })
	more := testing.AllocsPerRun(10, func() { _, _ = m.Encode(oid, pgtype.BinaryFormatCode, many, make([]byte, 0, 1<<14)) })
	if more > few+2 {
		t.Errorf("%T: %v allocations for %d values, %v for 100 times as many", slice, few, len(slice), more)
	}
}
