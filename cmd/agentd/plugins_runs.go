package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/pluginhost"
	"github.com/seed-2ca4966b/agentd/loop"
)

// pluginRuns are the runs of this process's worker, for plugins. Without a worker there
// are none.
type pluginRuns struct{ engine atomic.Pointer[loop.Engine] }

var _ pluginhost.Runs = (*pluginRuns)(nil)

func (p *pluginRuns) view(ctx context.Context, run hooks.RunRef) (loop.RunView, error) {
	engine := p.engine.Load()
	if engine == nil {
		return loop.RunView{}, pluginhost.ErrNoSuchRun
	}
	v, err := engine.View(ctx, run.TenantID, run.SessionID, run.RunID)
	if errors.Is(err, loop.ErrNotFound) {
		return v, fmt.Errorf("%w: %w", pluginhost.ErrNoSuchRun, err)
	}
	return v, err
}

// Tools implements pluginhost.Runs.
func (p *pluginRuns) Tools(ctx context.Context, run hooks.RunRef) (pluginhost.RunTools, error) {
	v, err := p.view(ctx, run)
	return pluginhost.RunTools{Active: v.Tools, Away: v.Away, Kept: v.Kept}, err
}

// SystemPrompt implements pluginhost.Runs.
func (p *pluginRuns) SystemPrompt(ctx context.Context, run hooks.RunRef) (string, error) {
	v, err := p.view(ctx, run)
	return v.System, err
}
