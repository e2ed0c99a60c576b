package looptest

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// Tenant is the tenant of every session that a test makes.
const Tenant = "default"

// Tester is the actor of what a test does.
var Tester = event.Actor{Kind: event.ActorPrincipal, ID: "test"}

// NewID returns a fresh UUIDv7.
func NewID() string { return uuid.Must(uuid.NewV7()).String() }

// Model is a loop.Model that a function plays. The function yields chunks and
// says with false that the consumer has left.
type Model func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool)

var _ loop.Model = Model(nil)

// Stream implements loop.Model.
func (m Model) Stream(ctx context.Context, req loop.ModelRequest) iter.Seq2[stream.Chunk, error] {
	return func(yield func(stream.Chunk, error) bool) { m(ctx, req, yield) }
}

// Answers plays one list of chunks per model call, chosen by how many
// assistant messages follow the last user message; the last list is played
// again.
func Answers(answers ...[]stream.Chunk) Model {
	return func(_ context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		n := 0
		for _, m := range req.Messages {
			switch m.Role {
			case hooks.RoleUser:
				n = 0
			case hooks.RoleAssistant:
				n++
			case hooks.RoleSystem, hooks.RoleTool:
			}
		}
		for _, c := range answers[min(n, len(answers)-1)] {
			if !yield(c, nil) {
				return
			}
		}
	}
}

// Text is a chunk of the text lane.
func Text(s string) stream.Chunk {
	return stream.Chunk{Kind: stream.KindDelta, Lane: stream.LaneText, BlockID: "0", Text: s}
}

// Reasoning is a chunk of the reasoning lane.
func Reasoning(s string) stream.Chunk {
	return stream.Chunk{Kind: stream.KindDelta, Lane: stream.LaneReasoning, BlockID: "r", Text: s}
}

// ToolCall opens a call and gives its arguments in two pieces.
func ToolCall(id, name, args string) []stream.Chunk {
	half := len(args) / 2
	piece := func(s string) stream.Chunk {
		return stream.Chunk{Kind: stream.KindDelta, Lane: stream.LaneToolArguments, BlockID: id, Text: s}
	}
	return []stream.Chunk{
		{Kind: stream.KindToolCall, BlockID: id, Call: stream.CallStart{ProviderID: id, Name: name}},
		piece(args[:half]), piece(args[half:]),
	}
}

// Finish ends an answer.
func Finish(reason stream.FinishReason) stream.Chunk {
	return stream.Chunk{Kind: stream.KindFinish, Finish: stream.Finish{
		Reason: reason, Raw: string(reason), Usage: stream.Usage{InputTokens: 3, OutputTokens: 5},
	}}
}

// Answer joins chunks and lists of chunks.
func Answer(pieces ...any) []stream.Chunk {
	var out []stream.Chunk
	for _, p := range pieces {
		switch p := p.(type) {
		case stream.Chunk:
			out = append(out, p)
		case []stream.Chunk:
			out = append(out, p...)
		default:
			panic(fmt.Sprintf("looptest: %T is neither a chunk nor a list of chunks", p))
		}
	}
	return out
}

// Tool is a loop.Tool that a function plays. Its arguments are any JSON
// object.
type Tool struct {
	Name       string
	Idempotent bool
	Run        func(ctx context.Context, in loop.ToolInput) (loop.ToolOutput, error)
}

var _ loop.Tool = Tool{}

// Spec implements loop.Tool.
func (t Tool) Spec() loop.ToolSpec {
	return loop.ToolSpec{
		Name: t.Name, Description: "a tool of a test", Schema: json.RawMessage(`{"type":"object"}`), Idempotent: t.Idempotent,
	}
}

// Validate implements loop.Tool.
func (t Tool) Validate(arguments json.RawMessage) error {
	var v map[string]json.RawMessage
	if err := json.Unmarshal(arguments, &v); err != nil {
		return fmt.Errorf("arguments are not a JSON object: %w", err)
	}
	return nil
}

