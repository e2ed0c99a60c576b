package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

// oddPlugins are what this test binary can be beside an orderly plugin, by what a
// plugin does.
var oddPlugins = map[string]func(id, version string) int{
	"faults":        beFaulty,
	"raw":           func(id, version string) int { return beRaw(newMumbler(id, version)) },
	"nosy":          func(id, version string) int { return beRaw(newNosy(id, version)) },
	"order":         func(id, version string) int { return beRole(id, version, hooks.PhaseMutate) },
	"order-late":    func(id, version string) int { return beRole(id, version, hooks.PhaseValidate) },
	"told-of-a-key": beConfidant,
}

func serves(c plugin.Config) int {
	if err := plugin.Serve(c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// faulty is what the arguments of a call have the plugin do that is asked about it.
type faulty struct {
	Fault string
	// Bytes are how much it prints; Done is a file that is there then.
	Bytes int
	Done  string
}

func faultOf(arguments string) (f faulty) {
	_ = json.Unmarshal([]byte(arguments), &f) // "" is no fault
	return f
}

// beFaulty is asked about calls of tools that begin with its id, and does what their
// arguments say.
func beFaulty(id, version string) int {
	return serves(plugin.Config{
		ID: id, Version: version,
		On: map[hooks.Gate]plugin.On{hooks.GateBeforeToolCall: {Tools: []string{id + "_*"}}},
		Hooks: hooks.Hooks{BeforeToolCall: func(_ context.Context, in hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
			return fault(faultOf(in.Call.Arguments))
		}},
	})
}

func fault(f faulty) (hooks.BeforeToolCallResult, error) {
	allows := hooks.BeforeToolCallResult{Action: hooks.ActionContinue}
	switch f.Fault {
	case "sleep":
		select {}
	case "error":
		return allows, errors.New("no list")
	case "panic":
		panic("on purpose")
	case "exit":
		os.Exit(1) //nolint:revive // a plugin that ends in a call
	case "panic of the process":
		go func() { panic("on purpose") }()
		select {}
	case "kill -9":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "stop":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		select {} // the answer would come before the signal
	case "fork and exec":
		// One in a session of its own, and one whose parent is gone.
		err := exec.Command("/bin/sh", "-c", "setsid sleep 1000 & (setsid sh -c 'sleep 1000 & sleep 1000' &) ; exit 0").Run()
		if err != nil {
			return allows, err
		}
		os.Exit(0) //nolint:revive // a plugin that leaves others behind
	case "memory":
		all := make([][]byte, 0, 1<<10)
		for range cap(all) {
			all = append(all, make([]byte, 1<<30))
		}
		fmt.Fprintln(os.Stderr, "there is enough memory:", len(all))
	case "flood of stdout":
		go flood(os.Stdout, f)
		return blocks("it prints"), nil
	case "flood of stderr":
		go flood(os.Stderr, f)
		return blocks("it prints"), nil
	}
	return allows, nil
}

// flood prints without an end of line.
func flood(to *os.File, f faulty) {
	if _, err := to.WriteString(strings.Repeat("x", f.Bytes)); err == nil {
		_ = written(f.Done, "") // or a test waits in vain
	}
}

func blocks(why string) hooks.BeforeToolCallResult {
	return hooks.BeforeToolCallResult{Action: hooks.ActionBlock, Reason: hooks.Reason{Text: why}}
}

// beRole is one of those that [rolePolicies] has.
func beRole(id, version string, phase hooks.Phase) int {
	p := rolePolicies[strings.ToUpper(id)[0]]
	return serves(plugin.Config{
		ID: id, Version: version,
		On: map[hooks.Gate]plugin.On{hooks.GateBeforeToolCall: {Phase: phase}},
		Hooks: hooks.Hooks{BeforeToolCall: func(_ context.Context, in hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
			return p.says(in), nil
		}},
	})
}

// raw is a plugin without the SDK. What it has no function for is unimplemented.
type raw struct {
	pluginv1.UnimplementedPluginServiceServer
	about    *pluginv1.BootstrapResponse
	evaluate func(context.Context, *pluginv1.EvaluateRequest) (*pluginv1.EvaluateResponse, error)
	told     *pluginv1.BootstrapRequest
	asked    atomic.Int32
}

func (r *raw) Bootstrap(_ context.Context, q *pluginv1.BootstrapRequest) (*pluginv1.BootstrapResponse, error) {
	r.told = q
	return r.about, nil
}

func (r *raw) Evaluate(ctx context.Context, q *pluginv1.EvaluateRequest) (*pluginv1.EvaluateResponse, error) {
	r.asked.Add(1)
	return r.evaluate(ctx, q)
}

// Health tells how often it was asked at gates.
func (r *raw) Health(context.Context, *pluginv1.HealthRequest) (*pluginv1.HealthResponse, error) {
	return &pluginv1.HealthResponse{Ready: true, InFlight: r.asked.Load()}, nil
}

// rawPlugin is what go-plugin is handed.
type rawPlugin struct {
	goplugin.NetRPCUnsupportedPlugin
	service *raw
}

// GRPCServer implements goplugin.GRPCPlugin.
func (p rawPlugin) GRPCServer(_ *goplugin.GRPCBroker, server *grpc.Server) error {
	pluginv1.RegisterPluginServiceServer(server, p.service)
	return nil
}

// GRPCClient implements goplugin.GRPCPlugin.
func (rawPlugin) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.ErrUnsupported
}

func beRaw(r *raw) int {
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: goplugin.HandshakeConfig{
			ProtocolVersion: wire.ProtocolVersion, MagicCookieKey: wire.CookieKey, MagicCookieValue: wire.CookieValue,
		},
		Plugins: goplugin.PluginSet{wire.PluginName: rawPlugin{service: r}},
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(opts, grpc.ForceServerCodecV2(mumbling{encoding.GetCodecV2(proto.Name)}), grpc.MaxSendMsgSize(1<<30))...)
		},
		Logger: hclog.NewNullLogger(),
	})
	return 0
}

