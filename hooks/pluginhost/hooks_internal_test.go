package pluginhost

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

func TestAPluginIsAHookLikeAnyOther(t *testing.T) {
	t.Parallel()
	arguments := `{"key":"other"}`
	f := &fake{evaluate: func(ctx context.Context, q *pluginv1.EvaluateRequest) (*pluginv1.EvaluateResponse, error) {
		in, ok := wire.BeforeToolCall.Asked(q)
		if end, _ := ctx.Deadline(); !ok || in != call || q.GetDecisionId() == "" || q.GetDeadlineMs() < 1 || q.GetDeadlineMs() > 2000 || time.Until(end) > 2*time.Second {
			t.Errorf("asked %v, deadline %s", q, time.Until(end))
		}
		return wire.BeforeToolCall.Answer(hooks.BeforeToolCallResult{Action: hooks.ActionTransform, Arguments: &arguments, Annotations: map[string]string{"a": "b"}}), nil
	}}
	p := up(f.serve(t, policyManifest), subscribed(&pluginv1.Subscription{
		Gate: pluginv1.Gate_GATE_BEFORE_TOOL_CALL, Phase: pluginv1.Phase_PHASE_MUTATE, Tools: []string{"memory_*"}, Redacting: true,
	}))
	v, ds := asking(t, p, call)
	if len(ds) != 1 || v.Value.Call.Arguments != arguments {
		t.Fatalf("verdict %+v, decisions %+v", v, ds)
	}
	d := ds[0]
	if d.HookID != "policy" || d.HookKind != hooks.KindPlugin || d.HookVersion != "1" || d.HookDigest != "sha256:00" || d.Phase != hooks.PhaseMutate ||
		d.Action != hooks.ActionTransform || d.Deadline != 2*time.Second || strings.Contains(d.Payload.Patch, "other") || d.Payload.Annotations != `{"a":"b"}` {
		t.Errorf("decision %+v", d)
	}
}

func TestPhasePolicyAndScopeAreThoseOfTheSubscription(t *testing.T) {
	t.Parallel()
	answer := subscribed(
		&pluginv1.Subscription{
			Gate: pluginv1.Gate_GATE_AFTER_PROVIDER_RESPONSE, Phase: pluginv1.Phase_PHASE_VALIDATE, Agents: []string{"a*"}, Tenants: []string{"t"}, FailClosed: true,
		},
		&pluginv1.Subscription{Gate: pluginv1.Gate_GATE_BEFORE_INPUT},
	)
	p := up((&fake{}).serve(t, policyManifest), answer)
	set := newService(t, nil).caller([]*Plugin{p}).Hooks().Set().Hooks
	if len(set) != 2 || set[0].Gate != hooks.GateBeforeInput || set[0].Only != nil || set[0].Phase != hooks.PhaseMutate {
		t.Fatalf("hooks %+v", set)
	}
	r := set[1]
	if r.Phase != hooks.PhaseValidate || r.OnFailure != hooks.FailClosed || !slices.Equal(r.Only.Agents, []string{"a*"}) || !slices.Equal(r.Only.Tenants, []string{"t"}) ||
		r.TimeLimit != hooks.DefaultTimeLimit || r.QueueLimit != queueTime || strings.Contains(r.Config, "limit") {
		t.Errorf("hook %+v", r)
	}
}

// TestNobodyIsAskedWhereNothingIsSubscribed: no call, and no row.
func TestNobodyIsAskedWhereNothingIsSubscribed(t *testing.T) {
	t.Parallel()
	f := &fake{evaluate: said(hooks.BeforeToolCallResult{Action: hooks.ActionBlock})}
	p := up(f.serve(t, policyManifest), subscribed(toolCalls("charge")))
	v, ds := asking(t, p, call)
	if v.Action != hooks.ActionContinue || len(ds) != 0 || f.asked.Load() != 0 {
		t.Errorf("verdict %+v, decisions %+v, asked %d times", v, ds, f.asked.Load())
	}
}

