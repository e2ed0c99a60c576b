package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/term"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
)

func (v *screenView) reply(text string) {
	v.write(plain, text)
	v.begin()
}

// decide shows the call with its exact arguments and asks for a yes or a no.
// The end of the input leaves the call undecided.
func (v *screenView) decide(a *agentdv1.Approval) (yes bool, err error) {
	answers := "approve or deny"
	if ofOutcome(a) {
		answers = "happened or not-happened"
		v.line(plain, "? "+a.GetToolName()+" was started with this and interrupted. Has it taken effect? If not, it runs again.")
	} else {
		v.line(plain, "? "+a.GetToolName()+" wants to run with exactly this:")
	}
	v.line(plain, "  "+a.GetArguments())
	switch {
	case ofOutcome(a):
		v.line(dim, "  (its idempotency key is "+a.GetCallId()+")")
	case a.GetRequestedBy() != "permission":
		v.line(dim, "  (a hook at "+a.GetRequestedBy()+" wants you to decide: "+orElse(oneLine(a.GetReason(), longestField), "no reason given")+")")
	}
	// Nobody said yes by typing before the question was there.
	if err := flushInput(v.terminal.in); err != nil {
		return false, err
	}
	input := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{v.terminal.in, v.terminal.out}, "  y or n? ")
	for {
		text, err := v.terminal.readLine(input)
		switch {
		case errors.Is(err, io.EOF): // Ctrl-C is one too, here
			fmt.Fprintln(v.terminal.out)
			v.line(dim, "(the run waits: agentd approvals "+answers+" "+a.GetId()+")")
			return false, errUndecided
		case err != nil:
			return false, fmt.Errorf("read an answer: %w", err)
		}
		switch strings.ToLower(strings.TrimSpace(text)) {
		case "y", "yes":
			return true, nil
		case "n", "no":
			return false, nil
		}
	}
}

func (v *screenView) late(err error) { v.line(dim, "("+err.Error()+")") }
