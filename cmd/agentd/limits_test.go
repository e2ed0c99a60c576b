package main

import (
	"bytes"
	"errors"
	"slices"
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
		if _, err := parser.Parse([]string{
			command, "--max-run-time=10m", "--max-tool-calls=20", "--max-tokens=100000",
			"--max-cost=0.5", "--approval-timeout=24h", "--approvers=local, ops-*,", "--input-price=2.50", "--output-price=15", "--on-unknown=fail",
		}); err != nil {
			t.Fatal(err)
		}
		flags := map[string]limitFlags{"dev": c.Dev.limitFlags, "serve": c.Serve.limitFlags}[command]
		set, err := flags.limits()
		if err != nil {
			t.Fatal(err)
		}
		var a loop.Agent
		set(&a)
		want := loop.Limits{
			Turns: 50, RepeatedCalls: 10, RunTime: 10 * time.Minute, ToolCalls: 20, Tokens: 100_000, CostMicros: 500_000,
		}
		if a.Limits != want || a.Prices != (loop.Prices{Input: 2_500_000, Output: 15_000_000}) || a.OnUnknown != loop.UnknownFail || a.Retry != (loop.Retry{Attempts: 4, MaxWait: time.Minute}) ||
			a.Unattended || a.ApprovalTimeout != 24*time.Hour || !slices.Equal(a.Approvers, []string{"local", "ops-*"}) {
			t.Errorf("%s: agent %+v", command, a)
		}
	}
}

func TestAnUnattendedAgentAsksNobody(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]limitFlags{
		"--on-unknown: ask needs somebody to ask":                                                     {OnUnknown: "ask"},
		"--approvers: names who is asked, and --unattended says that there is nobody":                 {Approvers: []string{"local"}},
		"--approval-timeout: is for people who are asked, and --unattended says that there is nobody": {ApprovalTimeout: time.Hour},
	} {
		f.ModelAttempts, f.ModelMaxWait, f.Unattended = 1, time.Second, true
		if _, err := f.limits(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
	set, err := limitFlags{ModelAttempts: 1, ModelMaxWait: time.Second, Unattended: true}.limits()
	if err != nil {
		t.Fatal(err)
	}
	var a loop.Agent
	if set(&a); !a.Unattended || a.Approvers != nil {
		t.Errorf("agent %+v", a)
	}
}

func TestLimitFlagsThatAreWrong(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{
		"--max-turns=-1":                  "--max-turns: -1 is negative",
		"--max-repeated-calls=-1":         "--max-repeated-calls: -1 would end every run",
		"--max-repeated-calls=1":          "--max-repeated-calls: 1 would end every run: give 0 for no limit, or at least 2",
		"--max-run-time=-1s":              "--max-run-time: -1s is negative",
		"--max-tool-calls=-1":             "--max-tool-calls: -1 is negative",
		"--max-tokens=-1":                 "--max-tokens: -1 is negative",
		"--max-cost=1":                    "--max-cost: needs to know what tokens cost: give --input-price and --output-price",
		"--max-cost=1.0000001":            `"1.0000001" has more than 6 decimals`,
		"--max-cost=1000000001":           `"1000000001" is more than 1000000000`,
		"--max-cost=99999999999999999999": `is more than 1000000000`,
		"--input-price=-1":                `"-1" is no decimal number such as 2.50`,
		"--input-price=.5":                `".5" is no decimal number such as 2.50`,
		"--output-price=1e3":              `"1e3" is no decimal number such as 2.50`,
		"--on-unknown=maybe":              `must be one of "report","ask","fail"`,
		"--model-attempts=0":              "--model-attempts: 0 is no number of attempts",
		"--approval-timeout=-1s":          "--approval-timeout: -1s is negative: give 0 to wait for ever, or a time such as 24h",
		"--approval-timeout=999us":        "--approval-timeout: 999µs is no time to answer",
		"--approvers=local,[":             `--approvers: "[" is no glob, such as ops-*`,
		"--approvers=ops-*,ada":           "--approvers: ops-*,ada fits nobody who can call: their ids are default (with the API key) and local (without one)",
		"--model-max-wait=0s":             "--model-max-wait: 0s is no time to wait",
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
