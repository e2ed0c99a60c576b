package webhook

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// The defaults of [Config].
const (
	DefaultConcurrency     = 16
	DefaultQueue           = 64
	DefaultBreakerFailures = 5
	DefaultBreakerOpen     = 10 * time.Second
)

// Config says what is asked, where, and how. [New] copies what it needs.
type Config struct {
	// ID names the hook in the ledger. It is required.
	ID string
	// URL is where questions are posted. It must be https; http only reaches
	// addresses that Allow has. It has no user, password, query or fragment: it
	// is stored in the clear, in the hook set.
	URL string
	// Gates are those where the endpoint is asked, at least one.
	Gates []hooks.Gate
	// Secrets sign the questions, each with a signature of its own, so that one
	// can be replaced while receivers know the other. One at least.
	Secrets []Secret
	// Allow are networks that are reached although they are not public, such as
	// 10.1.0.0/16. Nothing else of the kind is.
	Allow []netip.Prefix
	// CA has the certificates that the endpoint's must come from, in PEM; nil
	// takes those of the system.
	CA []byte
	// Concurrency is how many questions are under way at once, and Queue how
	// many more wait for that. What is beyond fails at once. 0 is the default; a
	// negative Queue lets nothing wait.
	Concurrency int
	Queue       int
	// Breaker stops asking an endpoint that does not answer.
	Breaker Breaker
	// Options are those of [hooks.Named], such as the phase, the time limit and
	// what happens on failure. A webhook is never [hooks.Pure].
	Options []hooks.Option

	// Resolver looks up the URL's host; nil is the system's.
	Resolver *net.Resolver
	// Now is the clock; nil is [time.Now].
	Now func() time.Time
}

// Breaker is when an endpoint is not asked any more, in this process.
type Breaker struct {
	// Failures in a row open it: the hook fails without asking. 0 is the default,
	// and less never opens it.
	Failures int
	// Open is how long it stays so. Then one question is let through, whose
	// answer closes it and whose failure keeps it open for as long again. 0 and
	// less are the default.
	Open time.Duration
}

// ConfigError is a part of a [Config] that is wrong. It shows no secret.
type ConfigError struct {
	// Field is the part: id, gates, secret, url, allow, ca, concurrency or
	// options, or such a name with the index of an element, as allow[1].
	Field string
	// Problem is what is wrong, in words for people.
	Problem string
}

// Error names the part and the problem.
func (e *ConfigError) Error() string { return "webhook: " + e.Field + ": " + e.Problem }

func wrong(field, format string, args ...any) error {
	return &ConfigError{Field: field, Problem: fmt.Sprintf(format, args...)}
}

// settings are a Config that was found right.
type settings struct {
	Config
	url   *url.URL
	roots *x509.CertPool
}

var gateNames = []hooks.Gate{
	hooks.GateBeforeInput, hooks.GateBeforeRunStart, hooks.GateTransformContext,
	hooks.GateBeforeProviderHeaders, hooks.GateBeforeProviderRequest, hooks.GateAfterProviderResponse,
	hooks.GateBeforeToolCall, hooks.GateBeforeExecute, hooks.GateAfterToolCall,
}

