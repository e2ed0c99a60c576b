package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// script is what a schedule has: drawn once, in the beginning.
type script struct {
	sessions, workers, acts, faults, pace, steps int

	gates     map[hooks.Gate]gateOf
	onUnknown loop.UnknownPolicy
	unattend  bool
	limits    loop.Limits
	attempts  int
	maxWait   time.Duration
	approvers []string
	answerIn  time.Duration
	observing observing
	// narrows says that hooks and tools narrow the tools of runs now and then, tells
	// that tools say how far they are.
	narrows, tells bool
}

// gateOf is the hook at a gate, and whether there is one in shadow before it.
type gateOf struct{ pure, stubborn, shadow bool }

func drawScript(src *source) script {
	s := script{
		sessions: 1 + src.oneOf(70, 30), workers: []int{2, 3, 1}[src.oneOf(60, 25, 15)],
		acts: 1 + src.draw(8), faults: src.draw(20), pace: []int{1, 2, 5}[src.draw(3)], steps: 40 + src.draw(200),
		gates: map[hooks.Gate]gateOf{}, attempts: 1 + src.draw(3),
		maxWait: []time.Duration{time.Second, 10 * time.Second}[src.draw(2)],
	}
	for _, g := range []hooks.Gate{
		hooks.GateBeforeInput, hooks.GateBeforeRunStart, hooks.GateTransformContext,
		hooks.GateBeforeToolCall, hooks.GateBeforeExecute, hooks.GateAfterToolCall,
	} {
		if src.rarely(40) {
			s.gates[g] = gateOf{pure: src.draw(2) == 0, stubborn: src.rarely(10), shadow: src.rarely(30)}
		}
	}
	s.onUnknown = []loop.UnknownPolicy{loop.UnknownReport, loop.UnknownAsk, loop.UnknownFail}[src.oneOf(50, 35, 15)]
	s.unattend = src.rarely(10)
	if src.rarely(25) {
		s.approvers = []string{"p1"}
	}
	s.answerIn = []time.Duration{0, 5 * time.Second, time.Hour}[src.oneOf(60, 25, 15)]
	switch src.oneOf(70, 8, 8, 8, 6) {
	case 1:
		s.limits.Turns = 2
	case 2:
		s.limits.ToolCalls = 2
	case 3:
		s.limits.RunTime = 7013 * time.Millisecond
	case 4:
		s.limits.Tokens = 20
	}
	s.observing = drawObserving(src)
	s.narrows, s.tells = src.rarely(25), src.rarely(25)
	return s
}

func (s script) agent(w *world) loop.Agent {
	var fallbacks []loop.Fallback
	for i := range s.observing.fallbacks {
		fallbacks = append(fallbacks, loop.Fallback{Model: looptest.Model(w.speak), ModelName: fmt.Sprintf("m%d", i+2)})
	}
	return loop.Agent{
		Name: "demo", Model: looptest.Model(w.speak), ModelName: "m", Fallbacks: fallbacks, System: "be brief",
		Tools: []loop.Tool{w.tool("once", false), w.tool("again", true), w.tool("asks", false), w.tool("never", false)},
		Permissions: []loop.Permission{
			{Tools: "asks", Mode: loop.PermissionAsk}, {Tools: "never", Mode: loop.PermissionDeny},
		},
		Unattended: s.unattend, OnUnknown: s.onUnknown, Limits: s.limits,
		Approvers: s.approvers, ApprovalTimeout: s.answerIn,
		Retry: loop.Retry{Attempts: s.attempts, MaxWait: s.maxWait},
	}
}

func tag(runID string, turn, attempt int) string {
	return fmt.Sprintf("[%s.%d.%d]", runID, turn, attempt)
}

// speak is the model: what it says is drawn when it is called.
func (w *world) speak(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
	a := actorOf(ctx)
	name := fmt.Sprintf("model %s.%d.%d", req.RunID, req.Turn, req.Attempt)
	if !w.pause(ctx, &point{actor: a, what: name + " is called", obeys: true}) {
		return
	}
	w.modelCalled(a, req)
	chunks, end := w.answerTo(req)
	stubborn := w.src.rarely(5)
	for i, c := range chunks {
		if !w.pause(ctx, &point{actor: a, what: fmt.Sprintf("%s says its chunk %d", name, i+1), obeys: !stubborn}) || !yield(c, nil) {
			return
		}
	}
	if w.pause(ctx, &point{actor: a, what: name + " ends", obeys: !stubborn}) && end != nil {
		yield(stream.Chunk{}, end)
	}
}

