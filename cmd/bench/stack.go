package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/api"
	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/worker"
	"github.com/seed-2ca4966b/agentd/store"
)

const (
	// poolConns is what `agentd serve` has.
	poolConns = 16
	stopLimit = 15 * time.Second
)

var actor = event.Actor{Kind: event.ActorPrincipal, ID: "bench"}

// stackConfig says what a stack is made of, beside the database.
type stackConfig struct {
	url   string
	model loop.Model
	hooks hooks.Hooks
	// observers see what the model answers; nil is none.
	observers *stream.Set
	// tracer sees what the pool sends; nil sees nothing.
	tracer pgx.QueryTracer
	// unrecorded lets hooks decide and leaves out what they said.
	unrecorded bool
	// agent changes the agent; nil changes nothing.
	agent func(*loop.Agent)
	// idle leaves the worker out.
	idle bool
	log  *slog.Logger // nil discards
}

// stack is the store, the commands, the engine and the worker, joined as
// cmd/agentd joins them, with a model and a tool of the benchmark's own.
type stack struct {
	pool     *pgxpool.Pool
	store    *store.Store
	commands *loop.Commands
	worker   *worker.Worker // nil without one

	ends sync.Map // session id → chan hooks.RunEnd
}

func startStack(ctx context.Context, cfg stackConfig) (_ *stack, err error) {
	if cfg.log == nil {
		cfg.log = slog.New(slog.DiscardHandler)
	}
	poolConfig, err := pgxpool.ParseConfig(cfg.url)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	poolConfig.MaxConns = poolConns
	poolConfig.ConnConfig.Tracer = cfg.tracer
	s := &stack{}
	if s.pool, err = pgxpool.NewWithConfig(ctx, poolConfig); err != nil {
		return nil, err
	}
	s.store = store.New(s.pool, store.Options{Queue: worker.NewQueue(), Logger: cfg.log})
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if err := s.store.Start(ctx); err != nil {
		return nil, err
	}
	all := cfg.hooks.Then(hooks.Hooks{OnRunEnd: s.ended})
	set := all.Set().With(cfg.observers.Hooks()...)
	if err := s.store.PutHookSet(ctx, set); err != nil {
		return nil, err
	}
	asker := &hooks.Asker{HookSet: set.Digest}
	var runs loop.Log = s.store
	if cfg.unrecorded {
		runs = unrecorded{s.store}
	}
	s.commands = &loop.Commands{
		Log: runs, Agents: []string{agentName, demoAgent, guardedAgent}, Hooks: all, Asker: asker, NewID: newID, Now: time.Now, Logger: cfg.log,
	}
	if cfg.idle {
		return s, nil
	}
	agent := loop.Agent{Name: agentName, Model: cfg.model, ModelName: modelName, System: "Answer briefly.", Tools: []loop.Tool{lookupTool{}}}
	if cfg.agent != nil {
		cfg.agent(&agent)
	}
	guarded := agent
	guarded.Name = guardedAgent
	engine := &loop.Engine{
		Log: runs, Agents: map[string]loop.Agent{agentName: agent, guardedAgent: guarded}, Hooks: all, Observers: cfg.observers, Asker: asker,
		NewID: newID, Now: time.Now, Logger: cfg.log,
	}
	w, err := worker.New(worker.Config{
		Pool: s.pool, Engine: engine, Commands: s.commands, Leases: store.NewLeases(s.store),
		NewID: newID, Logger: cfg.log, Version: "bench", Grace: time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	if err := w.Start(ctx); err != nil {
		return nil, err
	}
	s.worker = w
	return s, nil
}

// unrecorded is a log without a ledger, to see what the ledger costs.
type unrecorded struct{ loop.Log }

// Append implements loop.Log.
func (u unrecorded) Append(ctx context.Context, a loop.Append) (loop.Appended, error) {
	a.Ledger = nil
	return u.Log.Append(ctx, a)
}

// stop ends everything, the pool last.
func (s *stack) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	var err error
	if s.worker != nil {
		err = s.worker.Stop(ctx)
	}
	err = errors.Join(err, s.store.Stop(ctx))
	s.pool.Close()
	if err != nil {
		return fmt.Errorf("stop agentd's parts: %w", err)
	}
	return nil
}

// handler serves the API; stopping ends its streams.
func (s *stack) handler(stopping context.Context, log *slog.Logger) http.Handler {
	return api.New(api.Config{Commands: s.commands, Reader: s.store, Feed: s.store, Pauses: s.store, Stopping: stopping, Log: log})
}

func (s *stack) ended(_ context.Context, end hooks.RunEnd) {
	if ch, ok := s.ends.LoadAndDelete(end.SessionID); ok {
		ch.(chan hooks.RunEnd) <- end // nothing else is stored
	}
}

// play starts a run in a session and returns when its end is durable.
func (s *stack) play(ctx context.Context, sessionID string) error {
	end, err := s.playWith(ctx, agentName, sessionID)
	if err == nil && end.Status != string(loop.RunCompleted) {
		err = fmt.Errorf("a run has not completed: it is %s, %s", end.Status, end.Reason)
	}
	return err
}

// playWith is play with any agent and any end.
func (s *stack) playWith(ctx context.Context, agent, sessionID string) (hooks.RunEnd, error) {
	ended := make(chan hooks.RunEnd, 1)
	s.ends.Store(sessionID, ended)
	if _, err := s.commands.StartRun(ctx, loop.StartRun{TenantID: tenantID, SessionID: sessionID, Agent: agent, Text: userText, Actor: actor}); err != nil {
		return hooks.RunEnd{}, fmt.Errorf("start a run: %w", err)
	}
	select {
	case end := <-ended:
		return end, nil
	case <-ctx.Done():
		return hooks.RunEnd{}, ctx.Err()
	}
}

// session makes one.
func (s *stack) session(ctx context.Context) (string, error) {
	ref, err := s.commands.CreateSession(ctx, loop.CreateSession{TenantID: tenantID, Actor: actor})
	if err != nil {
		return "", fmt.Errorf("create a session: %w", err)
	}
	return ref.SessionID, nil
}

// playAlone is play in a session of its own.
func (s *stack) playAlone(ctx context.Context) error {
	id, err := s.session(ctx)
	if err != nil {
		return err
	}
	return s.play(ctx, id)
}

// seedSessions makes sessions, through a store of their own.
func seedSessions(ctx context.Context, url string, n int) (ids []string, err error) {
	s, err := startStack(ctx, stackConfig{url: url, idle: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	ids = make([]string, n)
	return ids, each(ctx, 128, n, func(ctx context.Context, i int) error {
		id, err := s.session(ctx)
		ids[i] = id
		return err
	})
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }
