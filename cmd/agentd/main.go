// Command agentd is a chat backend for agents: one binary over one Postgres.
// This package is the wiring: it reads flags and environment, joins the other
// packages and holds the commands that people type.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	_ "time/tzdata" // the tools know time zones wherever the binary runs

	"github.com/seed-2ca4966b/agentd/hooks/pluginhost"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == keeperCommand {
		os.Exit(pluginhost.Keep())
	}
	os.Exit(exitCode(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr), os.Stderr))
}

// run is the whole program but for its exit. The environment is the process's
// own.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	// net/http tells the log of the process what a server said without being
	// asked, word for word: whatever is behind a URL would write to our stderr.
	log.SetOutput(io.Discard)
	return runCommand(ctx, args, &std{in: stdin, out: stdout, err: stderr})
}

// std are the standard streams of a command.
type std struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}

// exitError ends the process with a code of its own.
type exitError struct {
	code int
	// err is what is still to be said; nil if everything was.
	err error
}

const (
	exitFailure = 1
	exitUsage   = 2
	// exitUndecided: a run waits for a person, and there was none.
	exitUndecided = 3
)

// Error returns what is still to be said.
func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

// Unwrap returns the cause.
func (e *exitError) Unwrap() error { return e.err }

// exitCode says what is left to say about err and returns the process's code.
func exitCode(err error, stderr io.Writer) int {
	if err == nil {
		return 0
	}
	var exit *exitError
	if !errors.As(err, &exit) {
		fmt.Fprintln(stderr, "agentd:", printable(err.Error()))
		return exitFailure
	}
	if exit.err != nil {
		fmt.Fprintln(stderr, "agentd:", printable(err.Error()))
	}
	return exit.code
}
