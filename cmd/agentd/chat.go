package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/seed-2ca4966b/agentd/api/client"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

type chatCmd struct {
	clientFlags
	logFlags
	Session string `placeholder:"ID" help:"Go on with this session: its id, or a name of yours, which makes one if there is none."`
	Agent   string `placeholder:"NAME" help:"The agent to talk to; the first one if not given."`

	DoubleTexting string `placeholder:"POLICY" help:"What becomes of a message if a run of the session, somebody else's, is active: reject waits here for its end and then sends the message, enqueue sends it at once, interrupt and rollback also cancel that run. The agent's own policy if not given."`
}

// Run talks until the input ends.
func (cmd chatCmd) Run(ctx context.Context, io *std) error {
	c, err := cmd.client()
	if err != nil {
		return err
	}
	talk := &conversation{client: c, agent: cmd.Agent, policy: cmd.DoubleTexting}
	if talk.log, err = cmd.logger(io.err, slog.LevelWarn); err != nil {
		return err
	}
	terminal := asTerminal(io)
	if terminal == nil {
		talk.client = c.With(tellOutages(io.err, cmd.Patience))
		return cmd.pipe(ctx, talk, io)
	}
	return cmd.terminal(ctx, talk, terminal)
}

// open finds or makes the session, unless the person does not want to wait for
// it.
func (cmd chatCmd) open(ctx context.Context, talk *conversation, interrupts <-chan struct{}) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	joined := make(chan struct{})
	go func() {
		defer close(joined)
		select {
		case <-interrupts:
			cancel()
		case <-ctx.Done():
		}
	}()
	defer func() {
		cancel()
		<-joined
	}()
	talk.sessionID, err = findSession(ctx, talk.client, cmd.Session, true)
	return orInterrupted(err)
}

// terminal is a person at a terminal.
type terminal struct{ in, out *os.File }

// asTerminal returns nil unless both ends are one.
func asTerminal(io *std) *terminal {
	in, ok := io.in.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return nil
	}
	out, ok := io.out.(*os.File)
	if !ok || !term.IsTerminal(int(out.Fd())) {
		return nil
	}
	return &terminal{in: in, out: out}
}

// interruptions turns SIGINT into values, until the function that it returns is
// called. At most two are kept.
func interruptions() (<-chan struct{}, func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt)
	out := make(chan struct{}, 2)
	done, joined := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(joined)
		for {
			select {
			case <-signals:
				select {
				case out <- struct{}{}:
				default:
				}
			case <-done:
				return
			}
		}
	}()
	return out, func() {
		signal.Stop(signals)
		close(done)
		<-joined
	}
}

// terminated returns a channel that gets a value at SIGTERM or SIGHUP.
func terminated() (<-chan os.Signal, func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGHUP)
	return signals, func() { signal.Stop(signals) }
}

// refused reports whether an error is about one message: the next one may do.
func refused(err error) bool {
	reason := client.ReasonOf(err)
	return reason == "invalid_argument" || reason == "input_blocked" || reason == "queue_full"
}

// failure is what people are told of the end of a run, nil if it completed.
func failure(end event.Payload) error {
	switch e := end.(type) {
	case event.RunFailed:
		return fmt.Errorf("the run failed (%s): %s", e.Reason, e.Error)
	case event.RunCancelled:
		if e.Reason != "" {
			return fmt.Errorf("the run was cancelled: %s", e.Reason)
		}
		return errors.New("the run was cancelled")
	}
	return nil
}
