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

	"github.com/seed-2ca4966b/agentd/hooks/pluginhost"
)

// version is set by the linker.
var version = "dev"

func main() {
	if len(os.Args) > 1 && os.Args[1] == keeperCommand {
		os.Exit(pluginhost.Keep())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal ends the measurement, and what was started is cleaned up;
	// a second one ends the process.
	context.AfterFunc(ctx, stop)
	os.Exit(exitCode(run(ctx, os.Args[1:], os.Stdout, os.Stderr), os.Stderr))
}

// cli is what a person may type; node and plugin are for this program alone.
type cli struct {
	Run     runCmd     `cmd:"" default:"withargs" help:"Measure, and print a table."`
	Profile profileCmd `cmd:"" help:"Write profiles of the reference run and of paced streams."`
	Node    nodeCmd    `cmd:"" hidden:"" help:"Be a process of agentd whose model is paced."`
	Plugin  pluginCmd  `cmd:"" hidden:"" help:"Be a plugin."`
}

// std are the standard streams.
type std struct{ out, err io.Writer }

// usageError is a wrong flag.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// errHelped ends a process that only had to say how it is called.
var errHelped = errors.New("helped")

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var c cli
	helped := false
	parser, err := kong.New(&c, kong.Name("bench"), kong.Writers(stdout, stderr),
		kong.Description("Measures what agentd costs; docs/performance.md explains the figures."),
		kong.Exit(func(int) { helped = true }))
	if err != nil {
		return fmt.Errorf("flags: %w", err)
	}
	parsed, err := parser.Parse(args)
	if helped {
		return errHelped
	}
	if err != nil {
		return &usageError{err}
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	return parsed.Run(&std{out: stdout, err: stderr})
}

// exitCode says what is left to say about err and returns the process's code.
func exitCode(err error, stderr io.Writer) int {
	var usage *usageError
	switch {
	case err == nil, errors.Is(err, errHelped):
		return 0
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "bench: stopped before the end; nothing is left running")
		return 130
	case errors.As(err, &usage):
		fmt.Fprintln(stderr, "bench:", err)
		return 2
	}
	fmt.Fprintln(stderr, "bench:", err)
	return 1
}
