package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/model/anthropic"
	"github.com/seed-2ca4966b/agentd/loop/model/openai"
	"github.com/seed-2ca4966b/agentd/loop/model/scripted"
)

const (
	demoAgent = "demo"

	openAIKeyVariable   = "OPENAI_API_KEY"
	openAIURLVariable   = "OPENAI_BASE_URL"
	openAIModelVariable = "OPENAI_MODEL"

	defaultOpenAIURL   = "https://api.openai.com/v1"
	defaultOpenAIModel = "gpt-4.1-mini"

	anthropicKeyVariable   = "ANTHROPIC_API_KEY"
	anthropicURLVariable   = "ANTHROPIC_BASE_URL"
	anthropicModelVariable = "ANTHROPIC_MODEL"

	defaultAnthropicURL   = "https://api.anthropic.com"
	defaultAnthropicModel = "claude-sonnet-4-5"

	demoPrompt = "You are the demo agent of agentd. Answer briefly. Use the tools when they help; what you are asked to remember, write to your memory, and look there when you are asked what you know."
)

// modelFlags say who answers. OPENAI_API_KEY, OPENAI_BASE_URL and OPENAI_MODEL
// are read as other programs read them, and so are ANTHROPIC_API_KEY,
// ANTHROPIC_BASE_URL and ANTHROPIC_MODEL.
type modelFlags struct {
	Script string `env:"AGENTD_SCRIPT" placeholder:"FILE" help:"Let the demo agent play this script. Without it a model answers if OPENAI_API_KEY or OPENAI_BASE_URL is set (OPENAI_MODEL names which), or else ANTHROPIC_API_KEY or ANTHROPIC_BASE_URL (ANTHROPIC_MODEL), and else the built-in script."`
	openAIFlags
	anthropicFlags
	fallbackFlags
}

// check says early what demo would: before a database is started for nothing.
func (f modelFlags) check() error {
	quiet := slog.New(slog.DiscardHandler)
	agent, free, err := f.demo(nil, quiet, quiet)
	if err != nil {
		return err
	}
	free()
	return f.fallBack(&agent)
}

// demo returns the demo agent and says who answers. The function frees what the
// model holds.
func (f modelFlags) demo(tools []loop.Tool, log, parts *slog.Logger) (agent loop.Agent, free func(), err error) {
	agent = loop.Agent{Name: demoAgent, Tools: tools}
	chat, err := f.openAIFlags.config()
	if err != nil {
		return agent, nil, err
	}
	messages, err := f.anthropicFlags.config()
	if err != nil {
		return agent, nil, err
	}
	chat.APIKey, chat.BaseURL = os.Getenv(openAIKeyVariable), os.Getenv(openAIURLVariable)
	messages.APIKey, messages.BaseURL = os.Getenv(anthropicKeyVariable), os.Getenv(anthropicURLVariable)
	useMessages := messages.APIKey != "" || messages.BaseURL != ""
	switch {
	case f.Script != "":
		script, err := scripted.Load(f.Script)
		if err != nil {
			return agent, nil, err
		}
		agent.Model, agent.ModelName = scripted.New(script, scripted.Options{}), "scripted"
		log.Info("agent demo plays a script", "script", f.Script)
		return agent, func() {}, nil
	case chat.APIKey != "" || chat.BaseURL != "":
		if err := checkKey(openAIKeyVariable, chat.APIKey); err != nil {
			return agent, nil, err
		}
		chat.BaseURL, chat.Logger = orElse(chat.BaseURL, defaultOpenAIURL), parts
		model, err := openai.New(chat)
		if err != nil {
			return agent, nil, fmt.Errorf("%s: %w", openAIURLVariable, err)
		}
		agent.Model, agent.ModelName, agent.System = model, orElse(os.Getenv(openAIModelVariable), defaultOpenAIModel), demoPrompt
		log.Info("agent demo asks a model", "model", agent.ModelName)
		if useMessages {
			log.Warn("ANTHROPIC_API_KEY and ANTHROPIC_BASE_URL are not used: OPENAI_API_KEY or OPENAI_BASE_URL is set too, and comes first")
		}
		return agent, model.Close, nil
	case useMessages:
		if err := checkKey(anthropicKeyVariable, messages.APIKey); err != nil {
			return agent, nil, err
		}
		messages.BaseURL, messages.Logger = orElse(messages.BaseURL, defaultAnthropicURL), parts
		model, err := anthropic.New(messages)
		if err != nil {
			return agent, nil, fmt.Errorf("%s: %w", anthropicURLVariable, err)
		}
		agent.Model, agent.ModelName, agent.System = model, orElse(os.Getenv(anthropicModelVariable), defaultAnthropicModel), demoPrompt
		log.Info("agent demo asks a model", "model", agent.ModelName)
		return agent, model.Close, nil
	}
	agent.Model, agent.ModelName = scripted.New(scripted.Demo(), scripted.Options{}), "scripted"
	log.Info("agent demo plays its built-in script: set OPENAI_API_KEY, OPENAI_BASE_URL, ANTHROPIC_API_KEY or ANTHROPIC_BASE_URL to have a model answer")
	return agent, func() {}, nil
}

// checkKey refuses a key that no header can carry.
func checkKey(variable, key string) error {
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New(variable + " has characters other than visible ASCII: is a line end at its end?")
	}
	return nil
}
