package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/pluginhost"
)

type pluginsCmd struct {
	List    pluginsListCmd    `cmd:"" help:"List the plugins on this machine: whether each would be started, and if not why."`
	Inspect pluginsInspectCmd `cmd:"" help:"Show what a plugin's manifest says, its digest, and whether it would be started."`
	Lock    pluginsLockCmd    `cmd:"" help:"Write down what the plugins are now: others are not started until they are locked, too."`
	Status  pluginsStatusCmd  `cmd:"" help:"Show the plugins of a running process."`
	Reload  pluginsReloadCmd  `cmd:"" help:"Have a running process load its plugins again. If one of them does not start nothing changes."`
}

// foundPlugin is a plugin as it is on disk.
type foundPlugin struct {
	ID       string          `json:"id"`
	Version  string          `json:"version"`
	Path     string          `json:"path"`
	Digest   string          `json:"digest,omitempty"`
	Locked   bool            `json:"locked"`
	Problem  string          `json:"problem,omitempty"`
	Exec     string          `json:"exec,omitempty"`
	Args     []string        `json:"args,omitempty"`
	Env      []string        `json:"env,omitempty"`
	Protocol int             `json:"protocol,omitempty"`
	Memory   int64           `json:"memory,omitempty"`
	Config   json.RawMessage `json:"config,omitempty"`
}

// found says of a plugin what there is to say, with what the config file says of it.
func (f pluginFlags) found(b pluginhost.Bundle, settings pluginSettings) foundPlugin {
	own := settings[b.ID]
	b = b.Configured(own.config)
	p := foundPlugin{
		ID: b.ID, Version: b.Version, Path: orElse(b.Path, b.Root), Exec: b.Exec, Args: b.Args, Env: b.Env, Protocol: b.Protocol, Memory: b.Memory, Config: b.Config,
	}
	if lock, err := pluginhost.ReadLock(b.Root); err == nil {
		_, p.Locked = lock.Digests[b.ID]
	}
	if b.Path != "" {
		p.Digest, _ = b.Digest() // what is wrong is told by Check
	}
	if err := b.Check(f.RequirePluginLock); err != nil {
		p.Problem = err.Error()
	}
	if own.disabled {
		p.Problem = disabledAt(own.place)
	}
	return p
}

func disabledAt(place string) string { return place + " disables it" }

type pluginsListCmd struct {
	pluginFlags
	configFlags
	JSON bool `help:"A line of JSON per plugin, with all that its manifest says."`
}

