package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
	"github.com/seed-2ca4966b/agentd/proctest"
)

// roleVariable makes a plugin of the test binary.
const roleVariable = "AGENTD_TEST_PLUGIN"

// A plugin cannot know what the packages that it imports print.
func init() {
	if os.Getenv(roleVariable) == "prints" {
		_, _ = os.Stdout.WriteString("hello from init\nand no end of line")
	}
}

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleVariable); role {
	case "":
		proctest.DieWithParent()
		goleak.VerifyTestMain(m)
	case "host":
		beHost()
	case "talks":
		signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM) // also before Serve takes it
		stdout := os.Stdout
		_ = plugin.Serve(roles["plain"]())
		if _, err := stdout.WriteString("good bye\n"); errors.Is(err, syscall.EPIPE) {
			os.Exit(7) // it has come so far
		}
	default:
		if err := plugin.Serve(roles[role]()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// beHost starts a plugin and waits for its end.
func beHost() {
	cmd := exec.CommandContext(context.Background(), os.Args[0])
	cmd.Env = []string{roleVariable + "=plain", wire.CookieKey + "=" + wire.CookieValue}
	cmd.Stdout = os.Stdout
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	fmt.Fprintln(os.Stderr, cmd.Process.Pid)
	_ = cmd.Wait()
}

var roles = map[string]func() plugin.Config{
	"plain": func() plugin.Config { return plugin.Config{ID: "plain"} },
	"prints": func() plugin.Config {
		return plugin.Config{ID: "prints", Hooks: hooks.Hooks{BeforeExecute: func(_ context.Context, in hooks.BeforeExecute) (hooks.BeforeExecuteResult, error) {
			flood := in.Turn
			_, _ = os.Stdout.WriteString(strings.Repeat("o", flood))
			_, _ = os.Stderr.WriteString(strings.Repeat("e", flood))
			// As code in C does, which knows nothing of os.Stdout.
			for _, fd := range []int{1, 2} {
				for left := strings.Repeat("f", flood); left != ""; {
					n, err := syscall.Write(fd, []byte(left))
					if err != nil {
						return hooks.BeforeExecuteResult{}, err
					}
					left = left[n:]
				}
			}
			return hooks.BeforeExecuteResult{Action: hooks.ActionContinue}, nil
		}}}
	},
	"slow": func() plugin.Config {
		released := make(chan os.Signal, 1)
		signal.Notify(released, syscall.SIGUSR1)
		return plugin.Config{ID: "slow", Tools: []plugin.Tool{{
			Name: "wait", Schema: []byte(`{}`),
			Run: func(_ context.Context, _ plugin.ToolInput, progress func(string)) (plugin.ToolOutput, error) {
				progress("waiting")
				<-released
				return plugin.ToolOutput{Content: "done"}, nil
			},
		}}}
	},
	"panics": func() plugin.Config {
		return plugin.Config{ID: "panics", Hooks: hooks.Hooks{
			BeforeExecute: func(_ context.Context, in hooks.BeforeExecute) (hooks.BeforeExecuteResult, error) {
				if in.Turn == 1 {
					panic("secret-0123")
				}
				return hooks.BeforeExecuteResult{Action: hooks.ActionContinue}, nil
			},
		}}
	},
	"bad": func() plugin.Config { return plugin.Config{ID: "Bad"} },
}

// inside serves a plugin in this process and connects to it.
func inside(t testing.TB, c plugin.Config) pluginv1.PluginServiceClient {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	stop, err := plugin.ServeOn(c, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	conn, err := grpc.NewClient("passthrough:plugin",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(wire.MaxReply), grpc.MaxCallSendMsgSize(1<<30)),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return pluginv1.NewPluginServiceClient(conn)
}

// told is inside, and tells the plugin of a host that there is not.
func told(t testing.TB, c plugin.Config) pluginv1.PluginServiceClient {
	t.Helper()
	p := inside(t, c)
	if _, err := p.Bootstrap(t.Context(), &pluginv1.BootstrapRequest{}); err != nil {
		t.Fatal(err)
	}
	return p
}

// answer asks at a gate.
func answer[In, Out any](t testing.TB, p pluginv1.PluginServiceClient, c wire.Codec[In, Out], in In) (Out, error) {
	t.Helper()
	a, err := p.Evaluate(t.Context(), c.Ask(in))
	if err != nil {
		var none Out
		return none, err
	}
	return c.Answered(a)
}
