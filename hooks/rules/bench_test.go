package rules_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// BenchmarkGate is a gate with rules whose condition does not hold, and with
// rules that are about another tool.
func BenchmarkGate(b *testing.B) {
	conditions := map[string]string{"simple": "turn > 5", "arguments": "call.arguments.amount > 500 && call.arguments.note.contains('x')"}
	for _, n := range []int{5, 50} {
		for _, what := range []string{"simple", "arguments"} {
			b.Run(fmt.Sprintf("%d-rules-%s", n, what), func(b *testing.B) { benchmark(b, n, "pay", conditions[what]) })
		}
		b.Run(fmt.Sprintf("%d-rules-of-other-tools", n), func(b *testing.B) { benchmark(b, n, "other", conditions["simple"]) })
	}
}

func benchmark(b *testing.B, n int, tool, condition string) {
	var text strings.Builder
	text.WriteString("rules:\n")
	for i := range n {
		fmt.Fprintf(&text, "  - {id: r%d, gate: BeforeToolCall, tools: [%s], when: %s, block: x}\n", i, tool, quoteYAML(condition))
	}
	h := set(b, text.String()).Hooks().BeforeToolCall
	in := calling("pay", `{"amount":100,"note":"for the order","lines":[{"sku":"a","n":1},{"sku":"b","n":2}]}`)
	a, ctx := &hooks.Asker{}, b.Context()
	b.ReportAllocs()
	// Beside others on a machine the time of the clock says little.
	before := cpuTime(b)
	defer func() { b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op") }()
	for b.Loop() {
		v, _, err := hooks.Ask(ctx, a, h, hooks.Position{}, in, nil)
		if err != nil || v.Action != hooks.ActionContinue {
			b.Fatal(v.Action, err)
		}
	}
}

// cpuTime is what this process has had of the processors.
func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
