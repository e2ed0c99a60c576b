package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// pipe sends each line of the input as a message, in turn, and prints the
// answers. What is printed of a run is the text of its assistant.completed
// events, byte for byte, and a line break.
func (cmd chatCmd) pipe(ctx context.Context, talk *conversation, streams *std) error {
	say := func(format string, args ...any) { fmt.Fprintf(streams.err, format+"\n", args...) }
	interrupts, release := interruptions()
	defer release()
	input := bufio.NewReader(streams.in)
	next := asker(func() (string, error) { return input.ReadString('\n') })
	failed := false
	for more := true; more; {
		var l line
		select {
		case l = <-next():
		case <-interrupts:
			return &exitError{code: exitFailure}
		}
		if l.err != nil && !errors.Is(l.err, io.EOF) {
			return fmt.Errorf("read a message: %w", l.err)
		}
		more = l.err == nil
		text := strings.TrimRight(l.text, "\r\n")
		if strings.TrimSpace(text) == "" {
			continue
		}
		if talk.sessionID == "" {
			if err := cmd.open(ctx, talk, interrupts); err != nil {
				return err
			}
			say("session %s", talk.sessionID)
		}
		end, err := talk.print(ctx, text, streams, interrupts)
		switch {
		case errors.Is(err, errUndecided):
			return &exitError{code: exitUndecided}
		case err != nil && !refused(err):
			return err
		}
		if err == nil {
			err = failure(end)
		}
		if err != nil {
			failed = true
			say("agentd: %s", err)
		}
		if _, cancelled := end.(event.RunCancelled); cancelled {
			break
		}
	}
	if failed {
		return &exitError{code: exitFailure}
	}
	return nil
}

// print sends one message and prints the answer.
func (c *conversation) print(ctx context.Context, text string, streams *std, interrupts <-chan struct{}) (event.Payload, error) {
	v := &printView{err: streams.err}
	end, err := c.answer(ctx, text, v, interrupts)
	if v.text.Len() > 0 || err == nil && failure(end) == nil {
		v.text.WriteByte('\n')
	}
	// One write: whoever reads has whole answers.
	if _, werr := streams.out.Write(v.text.Bytes()); werr != nil {
		return nil, fmt.Errorf("print the answer: %w", werr)
	}
	return end, err
}

// printView keeps the text of what was completed, or stopped by an observer.
type printView struct {
	text bytes.Buffer
	err  io.Writer
	// tools are the names of those that were called, by the id of the call.
	tools map[string]string
}

func (v *printView) show(e event.Payload) {
	switch e := e.(type) {
	case event.AssistantCompleted:
		v.text.WriteString(hooks.Message{Parts: e.Parts}.Text())
	case event.AssistantStopped:
		v.stopped(e)
	case event.ToolProposed:
		if v.tools == nil {
			v.tools = map[string]string{}
		}
		v.tools[e.CallID] = e.Name
	case event.ToolProgress:
		if note := progressNote(v.tools[e.CallID], e); note != "" {
			fmt.Fprintln(v.err, note)
		}
	}
}

// stopped keeps what was accepted of an answer, unless the run fails by it.
func (v *printView) stopped(e event.AssistantStopped) {
	if e.Observer == "" {
		return
	}
	fmt.Fprintln(v.err, stopNote(e))
	switch text := (hooks.Message{Parts: e.Parts}).Text(); {
	case e.Policy == stream.StopFail:
	case e.Policy == stream.StopEndTurn || text == "":
		v.text.WriteString(text)
	default: // another answer follows
		v.text.WriteString(text + "\n")
	}
}

func (v *printView) waiting() {
	fmt.Fprintln(v.err, "another run of this session has to end first, waiting…")
}

func (v *printView) reply(text string) { v.text.WriteString(text) }

// decide says where an answer can be given: whoever writes into a pipe is not
// there to read.
func (v *printView) decide(a *agentdv1.Approval) (bool, error) {
	if ofOutcome(a) {
		fmt.Fprintf(v.err, "agentd: %s was started and interrupted, and a person has to say whether it has taken effect (idempotency key %s):\n\t%s\nanswer with one of\n\tagentd approvals happened %s\n\tagentd approvals not-happened %s\n",
			a.GetToolName(), a.GetCallId(), printable(a.GetArguments()), a.GetId(), a.GetId())
		return false, errUndecided
	}
	fmt.Fprintf(v.err, "agentd: %s waits for a person's yes or no:\n\t%s\nanswer with one of\n\tagentd approvals approve %s\n\tagentd approvals deny %s\n",
		a.GetToolName(), printable(a.GetArguments()), a.GetId(), a.GetId())
	return false, errUndecided
}

func (v *printView) late(error) {}

// line is what was read. Text may come with the error that ends the input.
type line struct {
	text string
	err  error
}

// asker returns a function that reads once, in the background. What it was
// asked for is given to the next receiver when nobody took it. A read cannot be
// stopped, so one may still wait when the process exits.
func asker(read func() (string, error)) func() <-chan line {
	answers := make(chan line, 1)
	return func() <-chan line {
		go func() {
			text, err := read()
			answers <- line{text: text, err: err}
		}()
		return answers
	}
}