// Run looks at the disk, and starts nothing.
func (cmd pluginsListCmd) Run(streams *std) error {
	settings, err := cmd.pluginConfig()
	if err != nil {
		return err
	}
	bundles, problems, err := cmd.discover()
	if err != nil {
		return err
	}
	for _, p := range problems {
		fmt.Fprintln(streams.err, "warning: "+oneLine(p.String(), 1000))
	}
	list := make([]foundPlugin, 0, len(bundles))
	for _, b := range bundles {
		list = append(list, cmd.found(b, settings))
	}
	for _, problem := range settings.missing(idsOf(bundles)) {
		fmt.Fprintln(streams.err, "warning: "+problem)
	}
	if cmd.JSON {
		return printJSONLines(streams.out, list)
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(streams.out, "no plugin is installed (docs/plugins.md shows how to add one)")
		return err
	}
	t := tabwriter.NewWriter(streams.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "#\tPLUGIN\tLOCKED\tSTARTS\tPATH")
	for i, p := range list {
		starts := "yes"
		if p.Problem != "" {
			starts = "no: " + oneLine(p.Problem, 300)
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\n", i+1, pluginName(p.ID, p.Version), yesNo(p.Locked), starts, oneLine(p.Path, 200))
	}
	return t.Flush()
}

func pluginName(id, version string) string {
	if version == "" {
		return oneLine(id, 80)
	}
	return oneLine(id, 80) + "@" + oneLine(version, 20)
}

type pluginsInspectCmd struct {
	pluginFlags
	configFlags
	ID string `arg:"" help:"The plugin."`
}

// Run looks at the disk, and starts nothing. The exit code is 1 if it would not be
// started.
func (cmd pluginsInspectCmd) Run(streams *std) error {
	settings, err := cmd.pluginConfig()
	if err != nil {
		return err
	}
	bundles, _, err := cmd.discover()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(bundles, func(b pluginhost.Bundle) bool { return b.ID == cmd.ID })
	if i < 0 {
		return fmt.Errorf("there is no plugin %q in %s", cmd.ID, strings.Join(cmd.dirs(), ", "))
	}
	p := cmd.found(bundles[i], settings)
	enc := json.NewEncoder(streams.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(p); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	if p.Problem != "" {
		return &exitError{code: exitFailure, err: fmt.Errorf("it would not be started: %s", oneLine(p.Problem, 1000))}
	}
	return nil
}

type pluginsLockCmd struct{ pluginFlags }

// Run writes a plugins.lock in each directory that has plugins.
func (cmd pluginsLockCmd) Run(streams *std) error {
	if err := cmd.named(); err != nil {
		return err
	}
	locks := map[string]map[string]string{}
	var roots []string
	for _, dir := range cmd.dirs() {
		root, err := filepath.Abs(dir)
		if err != nil {
			return err
		}
		bundles, _ := pluginhost.Discover([]string{root})
		for _, b := range bundles {
			if b.Path == "" {
				continue // it is locked and gone: now it is not locked any more
			}
			if b.Broken != nil {
				return fmt.Errorf("nothing is locked: %s: %w", b.Path, b.Broken)
			}
			sum, err := b.Digest()
			if err != nil {
				return fmt.Errorf("nothing is locked: %w", err)
			}
			if locks[root] == nil {
				locks[root] = map[string]string{}
			}
			locks[root][b.ID] = sum
		}
		if len(bundles) > 0 && !slices.Contains(roots, root) {
			roots = append(roots, root)
		}
	}
	for _, root := range roots {
		if err := pluginhost.WriteLock(root, locks[root]); err != nil {
			return err
		}
		fmt.Fprintf(streams.out, "%s: %s\n", filepath.Join(root, pluginhost.LockName), count(int64(len(locks[root])), "plugin"))
	}
	if len(roots) == 0 {
		_, err := fmt.Fprintln(streams.out, "no plugin is installed: there is nothing to lock")
		return err
	}
	return nil
}

// pluginServer is a process that has plugins.
type pluginServer struct {
	URL string `default:"http://127.0.0.1:8080" env:"AGENTD_URL" help:"The process: each has plugins of its own, also one that works on runs alone."`
	keyFlags
	JSON bool `help:"What it says, as JSON."`
}

type pluginsStatusCmd struct{ pluginServer }

// Run asks a process.
func (cmd pluginsStatusCmd) Run(ctx context.Context, streams *std) error {
	return cmd.ask(ctx, streams, http.MethodGet)
}

type pluginsReloadCmd struct{ pluginServer }

// Run tells a process, and waits for what comes of it.
func (cmd pluginsReloadCmd) Run(ctx context.Context, streams *std) error {
	return cmd.ask(ctx, streams, http.MethodPost)
}

// reloadPatience is longer than a few plugins take to start.
const reloadPatience = 2 * time.Minute

func (s pluginServer) ask(ctx context.Context, streams *std, method string) error {
	return untilSignal(ctx, func(ctx context.Context) error {
		body, err := s.fetch(ctx, method)
		if err != nil {
			return err
		}
		return s.print(streams, body)
	})
}

// fetch returns what the process answers: a [pluginReport] as JSON.
func (s pluginServer) fetch(ctx context.Context, method string) ([]byte, error) {
	key, err := s.key()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, reloadPatience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(s.URL, "/")+pluginsPath, nil)
	if err != nil {
		return nil, fmt.Errorf("%q is no server to talk to: give --url or AGENTD_URL something like http://127.0.0.1:8080", s.URL)
	}
	r.Header.Set("Content-Type", jsonType)
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", s.URL, err)
	}
	defer answer.Body.Close()
	const maxReport = 16 << 20
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxReport))
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", s.URL, err)
	}
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusConflict {
		return nil, fmt.Errorf("%s answers %s: %s", s.URL, answer.Status, oneLine(string(body), 200))
	}
	return body, nil
}

func (s pluginServer) print(streams *std, body []byte) error {
	var report pluginReport
	if err := json.Unmarshal(body, &report); err != nil {
		return fmt.Errorf("%s does not answer as agentd does: %w", s.URL, err)
	}
	var err error
	if s.JSON {
		_, err = fmt.Fprintln(streams.out, strings.TrimSpace(string(body)))
	} else {
		err = report.print(streams.out)
	}
	if err == nil && report.Error != "" {
		err = &exitError{code: exitFailure, err: errors.New("nothing was loaded, and those above are still asked: " + oneLine(report.Error, 2000))}
	}
	return err
}

// listed are names in a column.
func listed(names []string) string { return orElse(oneLine(strings.Join(names, ","), 200), "-") }

func (r pluginReport) print(out io.Writer) error {
	for _, p := range r.Problems {
		fmt.Fprintln(out, "warning: "+oneLine(p, 1000))
	}
	if len(r.Plugins) == 0 {
		_, err := fmt.Fprintln(out, "it has no plugins")
		return err
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "#\tPLUGIN\tSTATE\tPID\tSTARTS\tGATES\tTOOLS\tRULES\tREASON")
	for i, p := range r.Plugins {
		fmt.Fprintf(t, "%d\t%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\n", i+1, pluginName(p.ID, p.Version), p.State, p.PID, p.Starts,
			orElse(strings.Join(p.Gates, ","), "-"), listed(p.Tools), listed(p.Rules), orElse(oneLine(orElse(p.Reason, p.Health), 300), "-"))
	}
	return t.Flush()
}
