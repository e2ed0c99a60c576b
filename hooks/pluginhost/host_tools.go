package pluginhost

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

// setTools are the tools that a plugin has left a run in one call. They are kept with
// the answer to that call, and with it they count or not.
type setTools struct {
	// call is the context in which the host waits for the answer.
	call context.Context //nolint:containedctx // what the plugin sets belongs to that call, and not to its own call of the host

	mu    sync.Mutex
	names []string
	set   bool
}

// left are those of names that were not taken away.
func (s *setTools) left(names []string) []string {
	if !s.set {
		return names
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !slices.Contains(s.names, name) })
}

// GetActiveTools implements pluginv1.HostServiceServer.
func (s *Service) GetActiveTools(ctx context.Context, _ *pluginv1.GetActiveToolsRequest) (*pluginv1.GetActiveToolsResponse, error) {
	about, err := run(ctx)
	if err != nil {
		return nil, err
	}
	tools, err := s.config.Runs.Tools(ctx, about)
	if err != nil {
		return nil, s.told(about, err)
	}
	set := setWith(ctx)
	set.mu.Lock()
	defer set.mu.Unlock()
	return &pluginv1.GetActiveToolsResponse{Names: set.left(tools.Active)}, nil
}

// SetActiveTools implements pluginv1.HostServiceServer. What it sets becomes true with
// the answer to the call that the plugin is asked in, and not before.
func (s *Service) SetActiveTools(ctx context.Context, q *pluginv1.SetActiveToolsRequest) (*pluginv1.SetActiveToolsResponse, error) {
	about, err := run(ctx)
	if err != nil {
		return nil, err
	}
	set := setWith(ctx)
	set.mu.Lock()
	defer set.mu.Unlock()
	tools, err := s.config.Runs.Tools(ctx, about)
	if err != nil {
		return nil, s.told(about, err)
	}
	has := set.left(slices.Concat(tools.Active, tools.Away))
	for _, name := range q.GetNames() {
		if !slices.Contains(has, name) {
			return nil, status.Errorf(codes.InvalidArgument, "the run has no tool %q", wire.Shorten(name, maxName))
		}
	}
	names := slices.Concat(q.GetNames(), tools.Kept)
	if err := hooks.NarrowTools(set.call, names); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	set.names, set.set = names, true
	return &pluginv1.SetActiveToolsResponse{Names: set.left(tools.Active)}, nil
}

// setWith is what is set with the token of a call that is about a run.
func setWith(ctx context.Context) *setTools {
	p, _ := ctx.Value(passKey{}).(pass)
	return p.tools
}
