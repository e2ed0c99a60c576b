package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

// Host is agentd, for its plugin. What a call is about is the session and the run
// that the plugin is being asked about: ctx has to be the one that the plugin's
// function was called with, or one made of it, and the host takes it no longer than
// that function runs. It is safe for concurrent use.
type Host struct {
	conn    *grpc.ClientConn
	client  pluginv1.HostServiceClient
	token   string
	service *service
}

type (
	hostKey  struct{}
	tokenKey struct{}
)

// HostFrom returns the host that the function called with ctx is answering, nil in
// any other context. The calls of a nil Host fail.
func HostFrom(ctx context.Context) *Host {
	h, _ := ctx.Value(hostKey{}).(*Host)
	return h
}

var errNoHost = errors.New("no host: the context is not one of a plugin's function")

// dialHost makes no connection yet. Without an address calls fail.
func dialHost(address, token string, s *service) (*Host, error) {
	h := &Host{token: token, service: s}
	if address == "" {
		return h, nil
	}
	if !strings.HasPrefix(address, "unix:") {
		return nil, fmt.Errorf("the host's address is not that of a socket")
	}
	conn, err := grpc.NewClient(
		address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(wire.MaxHostReply), grpc.MaxCallSendMsgSize(wire.MaxHostRequest)),
	)
	if err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	h.conn, h.client = conn, pluginv1.NewHostServiceClient(conn)
	return h, nil
}

func (h *Host) close() {
	if h != nil && h.conn != nil {
		_ = h.conn.Close()
	}
}

// outgoing returns the context of a call to the host, with the token of the call
// that is being answered.
func (h *Host) outgoing(ctx context.Context) (context.Context, error) {
	if h == nil || h.client == nil {
		return nil, errNoHost
	}
	token, ok := ctx.Value(tokenKey{}).(string)
	if !ok {
		return nil, errNoHost
	}
	return withToken(ctx, token), nil
}

func withToken(ctx context.Context, token string) context.Context {
	return metadata.NewOutgoingContext(ctx, metadata.Pairs(wire.TokenKey, token))
}

// ActiveTools are the tools that the run may call from its next turn on, as models know
// them.
func (h *Host) ActiveTools(ctx context.Context) ([]string, error) {
	ctx, err := h.outgoing(ctx)
	if err != nil {
		return nil, fmt.Errorf("active tools: %w", err)
	}
	r, err := h.client.GetActiveTools(ctx, &pluginv1.GetActiveToolsRequest{})
	if err != nil {
		return nil, fmt.Errorf("active tools: %w", err)
	}
	return r.GetNames(), nil
}

// SetActiveTools narrows the tools of the run, from its next turn on, and returns
// what it may call then: ping and memory_* always stay, and what is gone does not come
// back. It counts with what the function returns, in one transaction, and not if the
// function fails. A name that the run does not have is an error (invalid_argument), and
// so is a function that is asked at another gate than BeforeRunStart, TransformContext,
// BeforeToolCall, BeforeExecute and AfterToolCall, or that runs no tool.
func (h *Host) SetActiveTools(ctx context.Context, names []string) ([]string, error) {
	ctx, err := h.outgoing(ctx)
	if err != nil {
		return nil, fmt.Errorf("set active tools: %w", err)
	}
	r, err := h.client.SetActiveTools(ctx, &pluginv1.SetActiveToolsRequest{Names: names})
	if err != nil {
		return nil, fmt.Errorf("set active tools: %w", err)
	}
	return r.GetNames(), nil
}

// SystemPrompt is the system prompt of the run, "" if it has none.
func (h *Host) SystemPrompt(ctx context.Context) (string, error) {
	ctx, err := h.outgoing(ctx)
	if err != nil {
		return "", fmt.Errorf("system prompt: %w", err)
	}
	r, err := h.client.GetSystemPrompt(ctx, &pluginv1.GetSystemPromptRequest{})
	if err != nil {
		return "", fmt.Errorf("system prompt: %w", err)
	}
	return r.GetText(), nil
}

// RegisterTool adds a tool, and returns its name as models know it. Turns that begin
// later have it. Any context will do.
func (h *Host) RegisterTool(ctx context.Context, t Tool) (string, error) {
	spec, err := t.spec()
	if err != nil {
		return "", fmt.Errorf("register: %w", err)
	}
	if h == nil || h.client == nil {
		return "", fmt.Errorf("register tool %s: %w", t.Name, errNoHost)
	}
	if !h.service.add(t) {
		return "", fmt.Errorf("register tool %s: the plugin has it already", t.Name)
	}
	r, err := h.client.RegisterTool(withToken(ctx, h.token), &pluginv1.RegisterToolRequest{Tool: spec})
	if err != nil {
		h.service.remove(t)
		return "", fmt.Errorf("register tool %s: %w", t.Name, err)
	}
	return r.GetName(), nil
}

// add is there before the host knows of the tool, and false if there is one of that
// name.
func (s *service) add(t Tool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.tools[t.Name]; ok {
		return false
	}
	s.tools[t.Name] = t
	return true
}

func (s *service) remove(t Tool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tools, t.Name)
}
