package main

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
)

// The reference run: a message, a model call of 40 deltas and one tool call, a
// tool with a result of 1 KiB, a model call of 60 deltas, the end.
const (
	agentName    = "bench"
	modelName    = "bench"
	toolName     = "lookup"
	tenantID     = "default"
	firstDeltas  = 40
	secondDeltas = 60
	userText     = "What does the station say about the weather in Oslo tomorrow?"
)

var (
	toolResult    = strings.Repeat("rain from the west, ", 52)[:1024]
	toolArguments = `{"city":"Oslo","day":"tomorrow"}`
)

// instantModel plays the reference run without any pause.
type instantModel struct{}

// Stream implements loop.Model.
func (instantModel) Stream(_ context.Context, req loop.ModelRequest) iter.Seq2[stream.Chunk, error] {
	return func(yield func(stream.Chunk, error) bool) {
		n, asks := firstDeltas, true
		if last := len(req.Messages) - 1; last >= 0 && req.Messages[last].Role == hooks.RoleTool {
			n, asks = secondDeltas, false
		}
		for range n {
			if !yield(stream.Chunk{Kind: stream.KindDelta, Lane: stream.LaneText, BlockID: "0", Text: "token "}, nil) {
				return
			}
		}
		end := stream.Finish{Reason: stream.FinishStop, Usage: stream.Usage{InputTokens: 100, OutputTokens: int64(n)}}
		if asks {
			end.Reason = stream.FinishToolCalls
			call := stream.Chunk{Kind: stream.KindToolCall, BlockID: "1", Call: stream.CallStart{ProviderID: "call_1", Name: toolName}}
			arguments := stream.Chunk{Kind: stream.KindDelta, Lane: stream.LaneToolArguments, BlockID: "1", Text: toolArguments}
			if !yield(call, nil) || !yield(arguments, nil) {
				return
			}
		}
		yield(stream.Chunk{Kind: stream.KindFinish, Finish: end}, nil)
	}
}

// stampDigits is the length of a stamp: nanoseconds since 1970.
const stampDigits = 19

// pacedModel yields a chunk at equal intervals until it is told to stop. The
// text of a chunk is the time at which it was yielded, with prose a piece of a
// text behind it.
type pacedModel struct {
	every time.Duration
	prose bool
}

// Stream implements loop.Model.
func (m pacedModel) Stream(ctx context.Context, _ loop.ModelRequest) iter.Seq2[stream.Chunk, error] {
	return func(yield func(stream.Chunk, error) bool) {
		tick := time.NewTicker(m.every)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-tick.C:
			case <-ctx.Done():
				yield(stream.Chunk{}, ctx.Err())
				return
			}
			text := fmt.Sprintf("%0*d ", stampDigits, time.Now().UnixNano())
			if m.prose {
				text += prosePiece(i)
			}
			if !yield(stream.Chunk{Kind: stream.KindDelta, Lane: stream.LaneText, BlockID: "0", Text: text}, nil) {
				return
			}
		}
	}
}

// lookupTool answers at once.
type lookupTool struct{}

// Spec implements loop.Tool.
func (lookupTool) Spec() loop.ToolSpec {
	return loop.ToolSpec{Name: toolName, Description: "Looks up the weather.", Schema: json.RawMessage(`{"type":"object"}`)}
}

// Validate implements loop.Tool.
func (lookupTool) Validate(json.RawMessage) error { return nil }

// Call implements loop.Tool.
func (lookupTool) Call(context.Context, loop.ToolInput) (loop.ToolOutput, error) {
	return loop.ToolOutput{Content: toolResult}, nil
}

// referenceHooks make 8 decisions in a run: two hooks at each of four gates that
// are asked once in it, BeforeInput, BeforeRunStart, BeforeToolCall and
// AfterToolCall.
func referenceHooks() hooks.Hooks {
	return gateHooks(2).Then(hooks.Hooks{BeforeInput: passes[hooks.BeforeInput](2, hooks.BeforeInputResult{Action: hooks.ActionContinue})})
}

// evenHooks are n at each of four gates, of which TransformContext is asked
// before both model calls: 5n decisions in a run.
func evenHooks(n int) hooks.Hooks {
	return gateHooks(n).Then(hooks.Hooks{TransformContext: passes[hooks.TransformContext](n, hooks.TransformContextResult{Action: hooks.ActionContinue})})
}

func gateHooks(n int) hooks.Hooks {
	return hooks.Hooks{
		BeforeRunStart: passes[hooks.BeforeRunStart](n, hooks.BeforeRunStartResult{Action: hooks.ActionContinue}),
		BeforeToolCall: passes[hooks.BeforeToolCall](n, hooks.BeforeToolCallResult{Action: hooks.ActionContinue}),
		AfterToolCall:  passes[hooks.AfterToolCall](n, hooks.AfterToolCallResult{Action: hooks.ActionContinue}),
	}
}

// passes are n pure hooks that have no objection, as rules and checks are that
// do not apply; nil for none.
func passes[In hooks.Input[In, Out], Out hooks.Result](n int, goOn Out) (f hooks.Func[In, Out]) {
	for i := range n {
		one := func(context.Context, In) (Out, error) { return goOn, nil }
		f = hooks.Compose(f, hooks.Named(fmt.Sprintf("bench-%d", i+1), "1", one, hooks.Pure()))
	}
	return f
}
