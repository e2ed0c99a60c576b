package webhook_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/webhook"
)

func TestConfigsThatAreWrong(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*webhook.Config){
		"needs an id":             func(c *webhook.Config) { c.ID = "" },
		"name at least one":       func(c *webhook.Config) { c.Gates = nil },
		`"BeforeLunch" is none`:   func(c *webhook.Config) { c.Gates = []hooks.Gate{"BeforeLunch"} },
		"BeforeInput stands":      func(c *webhook.Config) { c.Gates = []hooks.Gate{"BeforeInput", "BeforeInput"} },
		"needs a secret":          func(c *webhook.Config) { c.Secrets = nil },
		"a secret is empty":       func(c *webhook.Config) { c.Secrets = append(c.Secrets, webhook.Secret{}) },
		"entry 1 is no network":   func(c *webhook.Config) { c.Allow = []netip.Prefix{netip.MustParsePrefix("10.1.2.3/16")} },
		"entry 2 is no network":   func(c *webhook.Config) { c.Allow = []netip.Prefix{loopback[0], {}} },
		"entry 3 is no network":   func(c *webhook.Config) { c.Allow = append(c.Allow[:2:2], netip.MustParsePrefix("::ffff:10.0.0.0/104")) },
		"there is no certificate": func(c *webhook.Config) { c.CA = []byte("x") },
		"concurrency: -1":         func(c *webhook.Config) { c.Concurrency = -1 },
		"it is not pure":          func(c *webhook.Config) { c.Options = append(c.Options, hooks.Pure()) },
	} {
		cfg := config(t, "https://policy.example/gate")
		change(&cfg)
		if _, err := webhook.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

func TestZerosAreDefaultsAndLessIsNone(t *testing.T) {
	t.Parallel()
	cfg := config(t, "https://policy.example/gate")
	cfg.Allow, cfg.Queue, cfg.Breaker = nil, -1, webhook.Breaker{Failures: -1, Open: -time.Second}
	expect(t, "config", open(t, cfg).Hooks().Set().Hooks[0].Config,
		`{"url":"https://policy.example/gate","concurrency":16,"queue":0,"breaker":{"failures":0}}`)
}

func TestSecretsThatAreWrong(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS=",
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2Laaaa", "whsec_" + strings.Repeat("QUJD", 22), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n ", " whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
		"WHSEC_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
	} {
		_, err := webhook.ParseSecret(text)
		if err == nil || strings.Contains(err.Error(), "MfKQ9r8") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
