package store

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestTransient(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want bool
	}{
		{&connectionError{io.ErrUnexpectedEOF}, true},
		{fmt.Errorf("wrapped: %w", &connectionError{io.EOF}), true},
		{errors.New("the queue says no"), false},
		{&pgconn.PgError{Code: "40P01"}, true},  // deadlock
		{&pgconn.PgError{Code: "53300"}, true},  // too many connections
		{&pgconn.PgError{Code: "57P01"}, true},  // the server goes down
		{&pgconn.PgError{Code: "55P03"}, true},  // lock timeout
		{&pgconn.PgError{Code: "25P03"}, true},  // idle in transaction
		{&pgconn.PgError{Code: "57014"}, false}, // statement timeout: it would take as long again
		{&pgconn.PgError{Code: "23505"}, false}, // unique violation
		{&pgconn.PgError{Code: "22P02"}, false}, // bad text
	} {
		if got := transient(test.err); got != test.want {
			t.Errorf("transient(%v) = %t; want %t", test.err, got, test.want)
		}
	}
	if err := (&connectionError{io.EOF}); !errors.Is(err, io.EOF) || err.Error() != "EOF" {
		t.Errorf("connectionError hides its cause: %v", err)
	}
}
