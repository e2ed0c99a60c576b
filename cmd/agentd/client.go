package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
)

// clientFlags say which server to talk to.
type clientFlags struct {
	URL string `default:"http://127.0.0.1:8080" env:"AGENTD_URL" help:"The server to talk to."`
	keyFlags
	Patience time.Duration `default:"${patience}" env:"AGENTD_PATIENCE" help:"How long to wait for a server that is away."`
}

// silence is three of the server's heartbeats.
const silence = 45 * time.Second

// client talks to a server, which may go away and come back. It is safe for
// concurrent use.
type client struct {
	sessions  agentdv1connect.SessionServiceClient
	runs      agentdv1connect.RunServiceClient
	approvals agentdv1connect.ApprovalServiceClient
	ledger    agentdv1connect.LedgerServiceClient
	url       string
	patience  time.Duration
	// silence is how long a stream may send nothing, heartbeats included, until
	// its connection counts as broken.
	silence time.Duration
	// away is told when the server has stopped to answer, back when it answers
	// again. They are called by the goroutine that makes the call.
	away, back func()
	// log gets what only people who look for a fault want to know: no payloads.
	log *slog.Logger
}

func (f clientFlags) client() (*client, error) {
	u, err := url.Parse(f.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%q is no server to talk to: give --url or AGENTD_URL something like http://127.0.0.1:8080", f.URL)
	}
	key, err := f.key()
	if err != nil {
		return nil, err
	}
	httpClient := &http.Client{
		Transport: bearer{key: key, next: http.DefaultTransport},
		// Whoever is redirected to would get the key.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &client{
		sessions:  agentdv1connect.NewSessionServiceClient(httpClient, f.URL),
		runs:      agentdv1connect.NewRunServiceClient(httpClient, f.URL),
		approvals: agentdv1connect.NewApprovalServiceClient(httpClient, f.URL),
		ledger:    agentdv1connect.NewLedgerServiceClient(httpClient, f.URL),
		url:       f.URL, patience: f.Patience, silence: silence,
		away: func() {}, back: func() {},
		log: slog.New(slog.DiscardHandler),
	}, nil
}

// bearer adds the API key to each request.
type bearer struct {
	key  string
	next http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.key != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.key)
	}
	return b.next.RoundTrip(r)
}

// session finds the session of that id or external id. With create, an external
// id that no session has gets one, and so does "".
func (c *client) session(ctx context.Context, name string, create bool) (string, error) {
	if name == "" {
		return c.createSession(ctx, "")
	}
	if looksOurs(name) {
		id, err := c.lookUp(ctx, &agentdv1.GetSessionRequest{Name: &agentdv1.GetSessionRequest_SessionId{SessionId: name}})
		if connect.CodeOf(err) != connect.CodeNotFound {
			return id, err
		}
	}
	id, err := c.lookUp(ctx, &agentdv1.GetSessionRequest{Name: &agentdv1.GetSessionRequest_ExternalId{ExternalId: name}})
	switch {
	case err == nil || connect.CodeOf(err) != connect.CodeNotFound:
		return id, err
	case !create || looksOurs(name):
		// A new session is not given somebody's mistyped id as a name.
		return "", fmt.Errorf("there is no session %q", name)
	}
	return c.createSession(ctx, name)
}

// looksOurs reports whether a session's name is written like agentd's own ids.
func looksOurs(name string) bool {
	_, err := uuid.Parse(name)
	return err == nil && len(name) == len(uuid.Nil.String())
}

func (c *client) lookUp(ctx context.Context, request *agentdv1.GetSessionRequest) (string, error) {
	response, err := call(ctx, c, c.sessions.GetSession, request)
	return response.GetSession().GetId(), err
}

func (c *client) createSession(ctx context.Context, externalID string) (string, error) {
	response, err := call(ctx, c, c.sessions.CreateSession, &agentdv1.CreateSessionRequest{ExternalId: externalID})
	return response.GetSessionId(), err
}

// call makes a call that may be repeated, until the server has answered it.
func call[Req, Res any](
	ctx context.Context, c *client,
	do func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), request *Req,
) (*Res, error) {
	o := outage{client: c}
	for {
		response, err := callOnce(ctx, do, request)
		if err == nil {
			o.over()
			return response, nil
		}
		if err := o.wait(ctx, err); err != nil {
			return nil, err
		}
	}
}

// callTimeout is for one attempt: a server that took the connection and then
// was stopped, or whose machine is gone, never refuses it.
const callTimeout = 20 * time.Second

func callOnce[Req, Res any](
	ctx context.Context,
	do func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), request *Req,
) (*Res, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := do(ctx, connect.NewRequest(request))
	if err != nil {
		return nil, err
	}
	return response.Msg, nil
}
