package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/term"

	"github.com/seed-2ca4966b/agentd/api/client"
	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// terminal holds the conversation of a person.
func (cmd chatCmd) terminal(ctx context.Context, talk *conversation, t *terminal) error {
	// Whatever happens in between, the shell gets its terminal back.
	before, err := term.GetState(int(t.in.Fd()))
	if err != nil {
		return fmt.Errorf("terminal: %w", err)
	}
	defer func() { _ = term.Restore(int(t.in.Fd()), before) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop, ignore := terminated()
	defer ignore()
	done := make(chan error, 1)
	go func() { done <- cmd.talk(ctx, talk, t) }()
	select {
	case err := <-done:
		return err
	case <-stop:
		// talk may be reading, which nothing can end.
		return &exitError{code: exitFailure}
	}
}

func (cmd chatCmd) talk(ctx context.Context, talk *conversation, t *terminal) error {
	interrupts, release := interruptions()
	defer release()
	s := &screen{out: t.out, size: t.size}
	talk.client = talk.client.With(client.WithOutage(func() { s.setStatus(sayAway(cmd.Patience)) }, s.clearStatus))
	if err := cmd.open(ctx, talk, interrupts); err != nil {
		s.begin()
		return err
	}
	s.line(dim, "session "+talk.sessionID+" (Ctrl-C stops an answer, Ctrl-D leaves)")
	input := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{&typed{in: t.in}, t.out}, "> ")
	for {
		text, err := t.readLine(input)
		switch {
		case errors.Is(err, io.EOF): // Ctrl-C is one too, here
			fmt.Fprintln(t.out)
			return nil
		case err != nil:
			return fmt.Errorf("read a message: %w", err)
		case strings.TrimSpace(text) == "":
			continue
		}
		switch err := talk.render(ctx, text, t, s, interrupts); {
		case errors.Is(err, errUndecided):
			return nil
		case err != nil:
			return err
		}
	}
}

// readLine lets the person edit a line. The terminal is in raw mode only
// meanwhile, so that Ctrl-C is a signal during an answer.
func (t *terminal) readLine(input *term.Terminal) (string, error) {
	if err := input.SetSize(t.size()); err != nil {
		return "", err
	}
	cooked, err := term.MakeRaw(int(t.in.Fd()))
	if err != nil {
		return "", err
	}
	text, err := input.ReadLine()
	return text, errors.Join(err, term.Restore(int(t.in.Fd()), cooked))
}

// size falls back to the size of the first terminals for one that has none.
func (t *terminal) size() (width, height int) {
	width, height, err := term.GetSize(int(t.out.Fd()))
	if err != nil || width < 2 || height < 2 {
		return 80, 24
	}
	return width, height
}

// render sends one message and shows the answer. An error ends the
// conversation.
func (c *conversation) render(ctx context.Context, text string, t *terminal, s *screen, interrupts <-chan struct{}) error {
	restore, err := muteEcho(t.in)
	if err != nil {
		return err
	}
	defer restore()
	v := &screenView{screen: s, terminal: t, calls: map[string]event.ToolProposed{}}
	end, err := c.answer(ctx, text, v, interrupts)
	s.begin()
	switch {
	case errors.Is(err, errInterrupted):
		s.line(dim, "(interrupted)")
		return nil
	case err != nil && !refused(err):
		return err
	case err == nil:
		err = failure(end)
	}
	if err != nil {
		style := red
		if _, cancelled := end.(event.RunCancelled); cancelled {
			style = dim
		}
		s.line(style, "("+err.Error()+")")
	}
	return nil
}

// screenView shows a run as it goes on. The block of the screen is the answer
// of one model call.
type screenView struct {
	*screen
	terminal *terminal
	// text is what was shown of the call's text, apart from line breaks that
	// only separate.
	text strings.Builder
	// at is where the call's output stands.
	at struct {
		lane  stream.Lane
		block string
	}
	calls map[string]event.ToolProposed
}

func (v *screenView) waiting() {
	v.setStatus("another run of this session has to end first, waiting…")
}

func (v *screenView) show(e event.Payload) {
	switch e := e.(type) {
	case event.AssistantDelta:
		v.delta(e)
	case event.AssistantDiscarded:
		if !v.erase() {
			v.line(dim, "(the answer was cut off and starts again)")
		}
		v.reset()
	case event.AssistantCompleted:
		v.whole(e.Parts)
	case event.AssistantStopped:
		v.whole(e.Parts)
		if e.Observer != "" {
			v.line(dim, "("+stopNote(e)+")")
		}
	case event.ToolProposed:
		v.calls[e.CallID] = e
	case event.ToolProgress:
		if note := progressNote(v.calls[e.CallID].Name, e); note != "" {
			width, _ := v.size()
			v.line(dim, oneLine("· "+note, width-1))
		}
	case event.ToolResult:
		v.toolResult(e)
	}
}

func (v *screenView) reset() {
	v.text.Reset()
	v.at.lane, v.at.block = "", ""
}

func (v *screenView) delta(d event.AssistantDelta) {
	if v.at.lane != d.Lane || v.at.block != d.BlockID {
		v.freshLine()
		v.at.lane, v.at.block = d.Lane, d.BlockID
	}
	switch d.Lane {
	case stream.LaneText:
		v.text.WriteString(d.Text)
		v.write(plain, d.Text)
	case stream.LaneReasoning:
		v.write(dim, d.Text)
	case stream.LaneToolArguments:
	}
}

// whole ends the answer of a model call. Usually all of it is there already.
func (v *screenView) whole(parts []hooks.Part) {
	full := hooks.Message{Parts: parts}.Text()
	if rest, ok := strings.CutPrefix(full, v.text.String()); ok {
		v.write(plain, rest)
	} else {
		v.erase()
		v.write(plain, full)
	}
	v.begin()
	v.reset()
}

func (v *screenView) toolResult(r event.ToolResult) {
	width, _ := v.size()
	call := v.calls[r.CallID]
	arrow := "→"
	if r.IsError {
		arrow = "✗"
	}
	// The arguments leave room for the beginning of the result.
	head := oneLine("· "+r.Name+" "+call.Arguments, width*2/3)
	v.line(dim, oneLine(head+" "+arrow+" "+r.Content, width-1))
}
