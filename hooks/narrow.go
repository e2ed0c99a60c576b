package hooks

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// Narrowing is what a hook has left of a run's tools: see [NarrowTools].
type Narrowing struct {
	HookID string
	// DecisionID is that of the hook's decision.
	DecisionID string
	// Tools are the names, each once, in the order in which they were given.
	Tools []string
}

// The reasons for which tools are not narrowed.
var (
	errNoTools = errors.New("the tools of a run are not narrowed here: it is done by a tool, or at BeforeRunStart, TransformContext, BeforeToolCall, BeforeExecute and AfterToolCall")
	errTooLate = errors.New("the call in which the tools were to be narrowed has ended")
)

// NarrowTools leaves the run that the function called with ctx is about no other tools
// than these, from its next turn on; at BeforeRunStart that is the first. Some tools of
// the host stay whatever is said, and a name that the run does not have is passed over.
// It can only become fewer: what an earlier call has taken away stays away.
//
// It counts with the hook's answer, in the same transaction, or with what a tool gives
// back. Of a hook that fails, one in shadow, and one whose answer comes to nothing, it
// counts as little as the answer, and so it does of a tool that returns an error.
//
// It is an error where ctx is of no hook or tool, of a gate where there is no such
// thing, and once the function has returned.
func NarrowTools(ctx context.Context, tools []string) error {
	l, _ := ctx.Value(leftToolsKey{}).(*LeftTools)
	if l == nil {
		return errNoTools
	}
	return l.narrow(tools)
}

// LeftTools is what one call has left of a run's tools. It is safe for concurrent use.
type LeftTools struct {
	mu     sync.Mutex
	tools  []string
	set    bool
	sealed bool
}

type leftToolsKey struct{}

// NarrowingTools returns a context in which [NarrowTools] is heard, until what it has
// left is taken: for a host that calls a tool.
func NarrowingTools(ctx context.Context) (context.Context, *LeftTools) {
	l := &LeftTools{}
	return context.WithValue(ctx, leftToolsKey{}, l), l
}

func (l *LeftTools) narrow(tools []string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sealed {
		return errTooLate
	}
	left := make([]string, 0, len(tools))
	for _, name := range tools {
		name = cleanText(name)
		if (!l.set || slices.Contains(l.tools, name)) && !slices.Contains(left, name) {
			left = append(left, name)
		}
	}
	l.tools, l.set = left, true
	return nil
}

// Take returns what was left, and whether anything was said of it. Nothing more is
// heard. A nil one has heard nothing.
func (l *LeftTools) Take() (tools []string, narrowed bool) {
	if l == nil {
		return nil, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sealed = true
	return l.tools, l.set
}

// narrows reports whether a hook at the gate may narrow the tools of its run. Around a
// model's HTTP request, which is asked about while others wait, it may not.
func narrows(g Gate) bool {
	switch g {
	case GateBeforeRunStart, GateTransformContext, GateBeforeToolCall, GateBeforeExecute, GateAfterToolCall:
		return true
	case GateBeforeInput, GateBeforeProviderHeaders, GateBeforeProviderRequest, GateAfterProviderResponse, GateOnChunk, GateOnEnd:
	}
	return false
}

// hearing is the context in which a hook at the gate is called. Where its tools are not
// narrowed, an outer hook is not narrowed by it either.
func hearing(ctx context.Context, g Gate) (context.Context, *LeftTools) {
	if narrows(g) {
		return NarrowingTools(ctx)
	}
	if ctx.Value(leftToolsKey{}) != nil {
		return context.WithValue(ctx, leftToolsKey{}, (*LeftTools)(nil)), nil
	}
	return ctx, nil
}
