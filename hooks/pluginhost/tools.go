package pluginhost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

// Tool is a tool of a plugin. It is safe for concurrent use, for as long as the
// generation of its plugin is held.
type Tool struct {
	definition
	plugin *called
}

// Tools are the tools of all plugins, in the order in which those were discovered, and
// behind those of a plugin the ones that its process has registered. A plugin that is
// down keeps its own, which are away then, and loses what it has registered. Of two
// with the same name the first is taken.
func (c *Caller) Tools() []*Tool {
	var all []*Tool
	for _, p := range c.plugins {
		defined := p.defined()
		if now, err := p.Process(); err == nil {
			defined = slices.Concat(defined, c.service.tools.registered(now.Number()))
		}
		for _, d := range defined {
			if !slices.ContainsFunc(all, func(t *Tool) bool { return t.Name == d.Name }) {
				all = append(all, &Tool{definition: d, plugin: p})
			}
		}
	}
	return all
}

// defined are the tools that the plugin has from the beginning. They are known once
// it was up.
func (p *called) defined() []definition {
	a := p.Answer()
	if a == nil {
		return nil
	}
	p.define.Do(func() {
		// It was greeted, so there is nothing wrong with them.
		p.own, _ = p.service.tools.defineAll(p.ID(), a.GetTools())
	})
	return p.own
}

// Plugin is the id of its plugin.
func (t *Tool) Plugin() string { return t.plugin.ID() }

// Available reports whether its plugin is up.
func (t *Tool) Available() bool {
	_, err := t.plugin.Process()
	return err == nil
}

// Execution is one execution of a tool.
type Execution struct {
	// CallID is the same on every attempt, which count from 1.
	CallID  string
	Attempt int
	Run     hooks.RunRef
	// Arguments have to fit the schema.
	Arguments json.RawMessage
}

// Output is what a tool gave back: text for the model, or what it is told of a failure.
type Output struct {
	Content string
	IsError bool
}

// Execute runs the tool. Progress is called with what the plugin says of how far it
// is, at most 4 KiB each, one after the other, and not any more once Execute has
// returned; it must not block. An error is a [hooks.Failure]: of one whose outcome is
// unavailable nothing was begun, and of any other the tool may have taken effect.
func (t *Tool) Execute(ctx context.Context, x Execution, progress func(text string)) (Output, error) {
	process, err := t.plugin.Process()
	if err != nil {
		return Output{}, err
	}
	token, done := t.plugin.service.tokens.issue(ctx, process.Number(), x.Run)
	defer done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of what comes behind the output
	q := &pluginv1.ExecuteToolRequest{
		CallId: wire.Text(x.CallID), Attempt: int32(x.Attempt), Run: refTo(x.Run), Tool: t.local, ArgumentsJson: wire.Text(string(x.Arguments)), //nolint:gosec // attempts are few
	}
	if end, ok := ctx.Deadline(); ok {
		q.DeadlineMs = deadline(end)
	}
	codec := &watched{CodecV2: wire.Bounded()}
	stream, err := pluginv1.NewPluginServiceClient(process.Conn()).ExecuteTool(
		metadata.AppendToOutgoingContext(ctx, wire.TokenKey, token), q, grpc.ForceCodecV2(codec), grpc.MaxCallRecvMsgSize(wire.MaxToolMessage),
	)
	for err == nil {
		var m *pluginv1.ExecuteToolResponse
		if m, err = stream.Recv(); err != nil {
			break
		}
		switch m := m.GetMessage().(type) {
		case *pluginv1.ExecuteToolResponse_Progress:
			progress(wire.Shorten(m.Progress.GetText(), wire.MaxProgress))
		case *pluginv1.ExecuteToolResponse_Output:
			return Output{Content: m.Output.GetContent(), IsError: m.Output.GetIsError()}, nil
		default:
			err = malformedAnswer("a message has neither progress nor output")
		}
	}
	return Output{}, executeFailure(ctx, process, codec, err)
}

func executeFailure(ctx context.Context, process *Process, codec *watched, err error) error {
	var f *hooks.Failure
	switch {
	case errors.As(err, &f):
		return f
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, io.EOF):
		return malformedAnswer("the execution has ended without an output")
	case codec.broken != nil:
		return malformedAnswer("a message cannot be read")
	}
	f = process.Failure(err)
	if f.Outcome == hooks.OutcomeUnavailable {
		// It was reached or it was not: nobody knows.
		return &hooks.Failure{Outcome: hooks.OutcomeError, Code: CodeUnavailable, Err: f.Err}
	}
	return f
}

func malformedAnswer(text string) *hooks.Failure {
	return &hooks.Failure{Outcome: hooks.OutcomeMalformed, Code: CodeMalformed, Err: errors.New(text)}
}

// definition is a tool as it was registered. It is not changed.
type definition struct {
	// Name is the one that models know: the plugin's before the tool's own.
	Name        string
	Description string
	// Schema is a JSON Schema of the arguments.
	Schema     json.RawMessage
	Idempotent bool
	// local is the plugin's own name for it.
	local string
	// validate says whether arguments fit the schema.
	validate func(json.RawMessage) error
}

// Validate says whether arguments fit the schema. It has no effect and does not block.
func (d definition) Validate(arguments json.RawMessage) error { return d.validate(arguments) }

const (
	// maxTools is how many a plugin may have.
	maxTools = 128
	// maxToolName is what models take.
	maxToolName = 64
	// maxDescription and maxSchema are in bytes.
	maxDescription = 16 << 10
	maxSchema      = 256 << 10
)

// ToolName is the name of a plugin's tool as models know it.
func ToolName(plugin, tool string) string {
	name := []byte(plugin)
	for i, c := range name {
		if c == '.' {
			name[i] = '-' // models take no dots
		}
	}
	return string(name) + "__" + tool
}

// define looks at a tool and compiles its schema.
func (s *registry) define(plugin string, t *pluginv1.ToolSpec) (definition, error) {
	d := definition{
		Name: ToolName(plugin, t.GetName()), Description: t.GetDescription(), Schema: json.RawMessage(t.GetSchemaJson()),
		Idempotent: t.GetIdempotent(), local: t.GetName(),
	}
	shown := wire.Shorten(d.local, maxName)
	if !toolPattern.MatchString(d.local) {
		return d, fmt.Errorf("tool %q: the name is not 1 to 64 letters, digits, dashes and underscores", shown)
	}
	for _, glob := range s.reserved {
		for _, name := range []string{d.local, d.Name} {
			if hit, err := hooks.MatchName(glob, name); hit || err != nil {
				return d, fmt.Errorf("tool %q: names like %s are agentd's own", shown, glob)
			}
		}
	}
	switch {
	case len(d.Name) > maxToolName:
		return d, fmt.Errorf("tool %q: with the plugin's name before it, as %s, it is longer than the %d characters that models take", shown, d.Name, maxToolName)
	case len(d.Description) > maxDescription:
		return d, fmt.Errorf("tool %q: the description is longer than %d bytes", shown, maxDescription)
	case len(d.Schema) > maxSchema:
		return d, fmt.Errorf("tool %q: the schema is longer than %d bytes", shown, maxSchema)
	}
	var err error
	if d.validate, err = s.compile(d.Schema); err != nil {
		return d, fmt.Errorf("tool %q: the schema: %w", shown, err)
	}
	return d, nil
}
