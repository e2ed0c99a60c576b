package main

import (
	"errors"
	"os"
	"os/user"
	"strconv"
	"testing"
)

func TestProcessSaysWhoItIs(t *testing.T) {
	t.Parallel()
	a, b := newProcess(), newProcess()
	if a.ID == b.ID || a.PID != os.Getpid() || a.Version == "" || a.User == "" {
		t.Errorf("%+v, %+v", a, b)
	}
	if got := osUser(&user.User{Username: "ops"}, nil); got != "ops" {
		t.Errorf("the user is %q; want ops", got)
	}
	if got := osUser(nil, errors.New("no such user")); got != strconv.Itoa(os.Getuid()) {
		t.Errorf("without a name the user is %q", got)
	}
}
