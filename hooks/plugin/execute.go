package plugin

import (
	"context"
	"encoding/json"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

// progressQueue is how many messages of progress wait to be sent.
const progressQueue = 16

// ExecuteTool implements pluginv1.PluginServiceServer.
func (s *service) ExecuteTool(q *pluginv1.ExecuteToolRequest, stream grpc.ServerStreamingServer[pluginv1.ExecuteToolResponse]) error {
	ctx, cancel, err := s.inside(stream.Context(), q.GetDeadlineMs())
	if err != nil {
		return err
	}
	defer cancel()
	s.mu.Lock()
	tool, ok := s.tools[q.GetTool()]
	s.mu.Unlock()
	if !ok {
		return status.Error(codes.NotFound, "the plugin has no such tool")
	}
	queue, results := make(chan string, progressQueue), make(chan returned[ToolOutput], 1)
	go func() { // ends when guarded does, which waits no longer than ctx
		out, err := guarded(ctx, s, "the tool "+tool.Name, func(ctx context.Context) (ToolOutput, error) {
			return tool.Run(ctx, toolInput(q), func(text string) {
				select {
				case queue <- wire.Shorten(text, wire.MaxProgress):
				default:
				}
			})
		})
		results <- returned[ToolOutput]{value: out, err: err}
	}()
	for {
		select {
		case text := <-queue:
			if err := stream.Send(progress(text)); err != nil {
				return err
			}
		case r := <-results:
			return finish(stream, queue, r)
		}
	}
}

func toolInput(q *pluginv1.ExecuteToolRequest) ToolInput {
	r := q.GetRun()
	return ToolInput{
		CallID: q.GetCallId(), Attempt: int(q.GetAttempt()), Arguments: json.RawMessage(q.GetArgumentsJson()),
		Run: hooks.RunRef{TenantID: r.GetTenantId(), SessionID: r.GetSessionId(), RunID: r.GetRunId(), Agent: r.GetAgent()},
	}
}

func progress(text string) *pluginv1.ExecuteToolResponse {
	return &pluginv1.ExecuteToolResponse{Message: &pluginv1.ExecuteToolResponse_Progress{Progress: &pluginv1.ToolProgress{Text: text}}}
}

// finish sends what waits, and the output.
func finish(stream grpc.ServerStreamingServer[pluginv1.ExecuteToolResponse], queue <-chan string, r returned[ToolOutput]) error {
	if r.err != nil {
		return refused(codes.Internal, r.err)
	}
	for {
		select {
		case text := <-queue:
			if err := stream.Send(progress(text)); err != nil {
				return err
			}
			continue
		default:
		}
		return stream.Send(&pluginv1.ExecuteToolResponse{Message: &pluginv1.ExecuteToolResponse_Output{
			Output: &pluginv1.ToolOutput{Content: wire.Text(r.value.Content), IsError: r.value.IsError},
		}})
	}
}
