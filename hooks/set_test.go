package hooks_test

import (
	"context"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
)

func ran[In, Out any](context.Context, In) (Out, error) { panic("ran") }

// everywhere is a set with one foreign func at each gate, which must not run,
// and the named hook last.
func everywhere(t *testing.T) hooks.Hooks {
	t.Helper()
	return hooks.Hooks{
		BeforeInput:           ran[hooks.BeforeInput, hooks.BeforeInputResult],
		BeforeRunStart:        ran[hooks.BeforeRunStart, hooks.BeforeRunStartResult],
		TransformContext:      ran[hooks.TransformContext, hooks.TransformContextResult],
		BeforeProviderHeaders: ran[hooks.BeforeProviderHeaders, hooks.BeforeProviderHeadersResult],
		BeforeProviderRequest: ran[hooks.BeforeProviderRequest, hooks.BeforeProviderRequestResult],
		AfterProviderResponse: ran[hooks.AfterProviderResponse, hooks.AfterProviderResponseResult],
		BeforeToolCall:        ran[call, callResult],
		BeforeExecute:         ran[hooks.BeforeExecute, hooks.BeforeExecuteResult],
		AfterToolCall:         ran[hooks.AfterToolCall, hooks.AfterToolCallResult],
	}
}

func TestSetListsEveryGateAndCallsNoHook(t *testing.T) {
	t.Parallel()
	h := everywhere(t).Then(hooks.Hooks{BeforeToolCall: hooks.Named("guard", "3", func(context.Context, call) (callResult, error) { panic("ran") },
		hooks.OfKind(hooks.KindRule), hooks.WithConfig("cfg"), hooks.WithDigest("d"), hooks.InPhase(hooks.PhaseValidate),
		hooks.OnFailureOpen(), hooks.TimeLimit(time.Second), hooks.ReplyLimit(9), hooks.Redacting())})
	anonymous := func(g hooks.Gate, reply int) hooks.Registration {
		r := hooks.Registration{
			Gate: g, ID: "anonymous/1", Kind: hooks.KindGo, Phase: hooks.PhaseMutate, OnFailure: hooks.FailClosed,
			TimeLimit: 2 * time.Second, ReplyLimit: reply,
		}
		if g == hooks.GateAfterProviderResponse {
			r.OnFailure = hooks.FailOpen
		}
		return r
	}
	expect(t, "the set", h.Set().Hooks, []hooks.Registration{
		anonymous(hooks.GateBeforeInput, 1<<20), anonymous(hooks.GateBeforeRunStart, 1<<20), anonymous(hooks.GateTransformContext, 8<<20),
		anonymous(hooks.GateBeforeProviderHeaders, 1<<20), anonymous(hooks.GateBeforeProviderRequest, 8<<20), anonymous(hooks.GateAfterProviderResponse, 1<<20),
		anonymous(hooks.GateBeforeToolCall, 1<<20),
		{
			Gate: hooks.GateBeforeToolCall, ID: "guard", Version: "3", Kind: hooks.KindRule, Phase: hooks.PhaseValidate, Digest: "d", Config: "cfg",
			OnFailure: hooks.FailOpen, TimeLimit: time.Second, ReplyLimit: 9, Redacting: true,
		},
		anonymous(hooks.GateBeforeExecute, 1<<20), anonymous(hooks.GateAfterToolCall, 1<<20),
	})
}

func TestSetHasTheSameDigestOnlyForTheSameHooks(t *testing.T) {
	t.Parallel()
	of := func(funcs ...hooks.BeforeToolCallFunc) string {
		return hooks.Hooks{BeforeToolCall: hooks.Compose(funcs...)}.Set().Digest
	}
	n := func(id, version string, opts ...hooks.Option) hooks.BeforeToolCallFunc {
		return hooks.Named(id, version, continues(), opts...)
	}
	base := of(n("a", "1"), n("b", "1"))
	if again := of(hooks.Compose(n("a", "1"), hooks.Compose(n("b", "1")))); again != base {
		t.Errorf("the same hooks, nested: %s; want %s", again, base)
	}
	for name, other := range map[string]string{
		"order": of(n("b", "1"), n("a", "1")), "version": of(n("a", "1"), n("b", "2")), "one less": of(n("a", "1")), "none": of(),
		"digest": of(n("a", "1"), n("b", "1", hooks.WithDigest("x"))), "config": of(n("a", "1"), n("b", "1", hooks.WithConfig("x"))),
		"policy": of(n("a", "1"), n("b", "1", hooks.OnFailureOpen())), "unnamed": of(n("a", "1"), continues()),
	} {
		if other == base || len(other) != 64 {
			t.Errorf("another %s has the digest %q", name, other)
		}
	}
}

func TestSetWithMoreHasThemBehindUnderAnotherDigest(t *testing.T) {
	t.Parallel()
	base := hooks.Hooks{BeforeToolCall: hooks.Named("a", "1", continues())}.Set()
	if same := base.With(); same.Digest != base.Digest || len(same.Hooks) != 1 {
		t.Errorf("with nothing more it is %+v", same)
	}
	more := hooks.Registration{Gate: hooks.GateOnEnd, ID: "o", Kind: hooks.KindObserver}
	all := base.With(more)
	expect(t, "the set", all.Hooks, []hooks.Registration{base.Hooks[0], more})
	if again := base.With(more); again.Digest != all.Digest || all.Digest == base.Digest || len(all.Digest) != 64 {
		t.Errorf("digests %q and %q; without it %q", all.Digest, again.Digest, base.Digest)
	}
	if len(base.Hooks) != 1 {
		t.Error("the set itself has changed")
	}
	if none := (hooks.Hooks{}).Set().With(more); len(none.Hooks) != 1 {
		t.Errorf("nothing with one is %+v", none)
	}
}
