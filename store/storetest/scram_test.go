package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestLoggingInIsCheckedAndCostsNextToNothing(t *testing.T) {
	t.Parallel()
	db := New(t, Empty)
	var verifier string
	if err := db.Pool.QueryRow(t.Context(), `SELECT rolpassword FROM pg_authid WHERE rolname = current_user`).Scan(&verifier); err != nil || !strings.HasPrefix(verifier, "SCRAM-SHA-256$1:") {
		t.Errorf("the password is stored as %q, %v; want it hashed once", verifier, err)
	}
	config, err := pgx.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	config.Password += "x"
	if _, err := pgx.ConnectConfig(t.Context(), config); err == nil || !strings.Contains(err.Error(), "28P01") {
		t.Errorf("with another password: %v", err)
	}
}

func TestWhoCannotLogInIsTold(t *testing.T) {
	t.Parallel()
	ctx, cancel := withLimit(time.Minute)
	t.Cleanup(cancel)
	for _, url := range []string{"::", "postgres://u:p@127.0.0.1:1/x"} {
		if err := hastily(ctx, url); err == nil {
			t.Errorf("%s: no error", url)
		}
	}
}
