package main

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/seed-2ca4966b/agentd/loop/model/openai"
)

func parseOpenAI(t *testing.T, args ...string) (openai.Config, error) {
	t.Helper()
	var f struct{ openAIFlags }
	parser, err := kong.New(&f)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(args); err != nil {
		t.Fatal(err)
	}
	return f.config()
}

func TestFlagsOfAProvider(t *testing.T) {
	t.Parallel()
	mistral, _ := openai.Preset("mistral")
	const minute = time.Minute
	for args, want := range map[string]openai.Config{
		"": {FirstByteTimeout: minute, IdleTimeout: minute, DataTimeout: 10 * minute},
		"--openai-first-byte-timeout=0 --openai-idle-timeout=2m --openai-data-timeout=3m": {FirstByteTimeout: -1, IdleTimeout: 2 * minute, DataTimeout: 3 * minute},
		"--openai-data-timeout=0":                         {FirstByteTimeout: minute, IdleTimeout: minute, DataTimeout: -1},
		"--openai-provider=mistral --openai-max-tokens=9": {Quirks: mistral, MaxTokens: 9, FirstByteTimeout: minute, IdleTimeout: minute, DataTimeout: 10 * minute},
		"--openai-usage=off --openai-max-tokens-field=none --openai-reasoning=always --openai-tool-name-pattern=[a-z_0-9]+ " +
			"--openai-tool-name-length=32 --openai-parallel-tool-calls=false --openai-empty-content=null": {
			Quirks: openai.Quirks{
				NoUsage: true, MaxTokensField: openai.FieldNone, Reasoning: openai.ReasoningAlways, ToolNames: openai.ToolNames{Pattern: "[a-z_0-9]+", MaxLength: 32},
				ParallelToolCalls: openai.ParallelFalse, EmptyContent: openai.ContentNull,
			},
			FirstByteTimeout: minute, IdleTimeout: minute, DataTimeout: 10 * minute,
		},
		"--openai-provider=mistral --openai-usage=on --openai-max-tokens-field=max_completion_tokens": {
			Quirks: openai.Quirks{MaxTokensField: openai.FieldMaxCompletionTokens}, FirstByteTimeout: minute, IdleTimeout: minute, DataTimeout: 10 * minute,
		},
	} {
		if got, err := parseOpenAI(t, strings.Fields(args)...); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v and error %v, want %+v", args, got, err, want)
		}
	}
}

func TestFlagsThatNoProviderHas(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{
		"--openai-provider=acme":           `--openai-provider: "acme" is none of openai, compatible, deepseek, mistral`,
		"--openai-usage=yes":               `--openai-usage: "yes" is none of on, off`,
		"--openai-max-tokens=-1":           `--openai-max-tokens: -1 is negative: give 0 or a positive number`,
		"--openai-max-tokens-field=tokens": `--openai-max-tokens-field: max tokens field: "tokens" is none of max_completion_tokens, max_tokens, none`,
		"--openai-reasoning=yes":           `--openai-reasoning: reasoning replay: "yes" is none of never, tool_calls, always`,
		"--openai-tool-name-pattern=[A-Z]": `--openai-tool-name-pattern: pattern of tool names: "[A-Z]" does not match `,
		"--openai-tool-name-length=7":      `--openai-tool-name-length: length of tool names: 7 is less than 24`,
		"--openai-parallel-tool-calls=yes": `--openai-parallel-tool-calls: parallel tool calls: "yes" is none of absent, true, false`,
		"--openai-empty-content=blank":     `--openai-empty-content: empty content: "blank" is none of absent, null, empty`,
		"--openai-first-byte-timeout=-1s":  `--openai-first-byte-timeout: -1s is negative: give 0 for no limit, or a positive one`,
		"--openai-idle-timeout=-1s":        `--openai-idle-timeout: -1s is negative: give 0 for no limit, or a positive one`,
		"--openai-data-timeout=-1s":        `--openai-data-timeout: -1s is negative: give 0 for no limit, or a positive one`,
	} {
		if _, err := parseOpenAI(t, arg); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got error %v, want %s", arg, err, want)
		}
	}
}
