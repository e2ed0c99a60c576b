package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// untilSignal runs do, whose context the first SIGTERM or SIGINT ends. The
// second one does not wait for do any longer: the caller has to exit.
func untilSignal(ctx context.Context, do func(ctx context.Context) error) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	for asked := false; ; asked = true {
		select {
		case err := <-done:
			return err
		case <-signals:
			if asked {
				return &exitError{code: exitFailure, err: errors.New("stopped at once, by a second signal")}
			}
			cancel()
		}
	}
}

// endedBySignal is nil if err only says that ctx has ended: a signal during the
// start is no failure.
func endedBySignal(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
