package store

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// values are a parameter that holds one value for every row. Postgres gets what
// it would get of the slice itself, but no value is copied to the heap on its
// way: a group has some forty for each row. V is a type of pgtype or one that
// Index names.
type values[V any] []V

// Dimensions implements [pgtype.ArrayGetter].
func (v values[V]) Dimensions() []pgtype.ArrayDimension { return pgtype.FlatArray[V](v).Dimensions() }

// Index implements [pgtype.ArrayGetter].
func (v values[V]) Index(i int) any {
	switch p := any(&v[i]).(type) {
	case *bool:
		return *p
	case *int32:
		return (*intValue)(p)
	case *int64:
		return (*longValue)(p)
	case *string:
		return (*textValue)(p)
	case *[]byte:
		return (*bytesValue)(p)
	case *time.Time:
		return (*timeValue)(p)
	default:
		return p
	}
}

// IndexType implements [pgtype.ArrayGetter].
func (v values[V]) IndexType() any { return make(values[V], 1).Index(0) }

// A pointer to one of these is a value that pgx reads without a copy.
type (
	intValue   int32
	longValue  int64
	textValue  string
	bytesValue []byte
	timeValue  time.Time
)

// Int64Value implements [pgtype.Int64Valuer].
func (v *intValue) Int64Value() (pgtype.Int8, error) { return bigint(int64(*v)), nil }

// Int64Value implements [pgtype.Int64Valuer].
func (v *longValue) Int64Value() (pgtype.Int8, error) { return bigint(int64(*v)), nil }

// TextValue implements [pgtype.TextValuer].
func (v *textValue) TextValue() (pgtype.Text, error) {
	return pgtype.Text{String: string(*v), Valid: true}, nil
}

// BytesValue implements [pgtype.BytesValuer]; nil is NULL.
func (v *bytesValue) BytesValue() ([]byte, error) { return *v, nil }

// TimestamptzValue implements [pgtype.TimestamptzValuer].
func (v *timeValue) TimestamptzValue() (pgtype.Timestamptz, error) { return at(time.Time(*v)), nil }
