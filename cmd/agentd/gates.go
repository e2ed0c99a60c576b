package main

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/guard"
	"github.com/seed-2ca4966b/agentd/loop"
)

// gateFlags say what is checked before it happens, and what people are asked.
// What embeds them sets the variable "denied", the default of DenyTools: a
// server denies nothing unless it is told to.
type gateFlags struct {
	DenyTools       []string `default:"${denied}" env:"AGENTD_DENY_TOOLS" placeholder:"GLOB" help:"Block calls of tools with such a name."`
	MaxInputBytes   int      `env:"AGENTD_MAX_INPUT_BYTES" placeholder:"N" help:"Refuse longer messages; 0 takes what the API takes."`
	ToolPermissions []string `default:"memory_delete=ask,memory_clear=ask" env:"AGENTD_TOOL_PERMISSIONS" placeholder:"GLOB=MODE" help:"What the agent may do with tools of such a name: allow, ask (a person has to say yes) or deny. The first that fits decides; what fits none is allowed."`
}

// gates is what the flags come to.
type gates struct {
	hooks       hooks.Hooks
	permissions []loop.Permission
}

// gates is the place where hooks are registered. One of yours goes here, with
// Then behind the others: docs/hooks.md shows how.
func (f gateFlags) gates() (gates, error) {
	var g gates
	if deny := present(f.DenyTools); len(deny) > 0 {
		h, err := guard.DenyTools(guard.DenyToolsConfig{Tools: deny})
		if err != nil {
			return gates{}, badFlag("--deny-tools", "%s", problem(err))
		}
		g.hooks = g.hooks.Then(h)
	}
	if f.MaxInputBytes != 0 {
		h, err := guard.MaxInputBytes(guard.MaxInputBytesConfig{Bytes: f.MaxInputBytes})
		if err != nil {
			return gates{}, badFlag("--max-input-bytes", "%s", problem(err))
		}
		g.hooks = g.hooks.Then(h)
	}
	for _, rule := range present(f.ToolPermissions) {
		glob, mode, _ := strings.Cut(rule, "=")
		p := loop.Permission{Tools: strings.TrimSpace(glob), Mode: loop.PermissionMode(strings.TrimSpace(mode))}
		if _, err := path.Match(p.Tools, ""); err != nil || p.Tools == "" || !slices.Contains(modes, p.Mode) {
			return gates{}, badFlag("--tool-permissions", "%q is none: give a glob, = and allow, ask or deny, such as memory_*=ask", rule)
		}
		g.permissions = append(g.permissions, p)
	}
	return g, nil
}

var modes = []loop.PermissionMode{loop.PermissionAllow, loop.PermissionAsk, loop.PermissionDeny}

// present drops the empty elements of a list, which is how a variable that is
// set to nothing arrives.
func present(list []string) []string {
	var out []string
	for _, s := range list {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// problem is what is wrong with a guard's config: where it stands is the flag.
func problem(err error) string {
	var bad *guard.ConfigError
	if errors.As(err, &bad) {
		return bad.Problem
	}
	return err.Error()
}

func badFlag(flag, format string, args ...any) error {
	return &exitError{code: exitUsage, err: errors.New(flag + ": " + fmt.Sprintf(format, args...))}
}
