package main

import (
	"time"

	"github.com/seed-2ca4966b/agentd/loop/model/openai"
)

// openAIFlags say what is special about the provider that OPENAI_BASE_URL
// names. One that is left empty is as the provider's name says.
type openAIFlags struct {
	OpenAIProvider          string        `name:"openai-provider" default:"openai" env:"AGENTD_OPENAI_PROVIDER" placeholder:"NAME" help:"What the model's server is like: openai, compatible (most others), deepseek or mistral."`
	OpenAIUsage             string        `name:"openai-usage" env:"AGENTD_OPENAI_USAGE" placeholder:"on|off" help:"Whether to ask for token counts; some servers refuse to be asked."`
	OpenAIMaxTokens         int           `name:"openai-max-tokens" env:"AGENTD_OPENAI_MAX_TOKENS" placeholder:"N" help:"How long an answer may be; 0 leaves that to the server."`
	OpenAIMaxTokensField    string        `name:"openai-max-tokens-field" env:"AGENTD_OPENAI_MAX_TOKENS_FIELD" placeholder:"FIELD" help:"The field for it: max_completion_tokens, max_tokens or none."`
	OpenAIReasoning         string        `name:"openai-reasoning" env:"AGENTD_OPENAI_REASONING" placeholder:"WHEN" help:"Which answers go back with their reasoning: never, tool_calls (those with tool calls) or always."`
	OpenAIToolNamePattern   string        `name:"openai-tool-name-pattern" env:"AGENTD_OPENAI_TOOL_NAME_PATTERN" placeholder:"REGEXP" help:"The names of tools that the server takes; others are made to fit, and turned back."`
	OpenAIToolNameLength    int           `name:"openai-tool-name-length" env:"AGENTD_OPENAI_TOOL_NAME_LENGTH" placeholder:"N" help:"How long they may be."`
	OpenAIParallelToolCalls string        `name:"openai-parallel-tool-calls" env:"AGENTD_OPENAI_PARALLEL_TOOL_CALLS" placeholder:"BOOL" help:"Whether to ask for several calls in one answer: true, false or absent (say nothing)."`
	OpenAIEmptyContent      string        `name:"openai-empty-content" env:"AGENTD_OPENAI_EMPTY_CONTENT" placeholder:"KIND" help:"What stands for the text of an answer that has only calls: absent, null or empty."`
	OpenAIFirstByteTimeout  time.Duration `name:"openai-first-byte-timeout" default:"60s" env:"AGENTD_OPENAI_FIRST_BYTE_TIMEOUT" placeholder:"DURATION" help:"How long to wait for an answer to begin; 0 waits for ever."`
	OpenAIIdleTimeout       time.Duration `name:"openai-idle-timeout" default:"60s" env:"AGENTD_OPENAI_IDLE_TIMEOUT" placeholder:"DURATION" help:"How long an answer may pause; keep-alives end a pause. 0 waits for ever."`
	OpenAIDataTimeout       time.Duration `name:"openai-data-timeout" default:"10m" env:"AGENTD_OPENAI_DATA_TIMEOUT" placeholder:"DURATION" help:"How long no data may come, keep-alives or not; 0 waits for ever."`
}

// config is all of the model's config but who and where it is.
func (f openAIFlags) config() (cfg openai.Config, err error) {
	if cfg.Quirks, err = f.quirks(); err != nil {
		return cfg, err
	}
	if cfg.MaxTokens = f.OpenAIMaxTokens; cfg.MaxTokens < 0 {
		return cfg, badFlag("--openai-max-tokens", "%d is negative: give 0 or a positive number", cfg.MaxTokens)
	}
	for _, limit := range []struct {
		flag string
		set  *time.Duration
		to   time.Duration
	}{
		{"--openai-first-byte-timeout", &cfg.FirstByteTimeout, f.OpenAIFirstByteTimeout},
		{"--openai-idle-timeout", &cfg.IdleTimeout, f.OpenAIIdleTimeout},
		{"--openai-data-timeout", &cfg.DataTimeout, f.OpenAIDataTimeout},
	} {
		switch {
		case limit.to < 0:
			return cfg, badFlag(limit.flag, "%s is negative: give 0 for no limit, or a positive one", limit.to)
		case limit.to == 0:
			*limit.set = -1 // 0 would be the default
		default:
			*limit.set = limit.to
		}
	}
	return cfg, nil
}

func (f openAIFlags) quirks() (openai.Quirks, error) {
	q, ok := openai.Preset(f.OpenAIProvider)
	if !ok {
		return q, badFlag("--openai-provider", "%q is none of openai, compatible, deepseek, mistral", f.OpenAIProvider)
	}
	switch f.OpenAIUsage {
	case "":
	case "on", "off":
		q.NoUsage = f.OpenAIUsage == "off"
	default:
		return q, badFlag("--openai-usage", "%q is none of on, off", f.OpenAIUsage)
	}
	for _, quirk := range []struct {
		flag  string
		given bool
		set   func()
	}{
		{"--openai-max-tokens-field", f.OpenAIMaxTokensField != "", func() { q.MaxTokensField = openai.MaxTokensField(f.OpenAIMaxTokensField) }},
		{"--openai-reasoning", f.OpenAIReasoning != "", func() { q.Reasoning = openai.ReasoningReplay(f.OpenAIReasoning) }},
		{"--openai-tool-name-pattern", f.OpenAIToolNamePattern != "", func() { q.ToolNames.Pattern = f.OpenAIToolNamePattern }},
		{"--openai-tool-name-length", f.OpenAIToolNameLength != 0, func() { q.ToolNames.MaxLength = f.OpenAIToolNameLength }},
		{"--openai-parallel-tool-calls", f.OpenAIParallelToolCalls != "", func() { q.ParallelToolCalls = openai.ParallelToolCalls(f.OpenAIParallelToolCalls) }},
		{"--openai-empty-content", f.OpenAIEmptyContent != "", func() { q.EmptyContent = openai.EmptyContent(f.OpenAIEmptyContent) }},
	} {
		if !quirk.given {
			continue
		}
		quirk.set()
		if err := q.Check(); err != nil {
			return q, badFlag(quirk.flag, "%v", err)
		}
	}
	return q, nil
}
