package main

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/webhook"
	"github.com/seed-2ca4966b/agentd/hooks/yamlfile"
)

// webhookEntry is an endpoint that decides.
type webhookEntry struct {
	URL   string       `yaml:"url,required"`
	Gates []hooks.Gate `yaml:"gates,required"`
	// SecretEnv and SecretFile name variables and files, relative to the config
	// file, that have a secret each.
	SecretEnv   []string        `yaml:"secret_env"`
	SecretFile  []string        `yaml:"secret_file"`
	Allow       []netip.Prefix  `yaml:"allow"`
	CAFile      string          `yaml:"ca_file"`
	Concurrency int             `yaml:"concurrency,positive"`
	Queue       *int            `yaml:"queue"`
	Breaker     *webhookBreaker `yaml:"breaker"`
}

type webhookBreaker struct {
	Failures *int          `yaml:"failures"`
	Open     time.Duration `yaml:"open,positive"`
}

// register never tells what a variable or a file of a secret has.
func (k *webhookEntry) register(e *hookEntry, add func(part)) {
	cfg := webhook.Config{ID: "webhook", URL: k.URL, Gates: k.Gates, Allow: k.Allow, Concurrency: k.Concurrency}
	if k.Queue != nil {
		cfg.Queue = noneIfZero(*k.Queue)
	}
	if b := k.Breaker; b != nil {
		cfg.Breaker.Open = b.Open
		if b.Failures != nil {
			cfg.Breaker.Failures = noneIfZero(*b.Failures)
		}
	}
	before := e.problems.Count()
	cfg.Secrets = k.secrets(e)
	if k.CAFile != "" {
		path := e.beside(k.CAFile)
		text, err := e.content(path)
		if err != nil {
			e.errorAt("ca_file", "%s cannot be read: %s", path, unreadable(err))
		}
		cfg.CA = text
	}
	if e.problems.Count() > before {
		return
	}
	w, err := webhook.New(cfg)
	var bad *webhook.ConfigError
	switch {
	case errors.As(err, &bad):
		field := bad.Field
		if field == "ca" {
			field = "ca_file"
		}
		e.errorAt(field, "%s: %s", field, bad.Problem)
	case err != nil:
		e.errorAt("", "%v", err)
	default:
		add(placed(w.Hooks(), e.place()))
	}
}

// noneIfZero turns a number that is given, where 0 means none, into one that is
// not taken for the default.
func noneIfZero(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

func (k *webhookEntry) secrets(e *hookEntry) (all []webhook.Secret) {
	if len(k.SecretEnv)+len(k.SecretFile) == 0 {
		e.errorAt("", "webhook has no secret; expected secret_env or secret_file, which name the variable or the file that has it")
		return nil
	}
	for _, name := range slices.Concat(k.SecretEnv, k.SecretFile) {
		// It is a mistake that is made, and the name would be told.
		if strings.HasPrefix(name, "whsec_") {
			e.errorAt("", "a secret stands in the file, which others read; secret_env and secret_file name the variable or the file that has it")
			return nil
		}
	}
	take := func(field, from, text string) {
		s, err := webhook.ParseSecret(strings.TrimSpace(text))
		if err != nil {
			e.errorAt(field, "what %s has is no secret: %v", from, err)
			return
		}
		all = append(all, s)
	}
	for _, name := range k.SecretEnv {
		text, ok := os.LookupEnv(name)
		if !ok && e.unasked {
			all = append(all, nobodysSecret())
			continue
		}
		if !ok {
			e.errorAt("secret_env", "the environment has no variable %s", name)
			continue
		}
		take("secret_env", name, text)
	}
	for _, name := range k.SecretFile {
		path := e.beside(name)
		// Not as the other files are: its digest is nobody's business.
		text, err := yamlfile.Read(path)
		if errors.Is(err, fs.ErrNotExist) && e.unasked {
			all = append(all, nobodysSecret())
			continue
		}
		if err != nil {
			e.errorAt("secret_file", "%s cannot be read: %s", path, unreadable(err))
			continue
		}
		take("secret_file", path, string(text))
	}
	return all
}

// nobodysSecret stands for one that is not there, where nothing is signed.
func nobodysSecret() webhook.Secret {
	s, err := webhook.ParseSecret("whsec_" + strings.Repeat("A", 32))
	if err != nil {
		panic(err) // it is a constant
	}
	return s
}
