package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/pluginhost"
)

const (
	// keeperCommand is the command that makes this binary the keeper of a plugin.
	keeperCommand = "plugin-keeper"
	pluginVersion = "1"
)

// plugged is one plugin with its host, as agentd has them: a process with a keeper,
// whose limits are the usual ones.
type plugged struct {
	host       *pluginhost.Host
	service    *pluginhost.Service
	generation *pluginhost.Generation
	hooks      hooks.Hooks
}

// plugIn starts a plugin of this program, in dir.
func plugIn(ctx context.Context, dir, id string) (_ *plugged, err error) {
	root, err := install(dir, id)
	if err != nil {
		return nil, fmt.Errorf("install plugin %s: %w", id, err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	// Plugins of the benchmark have no tools and ask nothing of their host.
	log := slog.New(slog.DiscardHandler)
	p := &plugged{service: pluginhost.NewService(pluginhost.ServiceConfig{Version: version, Log: log})}
	p.host, err = pluginhost.New(pluginhost.Config{
		Dir: filepath.Join(dir, "r"), Keeper: []string{self, keeperCommand}, Log: log, Greet: p.service.Greet, Gone: p.service.Gone,
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.stop())
		}
	}()
	if err := p.service.Start(p.host.SocketDir()); err != nil {
		return nil, err
	}
	bundles, problems := pluginhost.Discover([]string{root})
	if len(problems) > 0 {
		return nil, errors.New(problems[0].String())
	}
	if err := p.host.Start(ctx, bundles); err != nil {
		return nil, err
	}
	p.generation = p.host.Acquire()
	p.hooks = p.service.Caller(p.generation).Hooks()
	return p, nil
}

// install makes a directory of plugins with one in it. Its program runs this one: a
// copy of tens of megabytes, at each start, would be written to the disk that is
// measured.
func install(dir, id string) (root string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	root = filepath.Join(dir, "plugins-"+id)
	bundle := filepath.Join(root, id)
	if err := os.MkdirAll(bundle, 0o755); err != nil {
		return "", err
	}
	manifest := fmt.Sprintf("id: %s\nversion: %q\nexec: run\nprotocol: 1\n", id, pluginVersion)
	if err := os.WriteFile(filepath.Join(bundle, pluginhost.ManifestName), []byte(manifest), 0o644); err != nil {
		return "", err
	}
	script := fmt.Sprintf("#!/bin/sh\nexec '%s' plugin %s\n", self, id)
	return root, os.WriteFile(filepath.Join(bundle, "run"), []byte(script), 0o755) //nolint:gosec // it is a program
}

// plugin is the one that there is.
func (p *plugged) plugin() *pluginhost.Plugin { return p.generation.Plugins()[0] }

// stop kills the plugin, whatever it is at.
func (p *plugged) stop() error {
	if p.generation != nil {
		p.generation.Release()
	}
	now, cancel := context.WithCancel(context.Background())
	cancel()
	err := p.host.Close(now)
	p.service.Stop()
	return err
}