func TestAGateThatIsNotSubscribedToCostsNothing(t *testing.T) { //nolint:paralleltest // it counts allocations
	h := newService(t, nil).caller([]*Plugin{up((&fake{}).serve(t, policyManifest), subscribed(toolCalls()))}).Hooks()
	if h.BeforeExecute != nil || h.BeforeInput != nil {
		t.Error("there are hooks at other gates")
	}
	asker := &hooks.Asker{}
	if n := testing.AllocsPerRun(100, func() {
		_, _, _ = hooks.Ask(t.Context(), asker, h.BeforeExecute, hooks.Position{}, hooks.BeforeExecute{}, nil)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestSeveralPluginsAreAskedInTheirOrder(t *testing.T) {
	t.Parallel()
	var order []string
	plug := func(id string) *Plugin {
		f := &fake{evaluate: func(_ context.Context, q *pluginv1.EvaluateRequest) (*pluginv1.EvaluateResponse, error) {
			order = append(order, id+" "+q.GetBeforeToolCall().GetCall().GetArguments())
			arguments := `"` + id + `"`
			return wire.BeforeToolCall.Answer(hooks.BeforeToolCallResult{Action: hooks.ActionTransform, Arguments: &arguments}), nil
		}}
		return up(f.serve(t, Manifest{ID: id, Version: "1"}), subscribed(toolCalls()))
	}
	h := newService(t, nil).caller([]*Plugin{plug("b"), plug("a")}).Hooks()
	if _, ds, err := hooks.Ask(t.Context(), &hooks.Asker{}, h.BeforeToolCall, hooks.Position{}, call, nil); err != nil || len(ds) != 2 {
		t.Fatal(ds, err)
	}
	if want := []string{"b {}", `a "b"`}; !slices.Equal(order, want) {
		t.Errorf("asked %q; want %q", order, want)
	}
}

// raw answers with bytes that may be no message.
type raw struct{ encoding.CodecV2 }

func (c raw) Marshal(v any) (mem.BufferSlice, error) {
	if a, ok := v.(*pluginv1.EvaluateResponse); ok && a.GetVerdict().GetReason().GetCode() == "garbage" {
		return mem.BufferSlice{mem.SliceBuffer("\xff\xff\xff\xff not a message")}, nil
	}
	return c.CodecV2.Marshal(v)
}

func TestWhateverIsNoAnswerClosesTheGate(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 5<<20)
	for name, test := range map[string]struct {
		evaluate func(context.Context, *pluginv1.EvaluateRequest) (*pluginv1.EvaluateResponse, error)
		outcome  hooks.Outcome
		code     string
	}{
		"silence": {func(context.Context, *pluginv1.EvaluateRequest) (*pluginv1.EvaluateResponse, error) {
			return &pluginv1.EvaluateResponse{}, nil
		}, hooks.OutcomeMalformed, "hook.malformed"},
		"another gate": {func(context.Context, *pluginv1.EvaluateRequest) (*pluginv1.EvaluateResponse, error) {
			return wire.BeforeExecute.Answer(hooks.BeforeExecuteResult{Action: hooks.ActionContinue}), nil
		}, hooks.OutcomeMalformed, CodeMalformed},
		"garbage":           {said(hooks.BeforeToolCallResult{Action: hooks.ActionContinue, Reason: hooks.Reason{Code: "garbage"}}), hooks.OutcomeMalformed, CodeMalformed},
		"five megabytes":    {said(hooks.BeforeToolCallResult{Action: hooks.ActionContinue, Reason: hooks.Reason{Text: long}}), hooks.OutcomeOversize, CodeOversize},
		"an illegal action": {said(hooks.BeforeToolCallResult{Action: hooks.ActionHandled}), hooks.OutcomeIllegalAction, "hook.illegal_action"},
		"an error of gRPC": {func(context.Context, *pluginv1.EvaluateRequest) (*pluginv1.EvaluateResponse, error) {
			return nil, status.Error(codes.NotFound, "secret")
		}, hooks.OutcomeError, "hook.error"},
		"a failure of its own": {func(context.Context, *pluginv1.EvaluateRequest) (*pluginv1.EvaluateResponse, error) {
			return wire.Failed(&hooks.Failure{Outcome: hooks.OutcomePanic, Code: "mine", Err: errors.New("no list")}), nil
		}, hooks.OutcomePanic, "mine"},
		"a failure that it says is the host's": {func(context.Context, *pluginv1.EvaluateRequest) (*pluginv1.EvaluateResponse, error) {
			return wire.Failed(&hooks.Failure{Outcome: hooks.OutcomeError, Code: CodeCrash}), nil
		}, hooks.OutcomeError, "hook.error"},
		"no time": {func(ctx context.Context, _ *pluginv1.EvaluateRequest) (*pluginv1.EvaluateResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, hooks.OutcomeTimeout, CodeTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{evaluate: test.evaluate}
			p := up(f.serve(t, policyManifest, grpc.ForceServerCodecV2(raw{encoding.GetCodecV2(proto.Name)}), grpc.MaxSendMsgSize(1<<30)), subscribed(toolCalls()))
			v, ds := asking(t, p, call)
			if v.Action != hooks.ActionBlock || len(ds) != 1 {
				t.Fatalf("verdict %+v, decisions %+v", v, ds)
			}
			if d := ds[0]; d.Outcome != test.outcome || d.ReasonCode != test.code || d.FailedOpen {
				t.Errorf("outcome %s, code %s; want %s, %s (%s)", d.Outcome, d.ReasonCode, test.outcome, test.code, d.Payload.Reason)
			}
			if strings.Contains(v.Reason.Text, "secret") {
				t.Error("the text of the error is shown")
			}
		})
	}
}

func TestAPluginThatIsNotThereClosesTheGate(t *testing.T) {
	t.Parallel()
	f := &fake{evaluate: said(hooks.BeforeToolCallResult{Action: hooks.ActionContinue})}
	gone := up(f.serve(t, policyManifest), subscribed(toolCalls()))
	gone.process = nil
	if v, ds := asking(t, gone, call); v.Action != hooks.ActionBlock || ds[0].Outcome != hooks.OutcomeUnavailable || ds[0].ReasonCode != CodeUnavailable {
		t.Errorf("verdict %+v, decisions %+v", v, ds)
	}
	// Of one that never was up nobody knows where it would have been asked.
	h := newService(t, nil).caller([]*Plugin{down("policy")}).Hooks()
	if set := h.Set().Hooks; len(set) != 9 || set[0].Version != "1" {
		t.Errorf("hooks %+v", set)
	}
	v, ds, err := hooks.Ask(t.Context(), &hooks.Asker{}, h.BeforeInput, hooks.Position{}, hooks.BeforeInput{Text: "hi"}, nil)
	if err != nil || v.Action != hooks.ActionBlock || ds[0].ReasonCode != CodeUnavailable {
		t.Errorf("verdict %+v, decisions %+v, %v", v, ds, err)
	}
}

// TestWhatWasLoadedBeforeAPluginWasUpStaysClosed: who has those hooks has none of the
// plugin's rules, and one that is asked where it has not subscribed may say yes.
func TestWhatWasLoadedBeforeAPluginWasUpStaysClosed(t *testing.T) {
	t.Parallel()
	f := &fake{evaluate: func(context.Context, *pluginv1.EvaluateRequest) (*pluginv1.EvaluateResponse, error) {
		return wire.TransformContext.Answer(hooks.TransformContextResult{Action: hooks.ActionContinue}), nil
	}}
	p := down("policy")
	c := newService(t, nil).caller([]*Plugin{p})
	before := c.Hooks()
	p.process, p.answer = f.serve(t, policyManifest), ruled("policy", taking("r", "a"))
	v, ds, err := hooks.Ask(t.Context(), &hooks.Asker{}, before.TransformContext, hooks.Position{}, hooks.TransformContext{RunRef: about}, nil)
	if err != nil || v.Action != hooks.ActionBlock || ds[0].ReasonCode != CodeUnavailable || f.asked.Load() != 0 {
		t.Errorf("verdict %+v, decisions %+v, %v; asked %d times", v, ds, err, f.asked.Load())
	}
	if now := c.Hooks(); now.TransformContext != nil || len(c.Observers()) != 1 {
		t.Error("what is loaded now is not what the plugin has said")
	}
}

func TestADeathDuringTheCallIsACrash(t *testing.T) {
	t.Parallel()
	var process *Process
	f := &fake{}
	f.evaluate = func(context.Context, *pluginv1.EvaluateRequest) (*pluginv1.EvaluateResponse, error) {
		process.run.cause = errors.New("it was ended by a signal: killed")
		close(process.run.died)
		return nil, status.Error(codes.Unavailable, "the connection broke")
	}
	process = f.serve(t, policyManifest)
	if v, ds := asking(t, up(process, subscribed(toolCalls())), call); v.Action != hooks.ActionBlock || ds[0].Outcome != hooks.OutcomeCrash ||
		ds[0].ReasonCode != CodeCrash || !strings.Contains(ds[0].Payload.Reason, "killed") {
		t.Errorf("verdict %+v, decisions %+v", v, ds)
	}
}

// TestSoManyCallsAreUnderWayAtOnce and so many wait; the ledger has the waiting apart.
func TestSoManyCallsAreUnderWayAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(2, 1, queueTime)
		for range 2 {
			if err := s.take(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		waited := make(chan error)
		began := time.Now()
		go func() { waited <- s.take(t.Context()) }()
		synctest.Wait()
		var full *hooks.Failure
		if err := s.take(t.Context()); !errors.As(err, &full) || full.Code != CodeQueueFull || full.Outcome != hooks.OutcomeUnavailable {
			t.Errorf("one too many: %v", err)
		}
		if err := <-waited; !errors.As(err, &full) || full.Code != CodeQueueFull || time.Since(began) != queueTime {
			t.Errorf("waited in vain for %s: %v", time.Since(began), err)
		}
		go func() { waited <- s.take(t.Context()) }()
		synctest.Wait()
		s.give()
		if err := <-waited; err != nil {
			t.Errorf("waited: %v", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.take(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("given up: %v", err)
		}
	})
}

func TestManyCallsAtOnceAreAllAnswered(t *testing.T) {
	t.Parallel()
	const many = 4 * concurrency
	f := &fake{evaluate: said(hooks.BeforeToolCallResult{Action: hooks.ActionContinue})}
	h := newService(t, nil).caller([]*Plugin{up(f.serve(t, policyManifest), subscribed(toolCalls()))}).Hooks()
	var all sync.WaitGroup
	for range many {
		all.Go(func() {
			v, _, err := hooks.Ask(t.Context(), &hooks.Asker{}, h.BeforeToolCall, hooks.Position{}, call, nil)
			if err != nil || v.Action != hooks.ActionContinue {
				t.Errorf("%+v, %v", v, err)
			}
		})
	}
	all.Wait()
	if n := f.asked.Load(); n != many {
		t.Errorf("asked %d times", n)
	}
}
