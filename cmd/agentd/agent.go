package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/seed-2ca4966b/agentd/loop"
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

	demoPrompt = "You are the demo agent of agentd. Answer briefly. Use the tools when they help; what you are asked to remember, write to your memory, and look there when you are asked what you know."
)

// modelFlags say who answers. OPENAI_API_KEY, OPENAI_BASE_URL and OPENAI_MODEL
// are read as other programs read them.
type modelFlags struct {
	Script string `env:"AGENTD_SCRIPT" placeholder:"FILE" help:"Let the demo agent play this script. Without it a model answers if OPENAI_API_KEY or OPENAI_BASE_URL is set (OPENAI_MODEL names which), and else the built-in script."`
	openAIFlags
}

// check says early what demo would: before a database is started for nothing.
func (f modelFlags) check() error {
	quiet := slog.New(slog.DiscardHandler)
	_, free, err := f.demo(nil, quiet, quiet)
	if err != nil {
		return err
	}
	free()
	return nil
}

// demo returns the demo agent and says who answers. The function frees what the
// model holds.
func (f modelFlags) demo(tools []loop.Tool, log, parts *slog.Logger) (agent loop.Agent, free func(), err error) {
	agent = loop.Agent{Name: demoAgent, Tools: tools}
	cfg, err := f.config()
	if err != nil {
		return agent, nil, err
	}
	key, url := os.Getenv(openAIKeyVariable), os.Getenv(openAIURLVariable)
	switch {
	case f.Script != "":
		script, err := scripted.Load(f.Script)
		if err != nil {
			return agent, nil, err
		}
		agent.Model, agent.ModelName = scripted.New(script, scripted.Options{}), "scripted"
		log.Info("agent demo plays a script", "script", f.Script)
		return agent, func() {}, nil
	case key != "" || url != "":
		if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return agent, nil, errors.New(openAIKeyVariable + " has characters other than visible ASCII: is a line end at its end?")
		}
		cfg.BaseURL, cfg.APIKey, cfg.Logger = orElse(url, defaultOpenAIURL), key, parts
		model, err := openai.New(cfg)
		if err != nil {
			return agent, nil, fmt.Errorf("%s: %w", openAIURLVariable, err)
		}
		agent.Model, agent.ModelName, agent.System = model, orElse(os.Getenv(openAIModelVariable), defaultOpenAIModel), demoPrompt
		log.Info("agent demo asks a model", "model", agent.ModelName)
		return agent, model.Close, nil
	}
	agent.Model, agent.ModelName = scripted.New(scripted.Demo(), scripted.Options{}), "scripted"
	log.Info("agent demo plays its built-in script: set OPENAI_API_KEY or OPENAI_BASE_URL to have a model answer")
	return agent, func() {}, nil
}