// answerTo draws an answer, and the error that it ends with.
func (w *world) answerTo(req loop.ModelRequest) (chunks []stream.Chunk, end error) {
	text := looptest.Text("said " + tag(req.RunID, req.Turn, req.Attempt))
	kind := w.src.oneOf(24, 60, 6, 4, 6)
	if req.Turn > 3 {
		kind = 0
	}
	switch kind {
	case 1:
		pieces := []any{}
		if w.src.draw(2) == 1 {
			pieces = append(pieces, text)
		}
		for i := range 1 + w.src.draw(3) {
			name := []string{"once", "again", "asks", "never", "nobody"}[w.src.oneOf(38, 30, 22, 5, 5)]
			args := []string{`{}`, `{"a":1}`, `{"a":`}[w.src.oneOf(60, 35, 5)]
			pieces = append(pieces, looptest.ToolCall(fmt.Sprintf("p%d", i), name, args))
		}
		return looptest.Answer(append(pieces, looptest.Finish(stream.FinishToolCalls))...), nil
	case 2:
		return nil, &loop.ModelError{Status: 503, Message: "overloaded", Retryable: true, RetryAfter: w.script.maxWait}
	case 3:
		return nil, &loop.ModelError{Status: 400, Message: "bad request"}
	case 4:
		return []stream.Chunk{text}, []error{nil, errors.New("connection reset")}[w.src.draw(2)]
	}
	if w.src.draw(2) == 1 {
		chunks = append(chunks, looptest.Reasoning("thought "+tag(req.RunID, req.Turn, req.Attempt)))
	}
	return append(chunks, text, looptest.Text(" and more"), looptest.Finish(stream.FinishStop)), nil
}

// narrow leaves the run less of its tools, now and then.
func (w *world) narrow(ctx context.Context) {
	if !w.script.narrows || !w.src.rarely(20) {
		return
	}
	// Where that is nothing that a hook does, it is none of its business either.
	_ = hooks.NarrowTools(ctx, [][]string{{"once", "again"}, {"again", "asks", "nobody"}, {}}[w.src.draw(3)])
}

func enters(callID string) string { return "tool is entered for " + callID }

// tool takes effect as soon as it is entered, and answers later.
func (w *world) tool(name string, idempotent bool) loop.Tool {
	return looptest.Tool{Name: name, Idempotent: idempotent || w.mutant == EveryToolAgain, Run: func(ctx context.Context, in loop.ToolInput) (loop.ToolOutput, error) {
		a := actorOf(ctx)
		held := a.held // by what it knew when it sent the call on its way
		if !w.pause(ctx, &point{actor: a, what: enters(in.CallID), obeys: true}) {
			return loop.ToolOutput{}, context.Canceled
		}
		w.toolEntered(a, name, idempotent, held, in)
		kind, stubborn := w.src.oneOf(76, 8, 8, 8), w.src.rarely(15)
		w.narrow(ctx)
		if w.script.tells && w.src.draw(2) == 1 {
			// It says it once: of more, it is time that says when somebody hears.
			if !w.pause(ctx, &point{actor: a, what: fmt.Sprintf("tool %s says how far it is, attempt %d", in.CallID, in.Attempt), hook: true, obeys: !stubborn}) {
				return loop.ToolOutput{}, context.Canceled
			}
			in.Progress("half, " + in.CallID)
		}
		for left := w.src.draw(4); left >= 0; left-- {
			if !w.pause(ctx, &point{actor: a, what: fmt.Sprintf("tool %s works on, attempt %d, %d left", in.CallID, in.Attempt, left), obeys: !stubborn}) {
				return loop.ToolOutput{}, context.Canceled
			}
		}
		switch kind {
		case 1:
			return loop.ToolOutput{}, errors.New("no such file")
		case 2:
			return loop.ToolOutput{Content: "declined", IsError: true}, nil
		case 3:
			panic("a tool's bug")
		}
		return loop.ToolOutput{Content: name + " ran"}, nil
	}}
}
