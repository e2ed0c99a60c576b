package main

import (
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/model/scripted"
)

func TestAnAgentFallsBackToTheModelsThatAreNamed(t *testing.T) {
	t.Parallel()
	model := scripted.New(scripted.Demo(), scripted.Options{})
	own := loop.Prices{Input: 1, Output: 2}
	for _, command := range []string{"dev", "serve"} {
		var c cli
		parser, err := kong.New(&c, defaults)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parser.Parse([]string{command, "--fallback-models=big, small=0.15/0.60,,acme/x:7b=0/0"}); err != nil {
			t.Fatal(err)
		}
		a := loop.Agent{Model: model, ModelName: "first", Prices: own}
		flags := map[string]fallbackFlags{"dev": c.Dev.fallbackFlags, "serve": c.Serve.fallbackFlags}[command]
		if err := flags.fallBack(&a); err != nil {
			t.Fatal(err)
		}
		want := []loop.Fallback{
			{Model: model, ModelName: "big", Prices: own},
			{Model: model, ModelName: "small", Prices: loop.Prices{Input: 150_000, Output: 600_000}},
			{Model: model, ModelName: "acme/x:7b"},
		}
		if len(a.Fallbacks) != len(want) || a.ModelName != "first" {
			t.Fatalf("%s: agent %+v", command, a)
		}
		for i, f := range a.Fallbacks {
			if f != want[i] {
				t.Errorf("%s: fallback %d is %+v, want %+v", command, i, f, want[i])
			}
		}
	}
}

func TestFallbackModelsThatCannotBeMeantAreRefused(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{
		"small=":                          `--fallback-models: "small=" does not end with what a million tokens cost`,
		"small=1":                         `"small=1" does not end with`,
		"small=x/1":                       `"small=x/1" does not end with`,
		"small=1/-1":                      `"small=1/-1" does not end with`,
		"=1/1":                            `"=1/1" names no model`,
		strings.Repeat("small,", 11):      "--fallback-models: names 11 models: give at most 10",
		"a=1/1/1":                         `"a=1/1/1" does not end with`,
		"b=1/1=":                          `"b=1/1=" does not end with`,
		strings.Repeat("x,", 10) + "y=1/": "names 11 models",
	} {
		code, out, said := runAgentd(t, options{dir: t.TempDir()}, "serve", "--database-url", "postgres://127.0.0.1:1/none", "--fallback-models", arg)
		if code != exitUsage || out != "" || !strings.Contains(said, want) {
			t.Errorf("%s: exit code %d, said %q, want %q", arg, code, said, want)
		}
	}
}
