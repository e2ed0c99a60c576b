package pluginhost

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

// run is what the token of a call is about.
func run(ctx context.Context) (hooks.RunRef, error) {
	p, _ := ctx.Value(passKey{}).(pass)
	switch {
	case p.greeting:
		return hooks.RunRef{}, status.Error(codes.FailedPrecondition, "it takes the token of the call that is being answered, which says what run is meant")
	case p.run.RunID == "":
		return hooks.RunRef{}, status.Error(codes.FailedPrecondition, "there is no run yet")
	}
	return p.run, nil
}

// GetSystemPrompt implements pluginv1.HostServiceServer.
func (s *Service) GetSystemPrompt(ctx context.Context, _ *pluginv1.GetSystemPromptRequest) (*pluginv1.GetSystemPromptResponse, error) {
	about, err := run(ctx)
	if err != nil {
		return nil, err
	}
	text, err := s.config.Runs.SystemPrompt(ctx, about)
	if err != nil {
		return nil, s.told(about, err)
	}
	return &pluginv1.GetSystemPromptResponse{Text: wire.Text(text)}, nil
}

// RegisterTool implements pluginv1.HostServiceServer.
func (s *Service) RegisterTool(ctx context.Context, q *pluginv1.RegisterToolRequest) (*pluginv1.RegisterToolResponse, error) {
	p, _ := ctx.Value(passKey{}).(pass)
	if !p.greeting {
		return nil, status.Error(codes.FailedPrecondition, "it takes the token of Bootstrap: a tool belongs to no run")
	}
	name, err := s.tools.register(p.process, q.GetTool())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, wire.Shorten(err.Error(), maxText))
	}
	return &pluginv1.RegisterToolResponse{Name: name}, nil
}

// maxText bounds what a plugin is told of an error, in bytes.
const maxText = 4 << 10

// told is what a plugin is told of an error.
func (s *Service) told(about hooks.RunRef, err error) error {
	switch {
	case errors.Is(err, ErrNoSuchRun):
		return status.Error(codes.NotFound, ErrNoSuchRun.Error())
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, "the call was given up")
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "there was no time left")
	}
	s.config.Log.Error("a plugin was not answered", "run", about.RunID, "session", about.SessionID, "error", err)
	return status.Error(codes.Internal, "internal error")
}
