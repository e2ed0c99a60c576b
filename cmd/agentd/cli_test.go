package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"--help"}, {"serve", "--help"}, {"chat", "-h"}} {
		var out, said bytes.Buffer
		if err := run(t.Context(), args, strings.NewReader(""), &out, &said); err != nil || said.Len() > 0 {
			t.Errorf("%v: %v, said %q", args, err, said.String())
		}
		if !strings.HasPrefix(out.String(), "Usage: agentd") {
			t.Errorf("%v: printed %q", args, out.String())
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := run(t.Context(), []string{"version"}, nil, &out, nil); err != nil || !strings.HasPrefix(out.String(), "agentd ") || !strings.Contains(out.String(), " go1.") {
		t.Errorf("%v, printed %q", err, out.String())
	}
}

func TestExitCode(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		code int
		said string
	}{
		{nil, 0, ""},
		{errors.New("broken"), 1, "agentd: broken\n"},
		{errors.New("no \x1b[31m\u009bplugin"), 1, "agentd: no \ufffd[31m\ufffdplugin\n"},
		{&exitError{code: 2, err: errors.New("\x07")}, 2, "agentd: \ufffd\n"},
		{&exitError{code: 2, err: errors.New("wrong")}, 2, "agentd: wrong\n"},
		{fmt.Errorf("so %w", &exitError{code: 1, err: errors.New("wrong")}), 1, "agentd: so wrong\n"},
		{&exitError{code: 3}, 3, ""},
	} {
		var said bytes.Buffer
		if code := exitCode(test.err, &said); code != test.code || said.String() != test.said {
			t.Errorf("exitCode(%v) = %d, said %q", test.err, code, said.String())
		}
	}
	if got := (&exitError{code: 3}).Error(); got != "exit code 3" {
		t.Error(got)
	}
}

func TestLoopback(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"127.0.0.1:8080": true, "127.8.8.8:1": true, "[::1]:8080": true, "localhost:8080": true, "[::ffff:127.0.0.1]:1": true,
		":8080": false, "0.0.0.0:8080": false, "[::]:8080": false, "10.0.0.1:8080": false, "example.com:80": false, "localhost": false,
	} {
		if got := loopback(address); got != want {
			t.Errorf("loopback(%q) = %v", address, got)
		}
	}
}

func TestOtherPort(t *testing.T) {
	t.Parallel()
	for busy, want := range map[string]string{
		"127.0.0.1:8080": "127.0.0.1:8081", "[::1]:8080": "[::1]:8081", "127.0.0.1:8081": "127.0.0.1:8082", "nonsense": "127.0.0.1:8082",
	} {
		if got := otherPort(busy); got != want {
			t.Errorf("otherPort(%q) = %s", busy, got)
		}
	}
}
