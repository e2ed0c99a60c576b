package openai_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/loop/model/openai"
)

func TestNewRefusesABaseURLThatCannotWork(t *testing.T) {
	t.Parallel()
	for _, u := range []string{"", "api.example.com/v1", "ftp://api.example.com", "http://", "https://me:hunter2@api.example.com", "http://a\x7fhunter2"} {
		_, err := openai.New(openai.Config{BaseURL: u})
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: got error %v", u, err)
		}
	}
}

func TestNewRefusesWhatNoProviderTakes(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]openai.Config{
		"API key: it has characters other than visible ASCII":                                 {APIKey: key + "\n"},
		"max tokens: -1 is negative":                                                          {MaxTokens: -1},
		`max tokens field: "tokens" is none of max_completion_tokens, max_tokens, none`:       {Quirks: openai.Quirks{MaxTokensField: "tokens"}},
		`reasoning replay: "yes" is none of never, tool_calls, always`:                        {Quirks: openai.Quirks{Reasoning: "yes"}},
		`parallel tool calls: "maybe" is none of absent, true, false`:                         {Quirks: openai.Quirks{ParallelToolCalls: "maybe"}},
		`empty content: "blank" is none of absent, null, empty`:                               {Quirks: openai.Quirks{EmptyContent: "blank"}},
		"length of tool names: 23 is less than 24":                                            {Quirks: openai.Quirks{ToolNames: openai.ToolNames{MaxLength: 23}}},
		"pattern of tool names: error parsing regexp: unexpected ): `)(`":                     {Quirks: openai.Quirks{ToolNames: openai.ToolNames{Pattern: ")("}}},
		"pattern of tool names: error parsing regexp: invalid UTF-8: `\xff`":                  {Quirks: openai.Quirks{ToolNames: openai.ToolNames{Pattern: "\xff"}}},
		`pattern of tool names: "[A-Z]+" does not match t___8a5edab282, and so no name could`: {Quirks: openai.Quirks{ToolNames: openai.ToolNames{Pattern: "[A-Z]+"}}},
	} {
		cfg.BaseURL = "http://provider.invalid"
		_, err := openai.New(cfg)
		if err == nil || !strings.HasPrefix(err.Error(), "openai: "+want) || strings.Contains(err.Error(), key) {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
}

func TestAClientThatWasPassedInIsUsedAndLeftAlone(t *testing.T) {
	t.Parallel()
	f := newFake(t, playback{body: fixture(t, "finish_and_done")})
	transport := &countingTransport{}
	m := f.model(t, openai.Config{HTTPClient: &http.Client{Transport: transport}, Quirks: openai.Quirks{NoUsage: true}})
	if _, err := play(t.Context(), m, hello()); err != nil {
		t.Fatal(err)
	}
	m.Close()
	if transport.calls != 1 || transport.closed != 0 {
		t.Errorf("called %d times, closed %d times", transport.calls, transport.closed)
	}
	if sent := f.sent()[0]; strings.Contains(sent.body, "stream_options") || sent.auth != "" {
		t.Errorf("sent %+v", sent)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

func TestAClientWithoutATransportHasTheDefaultOne(t *testing.T) {
	t.Parallel()
	f := newFake(t, playback{body: fixture(t, "finish_and_done")})
	if _, err := play(t.Context(), f.model(t, openai.Config{HTTPClient: &http.Client{}}), hello()); err != nil {
		t.Fatal(err)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

type countingTransport struct{ calls, closed int }

func (c *countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	c.calls++
	return http.DefaultTransport.RoundTrip(r)
}

func (c *countingTransport) CloseIdleConnections() { c.closed++ }
