package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/url"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5/pgxpool"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

const (
	partCancel = "cancel"
	cancelName = "cancelled after"

	// cancelSpread is the time over which the cancels of a round come.
	cancelSpread = 2 * time.Second
	// retryAfter is longer, and short enough that a worker keeps the run.
	retryAfter = 2800 * time.Millisecond
)

// cancelState is a state in which runs are cancelled. Its name is what the user
// says, and the model does as it is told.
type cancelState struct {
	name string
	// begins is the event by which a run has come there.
	begins event.Type
}

const (
	stateStalled  = "stalled stream"
	stateSlow     = "slow stream"
	stateTool     = "tool"
	stateDeafTool = "tool that does not stop"
	stateWaiting  = "waiting for a person"
	stateBackOff  = "wait before another attempt"
	stateEnqueued = "enqueued"
)

var cancelStates = []cancelState{
	{stateStalled, event.TypeAssistantDelta}, {stateSlow, event.TypeAssistantDelta}, {stateTool, event.TypeToolStarted},
	{stateDeafTool, event.TypeToolStarted}, {stateWaiting, event.TypeRunSuspended}, {stateBackOff, event.TypeAssistantDiscarded},
	{stateEnqueued, event.TypeAssistantDelta},
}

// measureCancel measures from the request, which another process gets than the
// one that has the run, until the run's end is durable: with notifications, where
// none arrives, and where the worker has been stopped.
func (b *bench) measureCancel(ctx context.Context) error {
	if b.cancels == nil {
		b.cancels = map[string][]time.Duration{}
	}
	for _, deaf := range []bool{false, true} {
		if err := b.cancelAll(ctx, deaf); err != nil {
			return err
		}
	}
	return b.measureDeaths(ctx, cancelOfStopped)
}

func (f *figures) addCancels(all map[string][]time.Duration) {
	for _, deaf := range []bool{false, true} {
		for _, s := range cancelStates {
			if times := all[cancelCase(s.name, deaf)]; len(times) > 0 {
				f.addTimes(partCancel, cancelCase(s.name, deaf), cancelName, times, 50, 99, 100)
			}
		}
	}
}

func cancelCase(name string, deaf bool) string {
	if deaf {
		return name + ", deaf"
	}
	return name
}

func (b *bench) cancelAll(ctx context.Context, deaf bool) (err error) {
	_, database, err := b.pg.database(ctx)
	if err == nil && deaf {
		database, err = muted(ctx, database)
	}
	if err != nil {
		return err
	}
	s, err := startStack(ctx, stackConfig{url: database, model: obedientModel{}, agent: func(a *loop.Agent) {
		a.Tools = []loop.Tool{slowTool{stateTool}, slowTool{stateDeafTool}, slowTool{stateWaiting}}
		a.Permissions = []loop.Permission{{Tools: stateWaiting, Mode: loop.PermissionAsk}}
		a.Retry = loop.Retry{Attempts: 10}
	}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	server, err := b.startAgentd(ctx, database, nil, "--roles=api")
	if err != nil {
		return err
	}
	defer server.Kill()
	c := newClient(server.URL())
	defer c.close()
	var mu sync.Mutex
	n := len(cancelStates) * b.sizes.cancels
	return each(ctx, n, n, func(ctx context.Context, i int) error {
		state := cancelStates[i%len(cancelStates)]
		took, err := s.cancelled(ctx, c, state)
		if err != nil {
			return fmt.Errorf("%s: %w", cancelCase(state.name, deaf), err)
		}
		mu.Lock()
		defer mu.Unlock()
		name := cancelCase(state.name, deaf)
		b.cancels[name] = append(b.cancels[name], took)
		return nil
	})
}

// muted makes a database in which whoever connects by the URL notifies nobody.
func muted(ctx context.Context, database string) (string, error) {
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return "", fmt.Errorf("database URL: %w", err)
	}
	defer pool.Close()
	_, err = pool.Exec(ctx, `CREATE SCHEMA mute; CREATE FUNCTION mute.pg_notify(text, text) RETURNS void LANGUAGE sql AS ''`)
	if err != nil {
		return "", fmt.Errorf("mute a database: %w", err)
	}
	u, err := url.Parse(database)
	if err != nil {
		return "", fmt.Errorf("database URL: %w", err)
	}
	q := u.Query()
	q.Set("search_path", "mute,pg_catalog")
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// cancelled brings a run into a state, has it cancelled through c at some time
// within cancelSpread, and returns how long that took.
func (s *stack) cancelled(ctx context.Context, c client, state cancelState) (time.Duration, error) {
	ref, err := s.commands.CreateSession(ctx, loop.CreateSession{TenantID: tenantID, Actor: actor})
	if err != nil {
		return 0, fmt.Errorf("create a session: %w", err)
	}
	start := loop.StartRun{TenantID: tenantID, SessionID: ref.SessionID, Agent: agentName, Text: state.name, Actor: actor}
	run, err := s.commands.StartRun(ctx, start)
	if err != nil {
		return 0, fmt.Errorf("start a run: %w", err)
	}
	seq, err := s.reach(ctx, ref.SessionID, 0, state.begins)
	if err != nil {
		return 0, err
	}
	if state.name == stateEnqueued {
		start.Policy = event.PolicyEnqueue
		if run, err = s.commands.StartRun(ctx, start); err != nil {
			return 0, fmt.Errorf("enqueue a run: %w", err)
		}
	}
	if err := pause(ctx, rand.N(cancelSpread)); err != nil {
		return 0, err
	}
	from := time.Now()
	if _, err := c.runs.CancelRun(ctx, connect.NewRequest(&agentdv1.CancelRunRequest{RunId: run.RunID})); err != nil {
		return 0, fmt.Errorf("cancel a run: %w", err)
	}
	took := time.Since(from)
	r, err := s.store.Load(ctx, tenantID, ref.SessionID, run.RunID)
	if err != nil {
		return 0, err
	}
	if now, _ := r.Run(run.RunID); now.Status == loop.RunCancelled {
		return took, nil // in the append that answered the request
	}
	_, err = s.reach(ctx, ref.SessionID, seq, event.TypeRunCancelled)
	return time.Since(from), err
}

// reach waits for an event of a session.
func (s *stack) reach(ctx context.Context, sessionID string, seq int64, want event.Type) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		events, err := s.store.Next(ctx, tenantID, sessionID, seq, 100)
		if err != nil {
			return seq, fmt.Errorf("wait for %s: %w", want, err)
		}
		for _, e := range events {
			if seq = e.Seq; e.Type == want {
				return seq, nil
			}
		}
	}
}

