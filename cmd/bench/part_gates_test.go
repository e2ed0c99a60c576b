package main

import (
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
)

func TestEachGateAsksWhatIsMeasuredThere(t *testing.T) {
	t.Parallel()
	b := &bench{sizes: smokeSizes()}
	r, err := startReceiver(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	seen := map[hooks.Gate]bool{}
	for _, g := range gateCases {
		seen[g.gate] = true
		kinds, free, err := b.kinds(g, r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(free)
		for _, k := range kinds {
			if err := g.ask(t.Context(), &hooks.Asker{}, k.hooks); err != nil {
				t.Errorf("%s, %s: %v", g.gate, k.name, err)
			}
			for _, r := range k.hooks.Set().Hooks {
				if r.Gate != g.gate {
					t.Errorf("%s, %s: a hook is at %s", g.gate, k.name, r.Gate)
				}
			}
		}
		g.when = "true"
		refusing, err := g.rules(1)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.ask(t.Context(), &hooks.Asker{}, refusing); err == nil || !strings.Contains(err.Error(), "no zebras") {
			t.Errorf("%s does not ask: %v", g.gate, err)
		}
		g.when = "no condition"
		if _, err := g.rules(1); err == nil {
			t.Errorf("%s: a rule that is none", g.gate)
		}
	}
	if len(seen) != 9 {
		t.Errorf("%d gates are measured", len(seen))
	}
}
