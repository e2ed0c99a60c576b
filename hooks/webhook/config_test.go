package webhook_test

import (
	"errors"
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
		"id: a webhook needs one":            func(c *webhook.Config) { c.ID = "" },
		"name at least one":                  func(c *webhook.Config) { c.Gates = nil },
		`gates[0]: "BeforeLunch" is no gate`: func(c *webhook.Config) { c.Gates = []hooks.Gate{"BeforeLunch"} },
		"gates[1]: BeforeInput stands":       func(c *webhook.Config) { c.Gates = []hooks.Gate{"BeforeInput", "BeforeInput"} },
		"secret: a webhook needs":            func(c *webhook.Config) { c.Secrets = nil },
		"secret: it is empty":                func(c *webhook.Config) { c.Secrets = append(c.Secrets, webhook.Secret{}) },
		"allow[0]: 10.1.2.3/16 is no":        func(c *webhook.Config) { c.Allow = []netip.Prefix{netip.MustParsePrefix("10.1.2.3/16")} },
		"allow[1]: invalid Prefix is no":     func(c *webhook.Config) { c.Allow = []netip.Prefix{loopback[0], {}} },
		"allow[2]: ::ffff:10.0.0.0/104 is":   func(c *webhook.Config) { c.Allow = append(c.Allow[:2:2], netip.MustParsePrefix("::ffff:10.0.0.0/104")) },
		"ca: there is no certificate":        func(c *webhook.Config) { c.CA = []byte("x") },
		"concurrency: -1":                    func(c *webhook.Config) { c.Concurrency = -1 },
		"it is not pure":                     func(c *webhook.Config) { c.Options = append(c.Options, hooks.Pure()) },
	} {
		cfg := config(t, "https://policy.example/gate")
		change(&cfg)
		_, err := webhook.New(cfg)
		var bad *webhook.ConfigError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
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
