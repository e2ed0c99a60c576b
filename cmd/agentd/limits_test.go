package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/seed-2ca4966b/agentd/loop"
)

func TestLimitFlags(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"dev", "serve"} {
		var c cli
		parser, err := kong.New(&c, defaults)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parser.Parse([]string{command, "--max-run-time=10m", "--unattended"}); err != nil {
			t.Fatal(err)
		}
		flags := map[string]limitFlags{"dev": c.Dev.limitFlags, "serve": c.Serve.limitFlags}[command]
		set, err := flags.limits()
		if err != nil {
			t.Fatal(err)
		}
		var a loop.Agent
		set(&a)
		if a.Limits != (loop.Limits{Turns: 50, RepeatedCalls: 10, RunTime: 10 * time.Minute}) || a.Retry != (loop.Retry{Attempts: 4, MaxWait: time.Minute}) || !a.Unattended {
			t.Errorf("%s: agent %+v", command, a)
		}
	}
}

func TestLimitFlagsThatAreWrong(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{
		"--max-turns=-1":          "--max-turns: -1 is negative",
		"--max-repeated-calls=-1": "--max-repeated-calls: -1 would end every run",
		"--max-repeated-calls=1":  "--max-repeated-calls: 1 would end every run: give 0 for no limit, or at least 2",
		"--max-run-time=-1s":      "--max-run-time: -1s is negative",
		"--model-attempts=0":      "--model-attempts: 0 is no number of attempts",
		"--model-max-wait=0s":     "--model-max-wait: 0s is no time to wait",
	} {
		for _, command := range []string{"dev", "serve"} {
			var out bytes.Buffer
			err := runCommand(t.Context(), []string{command, arg}, &std{in: strings.NewReader(""), out: &out, err: &out})
			var exit *exitError
			if !errors.As(err, &exit) || exit.code != exitUsage || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %s: %v; want %q", command, arg, err, want)
			}
		}
	}
}
