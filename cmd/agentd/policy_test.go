package main

import (
	"bytes"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

func TestPolicyFlags(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"dev", "serve"} {
		for _, p := range append(event.Policies(), "") {
			var c cli
			parser, err := kong.New(&c, defaults)
			if err != nil {
				t.Fatal(err)
			}
			args := []string{command}
			if p != "" {
				args = append(args, "--double-texting", string(p))
			}
			if _, err := parser.Parse(args); err != nil {
				t.Fatal(err)
			}
			if p == "" {
				p = event.PolicyReject
			}
			flags := map[string]policyFlags{"dev": c.Dev.policyFlags, "serve": c.Serve.policyFlags}[command]
			if got := flags.policies(); !maps.Equal(got, map[string]event.Policy{demoAgent: p}) {
				t.Errorf("%v: policies %v", args, got)
			}
		}
		var out bytes.Buffer
		err := runCommand(t.Context(), []string{command, "--double-texting=often"}, &std{in: strings.NewReader(""), out: &out, err: &out})
		var exit *exitError
		if !errors.As(err, &exit) || exit.code != exitUsage || !strings.Contains(err.Error(), "--double-texting must be one of") {
			t.Errorf("%s: %v", command, err)
		}
	}
}
