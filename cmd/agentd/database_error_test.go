package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// hangingUp is a server that takes connections and is no Postgres.
func hangingUp(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-ended
	})
	return listener.Addr().String()
}

func TestADatabaseThatCannotBeUsedIsOneSentence(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	db := storetest.New(t, storetest.Unverified)
	u, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	user := u.User.Username()
	foreign := hangingUp(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	execute(t, db, `CREATE ROLE crowd LOGIN PASSWORD '`+secret+`' CONNECTION LIMIT 0`)
	t.Cleanup(func() {
		if _, err := db.Pool.Exec(context.Background(), `DROP ROLE crowd`); err != nil {
			t.Error(err)
		}
	})
	const checked = "AGENTD_DATABASE_URL"
	databases := map[string]struct {
		url  string
		want []string
	}{
		"NobodyThere":    {"postgres://u:" + secret + "@127.0.0.1:1/agentd", []string{"127.0.0.1:1 (connection refused)"}},
		"SeveralNobodys": {"postgres://u:" + secret + "@127.0.0.1:1,127.0.0.1:2/agentd", []string{"127.0.0.1:1 or 127.0.0.1:2 ("}},
		"NoSocket":       {"postgres:///agentd?host=/nowhere&port=5433&password=" + secret, []string{"/nowhere/.s.PGSQL.5433 (no such file"}},
		"NoPostgres":     {"postgres://u:" + secret + "@" + foreign + "/agentd", []string{foreign + " ("}},
		"WrongPassword":  {"postgres://" + user + ":" + secret + "@" + u.Host + "/" + db.Name, []string{u.Host, "password authentication failed", "check user, password"}},
		"Full":           {"postgres://crowd:" + secret + "@" + u.Host + "/" + db.Name, []string{u.Host + " takes no connection now (too many connections", "try again"}},
		"Silent":         {"postgres://u:" + secret + "@" + silent.Addr().String() + "/agentd?connect_timeout=1", []string{silent.Addr().String() + " (no answer in time)"}},
		"NoDatabase":     {strings.Replace(db.URL, db.Name, "nowhere", 1), []string{u.Host, `"nowhere" does not exist`}},
		"NoTLS":          {db.URL + "?sslmode=require", []string{u.Host, "TLS"}},
		"Garbage":        {"postgres//u:" + secret + "@h/d", []string{"not the address of a Postgres", "postgres://user:password@host:5432/agentd"}},
		"OddPassword":    {"postgres://u:" + secret + "/#%@h:5432/d", []string{"not the address of a Postgres", "%XX"}},
		"BadSetting":     {"postgres://u:" + secret + "@h/d?sslmode=" + secret, []string{"not the address of a Postgres"}},
	}
	password, _ := u.User.Password()
	for name, d := range databases {
		for _, args := range []string{"serve --listen 127.0.0.1:0", "migrate", "verify", "dev --listen 127.0.0.1:0", "psql --builtin -c SELECT"} {
			t.Run(name+"/"+strings.Fields(args)[0], func(t *testing.T) {
				t.Parallel()
				var out, log bytes.Buffer
				err := run(t.Context(), append(strings.Fields(args), "--database-url", d.url), strings.NewReader(""), &out, &log)
				if err == nil {
					t.Fatalf("no error, printed %q", out.String())
				}
				for _, want := range append(d.want, checked) {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("no %q in %q", want, err)
					}
				}
				if said := err.Error() + out.String() + log.String(); strings.Contains(said, secret) || strings.Contains(said, password) {
					t.Errorf("the password is in %q", said)
				}
				if strings.ContainsAny(err.Error(), "\n\t") || len(err.Error()) > 300 {
					t.Errorf("said %q", err)
				}
			})
		}
	}
}

func TestWhatIsSaidOfADatabase(t *testing.T) {
	t.Parallel()
	other := errors.New("something else")
	var told *databaseError
	if got := aboutDatabase(other); !errors.Is(got, other) || errors.As(got, &told) || aboutDatabase(nil) != nil {
		t.Errorf("another error became %v", got)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := pgconn.Connect(cancelled, "postgres://127.0.0.1:1/x")
	if got := aboutDatabase(err); err == nil || errors.As(got, &told) {
		t.Errorf("a signal became %v", got)
	}
	for code, want := range map[string]bool{"57P03": true, "53300": true, "28P01": false, "3D000": false} {
		if passing(code) != want {
			t.Errorf("passing(%s) = %v", code, !want)
		}
	}
	for want, err := range map[string]error{
		"no such host":      fmt.Errorf("x: %w", &net.DNSError{Err: "no such host", Name: "h"}),
		"something else":    errors.Join(fmt.Errorf("x: %w", other), errors.New("y")),
		"two lines of text": errors.New("two\nlines\nof text"),
	} {
		if got := reason(err); got != want {
			t.Errorf("reason(%v) = %q, want %q", err, got, want)
		}
	}
}
