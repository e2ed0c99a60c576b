package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// effectsVariable names the file in which the tools of an agentd that is going
// to be killed take effect. Nothing that the log says is taken on trust: this
// file counts.
const effectsVariable = "AGENTD_TEST_EFFECTS"

// The tools: put and die may be repeated, the others must not be. die kills the
// process that it is entered in.
const (
	toolCharge = "charge"
	toolDie    = "die"
	toolPay    = "pay"
	toolPut    = "put"
)

func init() {
	if path := os.Getenv(effectsVariable); path != "" {
		extraTools = append(extraTools, effectTool(path, toolCharge, false), effectTool(path, toolPut, true), effectTool(path, toolPay, false), dieTool(path))
	}
}

// What a call does in its first attempt; in all others it takes effect and
// returns. Any other text is a path: the call takes effect and waits until a
// file is there.
const (
	holdBefore = "before" // it never gets to its effect
	holdAfter  = "after"  // it never returns from it
	holdNever  = "never"
	// holdDeaf, before a path, makes the call pass over the end of its context.
	holdDeaf = "deaf:"
)

// effectTool takes effect by adding a line to a file.
func effectTool(path, name string, idempotent bool) loop.Tool {
	return looptest.Tool{Name: name, Idempotent: idempotent, Run: func(ctx context.Context, in loop.ToolInput) (loop.ToolOutput, error) {
		var args struct {
			Hold string `json:"hold"`
		}
		if err := json.Unmarshal(in.Arguments, &args); err != nil {
			return loop.ToolOutput{}, err
		}
		if in.Attempt > 1 {
			args.Hold = holdNever
		}
		if args.Hold == holdBefore {
			if err := note(path, noteEntered, in); err != nil {
				return loop.ToolOutput{}, err
			}
			<-ctx.Done()
			return loop.ToolOutput{}, ctx.Err()
		}
		if err := note(path, noteEffect, in); err != nil {
			return loop.ToolOutput{}, err
		}
		if path, deaf := strings.CutPrefix(args.Hold, holdDeaf); deaf {
			ctx, args.Hold = context.WithoutCancel(ctx), path
		}
		if err := hold(ctx, args.Hold); err != nil {
			return loop.ToolOutput{}, err
		}
		return loop.ToolOutput{Content: fmt.Sprintf("%s took effect in attempt %d", name, in.Attempt)}, nil
	}}
}

// dieTool kills its process in as many attempts as its call says, as running
// out of memory does: nothing of it is seen from within.
func dieTool(path string) loop.Tool {
	return looptest.Tool{Name: toolDie, Idempotent: true, Run: func(ctx context.Context, in loop.ToolInput) (loop.ToolOutput, error) {
		var args struct {
			Times int `json:"times,string"`
		}
		if err := json.Unmarshal(in.Arguments, &args); err != nil {
			return loop.ToolOutput{}, err
		}
		if err := note(path, noteEffect, in); err != nil {
			return loop.ToolOutput{}, err
		}
		if in.Attempt > args.Times {
			return loop.ToolOutput{Content: "lived"}, nil
		}
		if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
			return loop.ToolOutput{}, err
		}
		<-ctx.Done()
		return loop.ToolOutput{}, ctx.Err()
	}}
}

func hold(ctx context.Context, until string) error {
	if until == holdNever {
		return nil
	}
	tick := time.NewTicker(10 * time.Millisecond) // nothing tells of a file
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if until == holdAfter {
			continue
		}
		if _, err := os.Stat(until); err == nil {
			return nil
		}
	}
}

const (
	noteEntered = "entered"
	noteEffect  = "effect"
)

// note is one write, so lines of several processes do not mix.
func note(path, what string, in loop.ToolInput) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(f, "%s %s %s %d\n", what, in.RunID, in.CallID, in.Attempt); err != nil {
		return err
	}
	return f.Close()
}

// effect is a line of the file.
type effect struct {
	what, run, call string
	attempt         int
}

// effects are the lines that a run's tools have left.
func effects(t *testing.T, path, run string) (out []effect) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var e effect
		if _, err := fmt.Sscan(line, &e.what, &e.run, &e.call, &e.attempt); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if e.run == run {
			out = append(out, e)
		}
	}
	return out
}

// awaitEffect returns when a run's tool has been entered.
func awaitEffect(t *testing.T, path, run string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for len(effects(t, path, run)) == 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the tool is not entered")
		}
	}
}
