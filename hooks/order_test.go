package hooks_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
)

func permutations(of []string) [][]string {
	if len(of) == 0 {
		return [][]string{nil}
	}
	var out [][]string
	for i := range of {
		rest := append(append([]string{}, of[:i]...), of[i+1:]...)
		for _, tail := range permutations(rest) {
			out = append(out, append([]string{of[i]}, tail...))
		}
	}
	return out
}

// TestEveryOrderOfRewriteSilenceAskAndDeny: M rewrites the zone, N says
// nothing, A asks for approval, D denies UTC. A guard that validates denies in
// every order. One that is registered among those that rewrite judges what is
// there by its turn: the order is what the host wrote.
func TestEveryOrderOfRewriteSilenceAskAndDeny(t *testing.T) {
	t.Parallel()
	hook := map[string]callHook{
		"M": rewrites("UTC"),
		"N": continues(),
		"A": says(callResult{Action: hooks.ActionAsk}),
		"D": func(_ context.Context, in call) (callResult, error) {
			if in.Call.Arguments == "UTC" {
				return callResult{Action: hooks.ActionBlock, Reason: hooks.Reason{Code: "utc"}}, nil
			}
			return callResult{Action: hooks.ActionContinue}, nil
		},
	}
	orders := permutations([]string{"M", "N", "A", "D"})
	if len(orders) != 24 {
		t.Fatalf("%d orders", len(orders))
	}
	for _, guard := range []hooks.Phase{hooks.PhaseMutate, hooks.PhaseValidate} {
		for _, order := range orders {
			name := strings.Join(order, "")
			want := hooks.ActionAsk
			if guard == hooks.PhaseValidate || strings.Index(name, "D") > strings.Index(name, "M") {
				want = hooks.ActionBlock
			}
			var first string
			for range 5 {
				var chain []hooks.BeforeToolCallFunc
				for _, id := range order {
					var opts []hooks.Option
					if id == "D" {
						opts = append(opts, hooks.InPhase(guard))
					}
					chain = append(chain, hooks.Named(id, "1", hook[id], opts...))
				}
				v, ds := ask(t, hooks.Compose(chain...), zone("Europe/Paris"))
				if v.Action != want {
					t.Errorf("%s with the guard in phase %s: %s; want %s", name, guard, v.Action, want)
				}
				if v.Value.Call.Arguments != "UTC" {
					t.Errorf("%s with the guard in phase %s: goes on with zone %s", name, guard, v.Value.Call.Arguments)
				}
				result := fmt.Sprint(v, told(ds))
				for _, d := range ds {
					result += fmt.Sprintf("%s %x %x;", d.ID, d.InputSHA256, d.OutputSHA256)
					if changed := d.InputSHA256 != d.OutputSHA256; changed != (d.HookID == "M") {
						t.Errorf("%s: the row of %s says changed=%v", name, d.HookID, changed)
					}
				}
				if first == "" {
					first = result
				}
				if result != first {
					t.Errorf("%s: not the same twice\n%s\n%s", name, first, result)
				}
			}
		}
	}
}
