package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal ends the run, and what was started is cleaned up; a second
	// one ends the process.
	context.AfterFunc(ctx, stop)
	os.Exit(exitCode(run(ctx, os.Args[1:], os.Stdout, os.Stderr), os.Stderr))
}

var (
	// errHelped ends a process that only had to say how it is called.
	errHelped = errors.New("helped")
	// errBroken: something that must be zero is not, which was said already.
	errBroken = errors.New("broken")
)

// usageError is a wrong flag.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var s settings
	helped := false
	parser, err := kong.New(&s, kong.Name("faults"), kong.Writers(stdout, stderr),
		kong.Description("Kills agentd at random under load and looks for what was lost or repeated; docs/durability.md explains the figures."),
		kong.Exit(func(int) { helped = true }))
	if err != nil {
		return fmt.Errorf("flags: %w", err)
	}
	_, err = parser.Parse(args)
	if helped {
		return errHelped
	}
	if err == nil {
		err = s.check()
	}
	if err != nil {
		return &usageError{err}
	}
	return s.run(ctx, stdout, stderr)
}

// exitCode says what is left to say about err and returns the process's code.
func exitCode(err error, stderr io.Writer) int {
	var usage *usageError
	switch {
	case err == nil, errors.Is(err, errHelped):
		return 0
	case errors.Is(err, errBroken):
		return 1
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "faults: stopped before the end; nothing is left running")
		return 130
	case errors.As(err, &usage):
		fmt.Fprintln(stderr, "faults:", err)
		return 2
	}
	fmt.Fprintln(stderr, "faults:", err)
	return 1
}
