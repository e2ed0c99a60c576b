package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

// databaseError is one sentence about a database that cannot be used, and what
// to do. The password is not in it.
type databaseError struct {
	sentence string
	err      error
}

// Error returns the sentence.
func (e *databaseError) Error() string { return e.sentence }

// Unwrap returns the driver's error, whose text may be pages long.
func (e *databaseError) Unwrap() error { return e.err }

// aboutDatabase puts into a sentence what the driver says of a URL that it
// cannot read, or of a server that it cannot connect to. Other errors stay as
// they are.
func aboutDatabase(err error) error {
	var garbage *pgconn.ParseConfigError
	var refused *pgconn.ConnectError
	switch {
	case errors.As(err, &garbage):
		// Nothing of it is shown: where nothing can be told apart, neither can
		// the password.
		return &databaseError{"AGENTD_DATABASE_URL is not the address of a Postgres: check it, it should look like postgres://user:password@host:5432/agentd, with %XX for what is special in the password", err}
	case errors.As(err, &refused) && !errors.Is(err, context.Canceled):
		return &databaseError{unreachable(refused), err}
	}
	return err
}

func unreachable(refused *pgconn.ConnectError) string {
	at := hosts(refused.Config)
	var answer *pgconn.PgError
	if !errors.As(refused, &answer) {
		return fmt.Sprintf("no Postgres can be reached at %s (%s): check that it runs, and host and port in AGENTD_DATABASE_URL", at, reason(refused))
	}
	message := oneLine(answer.Message, longestField)
	if passing(answer.Code) {
		return fmt.Sprintf("the Postgres at %s takes no connection now (%s): try again, or check AGENTD_DATABASE_URL", at, message)
	}
	return fmt.Sprintf("the Postgres at %s refuses the connection (%s): check user, password and database in AGENTD_DATABASE_URL", at, message)
}

// passing reports whether a server says that it lacks something now, or is
// about to start or to stop.
func passing(code string) bool { return strings.HasPrefix(code, "53") || strings.HasPrefix(code, "57") }

// hosts are where the driver has tried, each once.
func hosts(config *pgconn.Config) string {
	list := []string{place(config.Host, config.Port)}
	for _, f := range config.Fallbacks {
		if p := place(f.Host, f.Port); p != list[len(list)-1] {
			list = append(list, p)
		}
	}
	return strings.Join(list, " or ")
}

// place is host:port, or the path of a socket.
func place(host string, port uint16) string {
	if network, address := pgconn.NetworkAddress(host, port); network == "unix" {
		return address
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// reason is the innermost cause in a few words. None knows of the password.
func reason(err error) string {
	var name *net.DNSError
	var system syscall.Errno
	switch {
	case errors.As(err, &name):
		return name.Err
	case errors.As(err, &system):
		return system.Error()
	case pgconn.Timeout(err):
		return "no answer in time"
	}
	for {
		var inner error
		switch e := err.(type) { //nolint:errorlint // it is about to be unwrapped
		case interface{ Unwrap() []error }:
			if all := e.Unwrap(); len(all) > 0 {
				inner = all[0]
			}
		case interface{ Unwrap() error }:
			inner = e.Unwrap()
		}
		if inner == nil {
			return oneLine(err.Error(), longestField)
		}
		err = inner
	}
}
