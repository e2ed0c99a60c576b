package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/api"
	"github.com/seed-2ca4966b/agentd/api/client"
	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/loop/worker"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// stack is what one process of agentd is made of, over a real database and real
// HTTP, in the process of the test. The test drives the engine itself. A second
// stack on the same database is a second process.
type stack struct {
	*looptest.Bench
	db    *storetest.DB
	pool  *pgxpool.Pool
	store *store.Store

	url      string
	client   *http.Client
	sessions agentdv1connect.SessionServiceClient
	runs     agentdv1connect.RunServiceClient
	// logged is what clients are not told.
	logged *output

	stop func()
}

// stackParts are what a stack is made of. An option changes them before
// anything starts.
type stackParts struct {
	pool   *pgxpool.Config
	store  store.Options
	api    api.Config
	server *http.Server
	// wrap stands between the server and the API; nil is nothing.
	wrap  func(http.Handler) http.Handler
	model loop.Model
	tools []loop.Tool
}

type stackOption func(*stackParts)

func playing(model loop.Model, tools ...loop.Tool) stackOption {
	return func(p *stackParts) { p.model, p.tools = model, tools }
}

// hello answers every message.
var hello = looptest.Answers(looptest.Answer(looptest.Text("Hello."), looptest.Finish(stream.FinishStop)))

// newStack starts a stack, which is stopped when the test ends, or by stop.
func newStack(t *testing.T, db *storetest.DB, options ...stackOption) *stack {
	t.Helper()
	s := &stack{db: db, logged: &output{}}
	log := slog.New(slog.NewTextHandler(s.logged, nil))
	config, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = defaultConns
	streams, closeStreams := context.WithCancel(context.Background())
	p := &stackParts{
		pool: config, store: store.Options{Queue: worker.NewQueue(), Logger: log}, model: hello,
		api: api.Config{Stopping: streams, Log: log}, server: newServer(nil, log),
	}
	for _, o := range options {
		o(p)
	}
	if s.pool, err = pgxpool.NewWithConfig(t.Context(), p.pool); err != nil {
		t.Fatal(err)
	}
	s.store = store.New(s.pool, p.store)
	if err := s.store.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Bench = looptest.NewBench(s.store, p.model, p.tools...)
	p.api.Commands, p.api.Reader, p.api.Feed, p.api.Pauses = s.Commands, s.store, s.store, s.store
	p.server.Handler = api.New(p.api)
	if p.wrap != nil {
		p.server.Handler = p.wrap(p.server.Handler)
	}
	web := httptest.NewUnstartedServer(nil)
	web.Config = p.server
	web.Start()
	s.url, s.client = web.URL, web.Client()
	s.sessions = agentdv1connect.NewSessionServiceClient(s.client, s.url)
	s.runs = agentdv1connect.NewRunServiceClient(s.client, s.url)
	s.stop = sync.OnceFunc(func() {
		closeStreams()
		web.Close()
		if err := s.store.Stop(context.Background()); err != nil {
			t.Errorf("stop store: %v", err)
		}
		s.pool.Close()
		if t.Failed() {
			t.Logf("the stack's log: %s", s.logged)
		}
	})
	t.Cleanup(s.stop)
	return s
}

// dial returns a client of the stack's.
func (s *stack) dial(t *testing.T, options ...client.Option) *client.Client {
	t.Helper()
	return dial(t, s.url, append([]client.Option{client.WithHTTPClient(s.client)}, options...)...)
}

// dial returns a client whose connections end with the test.
func dial(t *testing.T, url string, options ...client.Option) *client.Client {
	t.Helper()
	pool := &http.Transport{}
	t.Cleanup(pool.CloseIdleConnections)
	c, err := client.New(url, append([]client.Option{client.WithHTTPClient(&http.Client{Transport: pool})}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// again stops the stack and starts another one in its place.
func (s *stack) again(t *testing.T, options ...stackOption) *stack {
	t.Helper()
	s.stop()
	return newStack(t, s.db, options...)
}

// advancing is an engine at work on a run.
type advancing struct {
	ended chan struct{}
	err   error
}

// advance takes the run of j as far as it goes, beside the test.
func (s *stack) advance(t *testing.T, j loop.Job) *advancing {
	t.Helper()
	a := &advancing{ended: make(chan struct{})}
	go func() {
		defer close(a.ended)
		a.err = s.Engine.Advance(t.Context(), j, loop.Holder{WorkerID: looptest.NewID()})
	}()
	t.Cleanup(func() { <-a.ended })
	return a
}

// wait returns when the run is as far as it goes.
func (a *advancing) wait(t *testing.T) {
	t.Helper()
	<-a.ended
	if a.err != nil {
		t.Fatalf("advance: %v", a.err)
	}
}

// scalar returns the one value that a query gives.
func scalar[T any](t *testing.T, db *storetest.DB, query string, args ...any) (v T) {
	t.Helper()
	if err := db.Pool.QueryRow(t.Context(), query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

func execute(t *testing.T, db *storetest.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.Pool.Exec(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}
