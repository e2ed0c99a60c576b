package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
	"github.com/seed-2ca4966b/agentd/cmd/proc"
)

const startLimit = 30 * time.Second

// startAgentd starts `agentd serve` on a free port.
func (b *bench) startAgentd(ctx context.Context, database string, env []string, args ...string) (*proc.Process, error) {
	return proc.Start(ctx, proc.Config{
		Binary: b.agentd, Args: append([]string{"serve"}, args...), Patience: startLimit,
		Env: append([]string{"AGENTD_DATABASE_URL=" + database, "AGENTD_LISTEN=127.0.0.1:0"}, env...),
	})
}

// startNode starts this program as a process with a paced model.
func (b *bench) startNode(ctx context.Context, database string, args ...string) (*proc.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	args = append([]string{"node", "--database-url=" + database, "--every=" + paceEvery.String()}, args...)
	return proc.Start(ctx, proc.Config{Binary: self, Args: args, Patience: startLimit})
}

// client calls its API.
type client struct {
	http *http.Client
	runs agentdv1connect.RunServiceClient
}

func newClient(url string) client {
	h := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	return client{http: h, runs: agentdv1connect.NewRunServiceClient(h, url)}
}

func (c client) start(ctx context.Context, sessionID, text string) error {
	_, err := c.runs.StartRun(ctx, connect.NewRequest(&agentdv1.StartRunRequest{SessionId: sessionID, Text: text}))
	if err != nil {
		return fmt.Errorf("start a run: %w", err)
	}
	return nil
}

func (c client) close() { c.http.CloseIdleConnections() }
