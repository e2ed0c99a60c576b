package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/yamlfile"
)

type doctorCmd struct {
	databaseFlags
	listenFlags
	modelFlags
	gateFlags `set:"denied="`
	pluginRunFlags
	limitFlags

	URL  string `name:"url" placeholder:"URL" help:"Look at the process that answers there, too."`
	JSON bool   `help:"A line of JSON per check."`
}

// checkStatus is what a check has come to. The words are read by programs.
type checkStatus string

const (
	checkOK checkStatus = "ok"
	// checkWarn: it works, and is not as it should be.
	checkWarn checkStatus = "warn"
	// checkFail: it does not work.
	checkFail checkStatus = "fail"
)

// check is one of what was looked at.
type check struct {
	Status checkStatus `json:"status"`
	Name   string      `json:"check"`
	// Message is a sentence about what is the case, Do what to do about it, "" where
	// that is nothing.
	Message string `json:"message"`
	Do      string `json:"do,omitempty"`
}

// diagnosis is all that was looked at so far.
type diagnosis []check

func (d *diagnosis) ok(name, format string, args ...any) {
	*d = append(*d, check{Status: checkOK, Name: name, Message: fmt.Sprintf(format, args...)})
}

func (d *diagnosis) warn(name, do, format string, args ...any) {
	*d = append(*d, check{checkWarn, name, fmt.Sprintf(format, args...), do})
}

func (d *diagnosis) fail(name, do, format string, args ...any) {
	*d = append(*d, check{checkFail, name, fmt.Sprintf(format, args...), do})
}

func (d diagnosis) count(s checkStatus) (n int64) {
	for _, c := range d {
		if c.Status == s {
			n++
		}
	}
	return n
}

// doctorPatience is how long a database or a process may take to answer all that it is
// asked.
const doctorPatience = 10 * time.Second

// Run looks at what `serve` would start with, and changes nothing of it.
func (cmd doctorCmd) Run(ctx context.Context, streams *std) error {
	return untilSignal(ctx, func(ctx context.Context) error {
		d := cmd.diagnose(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		if cmd.JSON {
			err = printJSONLines(streams.out, d)
		} else {
			err = d.print(streams.out)
		}
		if err == nil && d.count(checkFail) > 0 {
			err = &exitError{code: exitFailure}
		}
		return err
	})
}

func (cmd doctorCmd) diagnose(ctx context.Context) diagnosis {
	var d diagnosis
	settings := cmd.lookAtConfig(&d)
	cmd.lookAtSettings(&d)
	cmd.lookAtKey(&d)
	cmd.lookAtModel(&d)
	within := func(look func(context.Context, *diagnosis)) {
		ctx, cancel := context.WithTimeout(ctx, doctorPatience)
		defer cancel()
		look(ctx, &d)
	}
	within(cmd.lookAtDatabase)
	cmd.lookAtPlugins(&d, settings)
	if cmd.URL != "" {
		within(cmd.lookAtProcess)
	}
	return d
}

func (d diagnosis) print(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, c := range d {
		text := oneLine(c.Message, longestField)
		if c.Do != "" {
			text += ". What to do: " + oneLine(c.Do, longestField)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", c.Status, oneLine(c.Name, 80), text)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%s, %s, %s\n", count(int64(len(d)), "check"), count(d.count(checkFail), "failure"), count(d.count(checkWarn), "warning"))
	return err
}

// lookAtConfig reads agentd.yaml, and what it names, as at the start. It returns what the
// file says of plugins, if it can be read.
func (cmd doctorCmd) lookAtConfig(d *diagnosis) pluginSettings {
	const name = "config"
	config, err := cmd.hookConfig()
	if err != nil {
		d.fail(name, "correct the flag, or its variable", "%v", err)
		return nil
	}
	c, err := config.read()
	var wrong *yamlfile.Errors
	switch {
	case errors.As(err, &wrong):
		for _, one := range wrong.List {
			d.fail(name, "correct the file: agentd does not start with it, and goes on with what it read before", "%v", one)
		}
		if wrong.More > 0 {
			d.fail(name, "correct those above first", "the config is wrong in %d more places", wrong.More)
		}
		return nil
	case err != nil:
		d.fail(name, "correct the file", "%v", err)
		return nil
	}
	for _, problem := range misplaced(c.observed) {
		d.warn(name, "give the observers another order", "%s", problem)
	}
	asked := fmt.Sprintf("%s at gates, %s", count(int64(len(c.hooks.Set().Hooks)), "hook"), count(int64(len(c.observed)), "observer"))
	if config.path == "" {
		d.ok(name, "there is no %s in this directory: %s", defaultConfig, asked)
		return nil
	}
	d.ok(name, "%s can be read: %s", config.path, asked)
	return c.plugins
}

// lookAtSettings looks at flags and variables that a start would refuse.
func (cmd doctorCmd) lookAtSettings(d *diagnosis) {
	const name, do = "settings", "correct the flag, or its variable"
	_, permissions := cmd.permissions()
	_, limits := cmd.limits()
	for _, err := range []error{permissions, limits} {
		if err != nil {
			d.fail(name, do, "%v", err)
		}
	}
	if permissions != nil || limits != nil {
		return
	}
	d.ok(name, "flags and variables say nothing that cannot be meant")
}

// lookAtKey looks at who may call the API.
func (cmd doctorCmd) lookAtKey(d *diagnosis) {
	const name = "api key"
	key, err := cmd.key()
	switch {
	case err != nil:
		d.fail(name, "set one of AGENTD_API_KEY and AGENTD_API_KEY_FILE to what has a key", "%v", err)
	case key == "" && !loopback(cmd.Listen):
		d.fail(name, "set AGENTD_API_KEY or AGENTD_API_KEY_FILE, or listen on 127.0.0.1:8080", "there is none, and %s is not a loopback address", cmd.Listen)
	case key == "":
		d.ok(name, "there is none: only programs on this machine can connect, to %s", cmd.Listen)
	default:
		d.ok(name, "it guards what is served on %s", cmd.Listen)
	}
}