// garbled is the reason of an answer that is not to be sent as it is.
const garbled = "garbled"

// mumbling makes what is no message of some answers.
type mumbling struct{ encoding.CodecV2 }

// Marshal implements encoding.CodecV2.
func (m mumbling) Marshal(v any) (mem.BufferSlice, error) {
	if a, ok := v.(*pluginv1.EvaluateResponse); ok && a.GetVerdict().GetReason().GetCode() == garbled {
		return mem.BufferSlice{mem.SliceBuffer("\xff\xff\xff\xff no message")}, nil
	}
	return m.CodecV2.Marshal(v)
}

func rawAbout(id, version string) *pluginv1.BootstrapResponse {
	return &pluginv1.BootstrapResponse{Id: id, Version: version, Subscriptions: []*pluginv1.Subscription{
		{Gate: pluginv1.Gate_GATE_BEFORE_TOOL_CALL, Phase: pluginv1.Phase_PHASE_MUTATE, Tools: []string{id + "_*"}},
	}}
}

// newMumbler answers with what is no answer.
func newMumbler(id, version string) *raw {
	return &raw{about: rawAbout(id, version), evaluate: func(ctx context.Context, q *pluginv1.EvaluateRequest) (*pluginv1.EvaluateResponse, error) {
		continues := wire.BeforeToolCall.Answer(hooks.BeforeToolCallResult{Action: hooks.ActionContinue})
		switch faultOf(q.GetBeforeToolCall().GetCall().GetArguments()).Fault {
		case "sleep":
			<-ctx.Done()
		case "no verdict":
			continues.Verdict = nil
		case "another gate's result":
			continues.Result = &pluginv1.EvaluateResponse_BeforeInput{BeforeInput: &pluginv1.BeforeInputResult{}}
		case "unknown action":
			continues.Verdict.Action = 99
		case "illegal action":
			continues.Verdict.Action = pluginv1.Action_ACTION_HANDLED
		case "no message":
			continues.Verdict.Reason = &pluginv1.Reason{Code: garbled}
		case "five megabytes":
			continues.Verdict.Reason = &pluginv1.Reason{Text: strings.Repeat("x", 5<<20)}
		case "an error of five megabytes":
			return nil, status.Error(codes.Internal, strings.Repeat("x", 5<<20))
		case "unavailable":
			return nil, status.Error(codes.Unavailable, "not today")
		}
		return continues, nil
	}}
}
