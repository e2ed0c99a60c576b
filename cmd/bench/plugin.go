package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin"
)

// The plugins of the benchmark: what one is called says what it does.
const (
	pluginAll     = "all"     // is asked at every gate
	pluginNothing = "nothing" // has subscribed to nothing
	pluginOthers  = "others"  // is asked at every gate, about others

	// These are asked about runs of one agent.
	pluginHealthy = "healthy"
	pluginSleeps  = "sleeps"  // past its time limit
	pluginCrashes = "crashes" // each process at its first question
	pluginFloods  = "floods"  // its standard output, without end
	pluginStops   = "stops"   // itself, by SIGSTOP
)

// guardedAgent is the one whose runs the last ones are asked about.
const guardedAgent = "guarded"

// guardedGates are where: those of a usual policy.
var guardedGates = []hooks.Gate{hooks.GateBeforeRunStart, hooks.GateBeforeToolCall, hooks.GateAfterToolCall}

// pluginCmd is one, as agentd starts it.
type pluginCmd struct {
	ID string `arg:""`
}

// Run serves until the host ends it.
func (cmd pluginCmd) Run() error {
	c, err := pluginConfig(cmd.ID)
	if err != nil {
		return &usageError{err}
	}
	return plugin.Serve(c)
}

func pluginConfig(id string) (plugin.Config, error) {
	c := plugin.Config{ID: id, Version: pluginVersion, On: map[hooks.Gate]plugin.On{}}
	everywhere := make([]hooks.Gate, 0, len(gateCases))
	for _, g := range gateCases {
		everywhere = append(everywhere, g.gate)
	}
	guarding := func(do func()) {
		c.Hooks = plainHooks(guardedGates, do)
		for _, g := range guardedGates {
			c.On[g] = plugin.On{Agents: []string{guardedAgent}}
		}
	}
	switch id {
	case pluginAll:
		c.Hooks = plainHooks(everywhere, func() {})
	case pluginNothing:
	case pluginOthers:
		c.Hooks = plainHooks(everywhere, func() {})
		for _, g := range everywhere {
			c.On[g] = plugin.On{Agents: []string{"other-*"}}
		}
		for _, g := range []hooks.Gate{hooks.GateBeforeToolCall, hooks.GateBeforeExecute, hooks.GateAfterToolCall} {
			c.On[g] = plugin.On{Tools: []string{"other_*"}}
		}
	case pluginHealthy:
		guarding(func() {})
	case pluginSleeps:
		guarding(func() { time.Sleep(time.Minute) })
	case pluginCrashes:
		guarding(func() { os.Exit(3) }) //nolint:revive // that is what it is for
	case pluginFloods:
		guarding(func() {})
		c.Ready = flood
	case pluginStops:
		guarding(func() {
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			time.Sleep(time.Minute) // it may be a moment until all threads have stopped
		})
	default:
		return c, fmt.Errorf("there is no plugin %q", id)
	}
	return c, nil
}

// plainHooks are hooks of these gates that do something and go on.
func plainHooks(gates []hooks.Gate, do func()) hooks.Hooks {
	var h hooks.Hooks
	for _, g := range gateCases {
		if slices.Contains(gates, g.gate) {
			h = h.Then(g.plain(do))
		}
	}
	return h
}

// flood prints as fast as it is read.
func flood(ctx context.Context, _ *plugin.Host) {
	text := strings.Repeat("the house is on fire, ", 4) + "\n"
	for ctx.Err() == nil {
		if _, err := os.Stdout.WriteString(text); err != nil {
			return // nobody is left to read it
		}
	}
}