// Call implements loop.Tool.
func (t Tool) Call(ctx context.Context, in loop.ToolInput) (loop.ToolOutput, error) {
	return t.Run(ctx, in)
}

// Says is a tool that answers with content.
func Says(name, content string) Tool {
	return Tool{Name: name, Run: func(context.Context, loop.ToolInput) (loop.ToolOutput, error) {
		return loop.ToolOutput{Content: content}, nil
	}}
}

// Bench is what a test of the loop needs: a log, an agent called "demo", and
// the commands and the engine on them.
type Bench struct {
	Log      loop.Log
	Commands *loop.Commands
	Engine   *loop.Engine
}

// NewBench puts the agent on log.
func NewBench(log loop.Log, model loop.Model, tools ...loop.Tool) *Bench {
	return &Bench{
		Log: log,
		Commands: &loop.Commands{
			Log: log, Agents: []string{"demo"}, Tools: map[string][]loop.Tool{"demo": tools},
			NewID: NewID, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		},
		Engine: &loop.Engine{
			Log: log, NewID: NewID, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
			Agents: map[string]loop.Agent{"demo": {Name: "demo", Model: model, ModelName: "test-model", Tools: tools}},
		},
	}
}

// Use asks h, for messages and in runs.
func (b *Bench) Use(h hooks.Hooks) {
	b.Commands.Hooks, b.Engine.Hooks = h, h
	b.Commands.Asker = &hooks.Asker{HookSet: h.Set().Digest}
	b.Engine.Asker = &hooks.Asker{HookSet: h.Set().Digest}
}

// Observe has the answers of the model observed, besides what was given to Use.
func (b *Bench) Observe(t testing.TB, regs ...stream.Registration) {
	t.Helper()
	set, err := stream.NewSet(regs...)
	if err != nil {
		t.Fatalf("observers: %v", err)
	}
	b.Engine.Observers = set
	b.Engine.Asker = &hooks.Asker{HookSet: b.Engine.Hooks.Set().With(set.Hooks()...).Digest}
}

// Session creates a session.
func (b *Bench) Session(t testing.TB) string {
	t.Helper()
	s, err := b.Commands.CreateSession(t.Context(), loop.CreateSession{TenantID: Tenant, Actor: Tester})
	if err != nil {
		t.Fatalf("create session: %v", err)
	}
	return s.SessionID
}

// Start starts a run and returns its first job.
func (b *Bench) Start(t testing.TB, sessionID, text string) loop.Job {
	t.Helper()
	run, err := b.Commands.StartRun(t.Context(), loop.StartRun{TenantID: Tenant, SessionID: sessionID, Text: text, Actor: Tester})
	if err != nil {
		t.Fatalf("start run: %v", err)
	}
	return loop.Job{TenantID: Tenant, SessionID: sessionID, RunID: run.RunID, Ticket: 1}
}

// Advance takes the run of j as far as it goes under a fresh worker id.
func (b *Bench) Advance(t testing.TB, j loop.Job) loop.Run {
	t.Helper()
	if err := b.Engine.Advance(t.Context(), j, loop.Holder{WorkerID: NewID()}); err != nil {
		t.Fatalf("advance: %v", err)
	}
	return b.Run(t, j)
}

// Run loads the run of j.
func (b *Bench) Run(t testing.TB, j loop.Job) loop.Run {
	t.Helper()
	s, err := b.Log.Load(t.Context(), Tenant, j.SessionID, j.RunID)
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	r, _ := s.Run(j.RunID)
	return r
}

// Events returns the whole log of a session.
func (b *Bench) Events(t testing.TB, sessionID string) []event.Event {
	t.Helper()
	events, err := b.Log.Events(t.Context(), Tenant, sessionID, 0, 1<<20)
	if err != nil {
		t.Fatalf("events: %v", err)
	}
	return events
}

// Types lists the types of events.
func Types(events []event.Event) []event.Type {
	out := make([]event.Type, 0, len(events))
	for _, e := range events {
		out = append(out, e.Type)
	}
	return out
}
