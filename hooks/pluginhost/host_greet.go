package pluginhost

import (
	"fmt"
	"path"

	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

// check looks at what a plugin says of itself. What this host does not know or cannot
// do is refused: a guard that is not asked guards nothing.
func check(m Manifest, a *pluginv1.BootstrapResponse) error {
	switch {
	case a.GetId() != m.ID:
		return fmt.Errorf("it says that it is %q, and its manifest that it is %s", wire.Shorten(a.GetId(), maxName), m.ID)
	case a.GetVersion() != m.Version:
		return fmt.Errorf("it says that its version is %q, and its manifest that it is %q", wire.Shorten(a.GetVersion(), maxName), m.Version)
	}
	gates := map[pluginv1.Gate]bool{}
	for _, s := range a.GetSubscriptions() {
		g := s.GetGate()
		if wire.GateOf(g) == "" {
			return fmt.Errorf("it wants to be asked at gate %d, which this agentd does not have", g)
		}
		if gates[g] {
			return fmt.Errorf("it wants to be asked at %s twice", wire.GateOf(g))
		}
		gates[g] = true
		if err := checkSubscription(s); err != nil {
			return fmt.Errorf("at %s: %w", wire.GateOf(g), err)
		}
	}
	told := map[pluginv1.NotificationType]bool{}
	for _, n := range a.GetNotifications() {
		if _, known := pluginv1.NotificationType_name[int32(n)]; !known || n == 0 {
			return fmt.Errorf("it wants to be told of %d, which this agentd does not tell of", n)
		}
		if told[n] {
			return fmt.Errorf("it wants to be told of %s twice", n)
		}
		told[n] = true
	}
	_, err := compileRules(m.ID, a.GetStreamRules())
	return err
}

const (
	// maxName is how much of a name is repeated, in bytes.
	maxName = 64
	// maxGlobs is how many a list of a subscription or a rule may have.
	maxGlobs = 1000
)

func checkSubscription(s *pluginv1.Subscription) error {
	switch s.GetPhase() {
	case pluginv1.Phase_PHASE_UNSPECIFIED, pluginv1.Phase_PHASE_MUTATE, pluginv1.Phase_PHASE_VALIDATE:
	default:
		return fmt.Errorf("there is no phase %d", s.GetPhase())
	}
	return checkGlobs(s.GetTools(), s.GetAgents(), s.GetTenants())
}

// checkGlobs looks at the lists of a subscription or a rule.
func checkGlobs(lists ...[]string) error {
	for _, globs := range lists {
		if len(globs) > maxGlobs {
			return fmt.Errorf("a list has more than %d globs", maxGlobs)
		}
		for _, g := range globs {
			if _, err := path.Match(g, ""); err != nil || g == "" {
				return fmt.Errorf("%q is no glob, such as memory_*", wire.Shorten(g, maxName))
			}
		}
	}
	return nil
}