// check fills in the defaults. Its errors show no secret, and nothing of a URL
// that may hold one.
func (c Config) check() (*settings, error) {
	s := &settings{Config: c}
	if c.ID == "" {
		return nil, wrong("id", "a webhook needs one")
	}
	if len(c.Gates) == 0 {
		return nil, wrong("gates", "name at least one")
	}
	var names []string
	for _, g := range gateNames {
		names = append(names, string(g))
	}
	for i, g := range c.Gates {
		if !slices.Contains(gateNames, g) {
			return nil, wrong(fmt.Sprintf("gates[%d]", i), "%q is no gate; expected one of %s", g, strings.Join(names, ", "))
		}
		if slices.Contains(c.Gates[:i], g) {
			return nil, wrong(fmt.Sprintf("gates[%d]", i), "%s stands twice", g)
		}
	}
	if len(c.Secrets) == 0 {
		return nil, wrong("secret", "a webhook needs one")
	}
	if slices.ContainsFunc(c.Secrets, func(s Secret) bool { return s.key == nil }) {
		return nil, wrong("secret", "it is empty")
	}
	if err := s.checkNetwork(); err != nil {
		return nil, err
	}
	if c.Concurrency < 0 {
		return nil, wrong("concurrency", "%d is negative", c.Concurrency)
	}
	s.Concurrency = orDefault(c.Concurrency, DefaultConcurrency)
	s.Queue = max(orDefault(c.Queue, DefaultQueue), 0)
	s.Breaker.Failures = max(orDefault(c.Breaker.Failures, DefaultBreakerFailures), 0)
	s.Breaker.Open = orDefault(max(c.Breaker.Open, 0), DefaultBreakerOpen)
	if s.Now == nil {
		s.Now = time.Now
	}
	var r hooks.Registration
	for _, o := range c.Options {
		o(&r)
	}
	if r.Pure {
		return nil, wrong("options", "a webhook asks somebody, so it is not pure")
	}
	return s, nil
}

func orDefault[T int | time.Duration](v, byDefault T) T {
	if v == 0 {
		return byDefault
	}
	return v
}

func (s *settings) checkNetwork() error {
	for i, p := range s.Allow {
		if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() {
			return wrong(fmt.Sprintf("allow[%d]", i), "%s is no network, such as 10.1.0.0/16", p)
		}
	}
	s.Allow = slices.Clone(s.Allow)
	if s.CA != nil {
		s.roots = x509.NewCertPool()
		if !s.roots.AppendCertsFromPEM(s.CA) {
			return wrong("ca", "there is no certificate in it")
		}
	}
	u, err := parseURL(s.URL)
	if err != nil {
		return wrong("url", "%v", err)
	}
	s.url = u
	guard := guard{allow: s.Allow, onlyAllowed: u.Scheme == "http"}
	if guard.onlyAllowed && len(s.Allow) == 0 {
		return wrong("url", "must be https; http only reaches addresses in networks that allow names")
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil {
		if err := guard.check(ip); err != nil {
			return wrong("url", "%v", err)
		}
	}
	return nil
}

func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		// The parser's error repeats the whole text, and with it any password.
		return nil, errors.New("not a URL")
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, errors.New("must begin with https:// and name a host")
	case u.User != nil:
		return nil, errors.New("must not hold a user or password: questions are signed")
	case strings.Contains(text, "#"):
		return nil, errors.New("must not have a fragment")
	case u.RawQuery != "" || u.ForceQuery:
		return nil, errors.New("must not have a query: the URL is stored in the clear")
	case u.Port() != "":
		if port, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || port == 0 {
			return nil, errors.New("must not have a port that there is not")
		}
	}
	return u, nil
}

// describe is the config as it stands in the hook set, without secrets.
func (s *settings) describe() string {
	type breaker struct {
		Failures int    `json:"failures"`
		Open     string `json:"open,omitempty"`
	}
	d := struct {
		URL         string         `json:"url"`
		Allow       []netip.Prefix `json:"allow,omitempty"`
		CASHA256    string         `json:"ca_sha256,omitempty"`
		Concurrency int            `json:"concurrency"`
		Queue       int            `json:"queue"`
		Breaker     breaker        `json:"breaker"`
	}{URL: s.url.String(), Allow: s.Allow, Concurrency: s.Concurrency, Queue: s.Queue}
	if s.CA != nil {
		sum := sha256.Sum256(s.CA)
		d.CASHA256 = hex.EncodeToString(sum[:])
	}
	if d.Breaker.Failures = s.Breaker.Failures; s.Breaker.Failures > 0 {
		d.Breaker.Open = s.Breaker.Open.String()
	}
	return encode(d)
}
