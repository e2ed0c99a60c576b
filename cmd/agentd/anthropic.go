package main

import "github.com/seed-2ca4966b/agentd/loop/model/anthropic"

// anthropicFlags are for a model behind ANTHROPIC_BASE_URL.
type anthropicFlags struct {
	AnthropicMaxTokens int `name:"anthropic-max-tokens" default:"4096" env:"AGENTD_ANTHROPIC_MAX_TOKENS" placeholder:"N" help:"How long an answer of a model that ANTHROPIC_API_KEY or ANTHROPIC_BASE_URL chooses may be."`
}

// config is all of the model's config but who and where it is.
func (f anthropicFlags) config() (anthropic.Config, error) {
	if f.AnthropicMaxTokens < 1 {
		return anthropic.Config{}, badFlag("--anthropic-max-tokens", "%d is not positive: the API wants a limit", f.AnthropicMaxTokens)
	}
	return anthropic.Config{MaxTokens: f.AnthropicMaxTokens}, nil
}
