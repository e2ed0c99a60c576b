package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/pluginhost"
)

// lookAtPlugins says of each what `agentd plugins list` says. None is started.
func (cmd doctorCmd) lookAtPlugins(d *diagnosis, settings pluginSettings) {
	const name = "plugins"
	if err := cmd.named(); err != nil {
		d.fail(name, "make the directory, or leave AGENTD_PLUGIN_DIR empty", "agentd would not start: %v", err)
		return
	}
	bundles, problems := pluginhost.Discover(cmd.dirs())
	for _, problem := range settings.missing(idsOf(bundles)) {
		d.warn(name, "correct the id, or take it out", "%s", problem)
	}
	for _, p := range problems {
		// What is wrong with a plugin is told with it.
		if !slices.ContainsFunc(bundles, func(b pluginhost.Bundle) bool { return b.ID == p.ID && b.Broken != nil && b.Broken.Error() == p.Text }) {
			d.warn(name, "put it right, or away", "%s", p)
		}
	}
	var dirs []string
	for _, dir := range cmd.dirs() {
		if _, err := os.Stat(dir); err != nil {
			dir += " (not there)"
		}
		dirs = append(dirs, dir)
	}
	d.ok(name, "%s in %s", count(int64(len(bundles)), "plugin"), strings.Join(dirs, ", "))
	if len(bundles) == 0 {
		return
	}
	if err := pluginhost.CheckDir(cmd.runDir()); err != nil {
		d.fail("plugin dir", "correct the directory, or give another one with AGENTD_PLUGIN_RUN_DIR", "plugins cannot be run: %v", err)
	} else {
		d.ok("plugin dir", "plugins are run from %s", cmd.runDir())
	}
	for _, b := range bundles {
		cmd.lookAtPlugin(d, b, settings)
	}
}

func (cmd doctorCmd) lookAtPlugin(d *diagnosis, b pluginhost.Bundle, settings pluginSettings) {
	p := cmd.found(b, settings)
	name, at := "plugin "+p.ID, pluginName(p.ID, p.Version)+" in "+p.Path
	err := b.Check(cmd.RequirePluginLock)
	lock, _ := pluginhost.ReadLock(b.Root) // what is wrong with it is told by Check
	switch {
	case settings[b.ID].disabled:
		d.ok(name, "it is not started: %s", p.Problem)
	case errors.Is(err, pluginhost.ErrNotLocked):
		d.fail(name, "look at the plugin; if it is what it should be: agentd plugins lock, then agentd plugins reload", "it would not be started, %s: %v", settings[b.ID].without(), err)
	case err != nil:
		d.fail(name, "put the plugin right (docs/plugins.md says what a bundle has), then: agentd plugins list", "it would not be started, %s: %v", settings[b.ID].without(), err)
	case !lock.Exists:
		d.warn(name, "look at the plugin, then: agentd plugins lock", "%s would be started as it is: there is no %s", at, filepath.Join(b.Root, pluginhost.LockName))
	default:
		d.ok(name, "%s is as it was locked, and would be started", at)
	}
}

// lookAtProcess asks a process how it is.
func (cmd doctorCmd) lookAtProcess(ctx context.Context, d *diagnosis) {
	const name = "process"
	said, ready, err := readyAt(ctx, cmd.URL)
	switch {
	case err != nil:
		d.fail(name, "check that it runs, and --url", "%s does not answer: %s", cmd.URL, reason(err))
		return
	case !ready:
		d.fail(name, "look at what it logs", "%s is not ready: %s", cmd.URL, oneLine(said, 200))
	default:
		d.ok(name, "%s is ready", cmd.URL)
	}
	server := pluginServer{URL: cmd.URL, keyFlags: cmd.keyFlags}
	body, err := server.fetch(ctx, http.MethodGet)
	var report pluginReport
	if err == nil {
		err = json.Unmarshal(body, &report)
	}
	if err != nil {
		d.fail("its plugins", "check the API key, and that the process is agentd", "they are not known: %s", oneLine(err.Error(), longestField))
		return
	}
	if len(report.Plugins) == 0 {
		d.ok("its plugins", "it has none")
	}
	for _, p := range report.Plugins {
		lookAtRunning(d, p)
	}
}

// readyAt asks a process whether it wants requests, and what it says else.
func readyAt(ctx context.Context, url string) (said string, ready bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(url, "/")+"/readyz", http.NoBody)
	if err != nil {
		return "", false, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", false, err
	}
	defer answer.Body.Close()
	const maxSaid = 4 << 10
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxSaid))
	return answer.Status + ": " + string(body), answer.StatusCode == http.StatusOK, err
}

// lookAtRunning tells of a plugin that a process has.
func lookAtRunning(d *diagnosis, p listedPlugin) {
	name := "running " + p.ID
	state := fmt.Sprintf("%s is %s", pluginName(p.ID, p.Version), p.State)
	if !p.Since.IsZero() {
		state += " since " + p.Since.UTC().Format(time.RFC3339)
	}
	state += fmt.Sprintf(", started %s, ended by itself %s", count(int64(p.Starts), "time"), count(int64(p.Deaths), "time"))
	if p.Reason != "" {
		state += ": " + p.Reason
	}
	switch pluginhost.State(p.State) {
	case pluginhost.StateDown:
		d.fail(name, "put right what is the cause, then: agentd plugins reload", "%s", state)
	case pluginhost.StateStarting, pluginhost.StateDraining:
		d.warn(name, "look again in some seconds", "%s", state)
	case pluginhost.StateUp:
		now, err := pluginhost.Bundle{Root: filepath.Dir(p.Path), Path: p.Path}.Digest()
		switch {
		case p.Health != "":
			d.warn(name, "look at what it logs", "%s; %s", state, p.Health)
		case err == nil && now != p.Digest:
			d.warn(name, "agentd plugins reload, if the new one is to be asked", "%s; it is not what is in %s now", state, p.Path)
		default:
			d.ok(name, "%s", state)
		}
	}
}