// obedientModel does what the last user message says: to be silent, to go on, to
// fail, or to ask for the tool of that name.
type obedientModel struct{}

// Stream implements loop.Model.
func (obedientModel) Stream(ctx context.Context, req loop.ModelRequest) iter.Seq2[stream.Chunk, error] {
	said := ""
	for _, m := range req.Messages {
		if m.Role == hooks.RoleUser {
			said = m.Text()
		}
	}
	return func(yield func(stream.Chunk, error) bool) {
		word := stream.Chunk{Kind: stream.KindDelta, Lane: stream.LaneText, BlockID: "0", Text: "well "}
		switch said {
		case stateStalled, stateEnqueued:
			if yield(word, nil) {
				<-ctx.Done()
				yield(stream.Chunk{}, ctx.Err())
			}
		case stateSlow:
			pacedModel{every: paceEvery}.Stream(ctx, req)(yield)
		case stateBackOff:
			yield(stream.Chunk{}, &loop.ModelError{Message: "busy", Retryable: true, RetryAfter: retryAfter})
		default:
			call := stream.Chunk{Kind: stream.KindToolCall, BlockID: "1", Call: stream.CallStart{ProviderID: "call_1", Name: said}}
			arguments := stream.Chunk{Kind: stream.KindDelta, Lane: stream.LaneToolArguments, BlockID: "1", Text: `{}`}
			if yield(call, nil) && yield(arguments, nil) {
				yield(stream.Chunk{Kind: stream.KindFinish, Finish: stream.Finish{Reason: stream.FinishToolCalls}}, nil)
			}
		}
	}
}

// slowTool runs for as long as it may, or passes over that it may not.
type slowTool struct{ name string }

// Spec implements loop.Tool.
func (t slowTool) Spec() loop.ToolSpec {
	return loop.ToolSpec{Name: t.name, Description: "Takes its time.", Schema: json.RawMessage(`{"type":"object"}`)}
}

// Validate implements loop.Tool.
func (slowTool) Validate(json.RawMessage) error { return nil }

// Call implements loop.Tool.
func (t slowTool) Call(ctx context.Context, _ loop.ToolInput) (loop.ToolOutput, error) {
	<-ctx.Done()
	if t.name == stateDeafTool {
		time.Sleep(2 * time.Second)
	}
	return loop.ToolOutput{}, ctx.Err()
}
