package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/seed-2ca4966b/agentd/hooks"
)

type hooksCmd struct {
	List hooksListCmd `cmd:"" help:"List the hooks in the order in which they are asked, and where each comes from."`
	Test hooksTestCmd `cmd:"" help:"Run the examples of all rules; the exit code is 1 if one comes to something else."`
}

type hooksListCmd struct {
	hookFlags `set:"denied="`
	pluginFlags

	JSON bool `help:"A line of JSON per hook, with all that is stored of it."`
}

// listedHook is a hook in the order in which it is asked.
type listedHook struct {
	// Position counts from 1 at its gate.
	Position int `json:"position"`
	hooks.Registration
	// Defined is the place in a file, or the flag, that asks for it.
	Defined string `json:"defined"`
}

// listed are the hooks as the loop asks them: by gate, by phase, and then as they
// were registered.
func (c *configured) listed() []listedHook {
	type round struct {
		gate  hooks.Gate
		phase hooks.Phase
	}
	places := map[round][]string{}
	for _, p := range c.parts {
		for _, r := range p.hooks.Set().Hooks {
			at := round{r.Gate, r.Phase}
			places[at] = append(places[at], p.place(r))
		}
	}
	var out []listedHook
	position := map[hooks.Gate]int{}
	for _, r := range c.hooks.Set().Hooks {
		at := round{r.Gate, r.Phase}
		position[r.Gate]++
		out = append(out, listedHook{Position: position[r.Gate], Registration: r, Defined: places[at][0]})
		places[at] = places[at][1:]
	}
	return out
}

// Run reads flags and files as `serve` does, and needs no database.
func (cmd hooksListCmd) Run(streams *std) error {
	c, err := cmd.configured()
	if err != nil {
		return err
	}
	for _, problem := range misplaced(c.observed) {
		fmt.Fprintln(streams.err, "warning: "+problem)
	}
	list := c.listed()
	if cmd.JSON {
		return printJSONLines(streams.out, append(list, c.listedObservers()...))
	}
	if len(list) == 0 {
		_, err = fmt.Fprintln(streams.out, "no hook is registered: nothing is asked at any gate (docs/config.md shows how to add one)")
	} else {
		err = printHooks(streams.out, list)
	}
	if err == nil && len(c.observed) > 0 {
		err = printObservers(streams.out, c.observed)
	}
	// Only a plugin that runs can say where it is asked.
	bundles, _, lookErr := cmd.discover()
	if err = errors.Join(err, lookErr); err == nil && len(bundles) > 0 {
		_, err = fmt.Fprintf(streams.out, "\nbehind these: %s, with gates and rules that `agentd plugins status` tells of a process\n", count(int64(len(bundles)), "plugin"))
	}
	return err
}

// configured is what flags and files come to, where nobody is asked.
func (f hookFlags) configured() (*configured, error) {
	config, err := f.hookConfig()
	if err != nil {
		return nil, err
	}
	config.unasked = true
	c, err := config.read()
	if err != nil {
		return nil, badConfig(err)
	}
	return c, nil
}

func printJSONLines[T any](out io.Writer, list []T) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	for _, one := range list {
		if err := enc.Encode(one); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	return nil
}

func printHooks(out io.Writer, list []listedHook) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "GATE\t#\tPHASE\tHOOK\tKIND\tON FAILURE\tTIMEOUT\tPURE\tSHADOW\tONLY\tDEFINED")
	for _, h := range list {
		id := oneLine(h.ID, 80)
		if h.Version != "" {
			id += "@" + oneLine(h.Version, 20)
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			h.Gate, h.Position, h.Phase, id, h.Kind, h.OnFailure, h.TimeLimit, yesNo(h.Pure), yesNo(h.Shadow), scopeText(h.Gate, h.Only), oneLine(h.Defined, 200))
	}
	return t.Flush()
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

// scopeText is what a hook is about at a gate, "-" for everything.
func scopeText(at hooks.Gate, s *hooks.Scope) string {
	if s == nil {
		return "-"
	}
	tools := s.Tools
	if !slices.Contains([]hooks.Gate{hooks.GateBeforeToolCall, hooks.GateBeforeExecute, hooks.GateAfterToolCall}, at) {
		tools = nil // it is about no call, and the hook is asked whatever they are
	}
	var all []string
	for _, one := range []struct {
		name  string
		globs []string
	}{{"tools", tools}, {"agents", s.Agents}, {"tenants", s.Tenants}} {
		if len(one.globs) > 0 {
			all = append(all, one.name+"="+oneLine(strings.Join(one.globs, ","), 80))
		}
	}
	return orElse(strings.Join(all, " "), "-")
}

type hooksTestCmd struct{ configFlags }

// Run asks the rules about their examples. Nothing else is asked, and no database
// is needed.
func (cmd hooksTestCmd) Run(ctx context.Context, streams *std) error {
	path := cmd.path()
	if path == "" {
		return &exitError{code: exitUsage, err: errors.New("which config file? There is no agentd.yaml in this directory: give --config FILE")}
	}
	c, err := hookConfig{path: path}.read()
	if err != nil {
		return badConfig(err)
	}
	return untilSignal(ctx, func(ctx context.Context) error {
		report, err := c.rules.Test(ctx)
		if err != nil {
			return err
		}
		for _, f := range report.Failures {
			fmt.Fprintf(streams.out, "%s:%d: %s\n", f.File, f.Line, oneLine(failedExample(f.Rule, f.Name), 200))
			for _, d := range f.Differences {
				fmt.Fprintf(streams.out, "    %s\n", oneLine(d, 1000))
			}
		}
		numRules := count(int64(len(c.rules.Rules())), "rule")
		if report.Examples == 0 {
			fmt.Fprintf(streams.out, "%s, no examples: nothing was tested (docs/rules.md shows how to write one)\n", numRules)
		} else {
			fmt.Fprintf(streams.out, "%s, %s, %s\n", numRules, count(int64(report.Examples), "example"), count(int64(len(report.Failures)), "failure"))
		}
		if len(report.Failures) > 0 {
			return &exitError{code: exitFailure}
		}
		return nil
	})
}

// failedExample names an example.
func failedExample(rule, name string) string {
	out := "an example of all rules"
	if rule != "" {
		out = "an example of rule " + rule
	}
	if name != "" {
		out += ": " + name
	}
	return out
}
