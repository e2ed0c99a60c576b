package anthropic_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/seed-2ca4966b/agentd/loop/model/anthropic"
)

// FuzzStream holds that an answer does not depend on how the network cut it,
// that nothing panics, and that nothing counts as whole without message_stop.
func FuzzStream(f *testing.F) {
	for _, name := range []string{"keepalive.sse", "empty_arguments.sse", "no_stop.sse", "overloaded_mid.sse"} {
		f.Add(fixture(f, name), 40)
	}
	f.Add(begun+opening(0, `{"type":"tool_use","id":"a","name":"f","input":{"a":1}}`)+delta(0, `{"type":"input_json_delta","partial_json":"{\"a\ud83e"}`)+ending("max_tokens"), 7)
	f.Fuzz(func(t *testing.T, body string, cut int) {
		cut = min(max(cut, 0), len(body))
		told := func(r io.Reader) string {
			m := newModel(t, anthropic.Config{
				BaseURL: "http://provider.invalid", FirstByteTimeout: -1, IdleTimeout: -1, DataTimeout: -1,
				HTTPClient: through(func(*http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(r)}, nil
				}),
			})
			got, err := transcribe(m.Stream(t.Context(), hello()))
			if err != nil {
				got += "error: " + err.Error()
			}
			return got
		}
		want := told(strings.NewReader(body))
		if strings.Contains(want, "\nfinish: ") && !strings.Contains(body, "stop") && !strings.Contains(body, `\u`) {
			t.Errorf("%q is whole: %q", body, want)
		}
		for _, r := range []io.Reader{
			iotest.OneByteReader(strings.NewReader(body)), io.MultiReader(strings.NewReader(body[:cut]), strings.NewReader(body[cut:])),
		} {
			if got := told(r); got != want {
				t.Errorf("cut: %q, whole: %q", got, want)
			}
		}
	})
}
