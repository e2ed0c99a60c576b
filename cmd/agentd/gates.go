package main

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/seed-2ca4966b/agentd/hooks/guard"
	"github.com/seed-2ca4966b/agentd/hooks/setting"
	"github.com/seed-2ca4966b/agentd/loop"
)

// hookFlags say what is checked before it happens. What embeds them sets the
// variable "denied", the default of DenyTools: a server denies nothing unless it
// is told to.
type hookFlags struct {
	configFlags
	DenyTools     []string `default:"${denied}" env:"AGENTD_DENY_TOOLS" placeholder:"GLOB" help:"Block calls of tools with such a name."`
	MaxInputBytes int      `env:"AGENTD_MAX_INPUT_BYTES" placeholder:"N" help:"Refuse longer messages; 0 takes what the API takes."`
}

// hookConfig is where the hooks come from: the flags, and then the config file. A
// hook of yours goes here, with placed behind the others: docs/hooks.md shows how.
func (f hookFlags) hookConfig() (hookConfig, error) {
	c := hookConfig{path: f.path(), counters: &counters{}}
	if deny := present(f.DenyTools); len(deny) > 0 {
		h, err := guard.DenyTools(guard.DenyToolsConfig{Tools: deny})
		if err != nil {
			return hookConfig{}, badFlag("--deny-tools", "%s", problem(err))
		}
		c.flags = append(c.flags, placed(h, "--deny-tools"))
	}
	if f.MaxInputBytes != 0 {
		h, err := guard.MaxInputBytes(guard.MaxInputBytesConfig{Bytes: f.MaxInputBytes})
		if err != nil {
			return hookConfig{}, badFlag("--max-input-bytes", "%s", problem(err))
		}
		c.flags = append(c.flags, placed(h, "--max-input-bytes"))
	}
	c.extra, c.observers = append(c.extra, placed(extraHooks, "extraHooks")), extraObservers
	return c, nil
}

// gateFlags say what is checked before it happens, and what people are asked.
type gateFlags struct {
	hookFlags
	ToolPermissions []string `default:"memory_delete=ask,memory_clear=ask" env:"AGENTD_TOOL_PERMISSIONS" placeholder:"GLOB=MODE" help:"What the agent may do with tools of such a name: allow, ask (a person has to say yes) or deny. The first that fits decides; what fits none is allowed."`
}

// gates is what the flags and the config file come to.
type gates struct {
	config hookConfig
	// first is what the config came to before anything was started.
	first       *configured
	permissions []loop.Permission
}

// gates reads the config file for the first time: what is wrong with it is said
// before anything starts.
func (f gateFlags) gates() (gates, error) {
	var g gates
	var err error
	if g.config, err = f.hookConfig(); err != nil {
		return gates{}, err
	}
	if g.first, err = g.config.read(); err != nil {
		return gates{}, badConfig(err)
	}
	g.permissions, err = f.permissions()
	return g, err
}

func (f gateFlags) permissions() (all []loop.Permission, err error) {
	for _, rule := range present(f.ToolPermissions) {
		glob, mode, _ := strings.Cut(rule, "=")
		p := loop.Permission{Tools: strings.TrimSpace(glob), Mode: loop.PermissionMode(strings.TrimSpace(mode))}
		if _, err := path.Match(p.Tools, ""); err != nil || p.Tools == "" || !slices.Contains(modes, p.Mode) {
			return nil, badFlag("--tool-permissions", "%q is none: give a glob, = and allow, ask or deny, such as memory_*=ask", rule)
		}
		all = append(all, p)
	}
	return all, nil
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
	var bad *setting.Error
	if errors.As(err, &bad) {
		return bad.Problem
	}
	return err.Error()
}

// badConfig is what is wrong with the config file, or the files that it names.
func badConfig(err error) error { return &exitError{code: exitUsage, err: err} }

func badFlag(flag, format string, args ...any) error {
	return &exitError{code: exitUsage, err: errors.New(flag + ": " + fmt.Sprintf(format, args...))}
}
