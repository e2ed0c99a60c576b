package main

import (
	"log/slog"
	"net/url"
	"os"
	"strings"
)

// lookAtModel looks at who would answer. Nobody is called, and no key told.
func (cmd doctorCmd) lookAtModel(d *diagnosis) {
	const name = "model"
	quiet := slog.New(slog.DiscardHandler)
	agent, free, err := cmd.demo(nil, quiet, quiet)
	if err == nil {
		free()
		err = cmd.fallBack(&agent)
	}
	if err != nil {
		d.fail(name, "correct the flag or the variable that it names", "%v", err)
		return
	}
	chat := modelProvider{openAIKeyVariable, openAIURLVariable, defaultOpenAIURL}
	messages := modelProvider{anthropicKeyVariable, anthropicURLVariable, defaultAnthropicURL}
	switch {
	case cmd.Script != "":
		d.ok(name, "agent %s plays the script %s", demoAgent, cmd.Script)
	case chat.given():
		chat.lookAt(d, name, agent.ModelName)
		if messages.given() {
			d.warn(name, "unset what is not meant", "%s and %s are not used: %s or %s is set too, and comes first", messages.key, messages.url, chat.key, chat.url)
		}
	case messages.given():
		messages.lookAt(d, name, agent.ModelName)
	default:
		d.warn(name, "set OPENAI_API_KEY or ANTHROPIC_API_KEY to have a model answer", "agent %s plays its built-in script: no provider is configured", demoAgent)
	}
}

// modelProvider names the variables of one.
type modelProvider struct{ key, url, standard string }

func (p modelProvider) given() bool { return os.Getenv(p.key) != "" || os.Getenv(p.url) != "" }

func (p modelProvider) lookAt(d *diagnosis, name, model string) {
	at, own := hostOf(orElse(os.Getenv(p.url), p.standard)), hostOf(p.standard)
	switch {
	case os.Getenv(p.key) != "":
		d.ok(name, "%s of %s answers, and %s is set", model, at, p.key)
	case at == own:
		d.fail(name, "set "+p.key, "%s of %s would be asked without a key", model, at)
	default:
		d.ok(name, "%s of %s answers, which is asked without a key: %s is not set", model, at, p.key)
	}
}

// hostOf is where a URL leads, without what may be secret in it.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "a URL that cannot be read" // nobody is asked with it
	}
	return strings.ToLower(u.Host)
}
