package observed_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/observe"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/loop/model/observed"
	"github.com/seed-2ca4966b/agentd/loop/model/openai"
)

// secret is in every place of a request that can hold a text.
const secret = "Qx7vK9zWm4"

// scan looks for any four bytes of the secret in all that plugins and reporters were
// ever told, however deep.
func scan(t *testing.T, told []any) {
	t.Helper()
	if len(told) == 0 {
		t.Error("nothing was told, so there was nothing to look at")
	}
	for _, p := range told {
		whole := fmt.Sprintf("%#v %s", p, texts(reflect.ValueOf(p)))
		for i := range len(secret) - 3 {
			if strings.Contains(whole, secret[i:i+4]) {
				t.Errorf("%q of the secret is in %s", secret[i:i+4], whole)
				break
			}
		}
	}
}

// texts are all texts in v.
func texts(v reflect.Value) (out []string) {
	switch v.Kind() {
	case reflect.String:
		return []string{v.String()}
	case reflect.Struct:
		for i := range v.NumField() {
			out = append(out, texts(v.Field(i))...)
		}
	case reflect.Map, reflect.Slice, reflect.Array, reflect.Pointer, reflect.Interface, reflect.Func, reflect.Chan:
		return []string{"a " + v.Kind().String() + " with " + secret} // there may be none
	default:
	}
	return out
}

// TestTheScannerFinds what it is to look for.
func TestTheScannerFinds(t *testing.T) {
	t.Parallel()
	type inner struct{ Text string }
	for _, p := range []any{inner{"of " + secret}, struct{ In inner }{inner{secret}}, struct{ P *int }{}, observe.Request{Method: secret}} {
		if !strings.Contains(strings.Join(texts(reflect.ValueOf(p)), " "), secret) {
			t.Errorf("nothing in %+v", p)
		}
	}
}

// leaking is a model call with the secret in every field.
func leaking() loop.ModelRequest {
	return loop.ModelRequest{
		Model: secret, System: secret, Messages: []hooks.Message{{Role: hooks.RoleUser, Parts: []hooks.Part{{Type: hooks.PartText, Text: secret}}}},
		Tools: []loop.ToolSpec{{Name: secret, Description: secret, Schema: []byte(`{"title":"` + secret + `"}`)}}, SessionID: secret, RunID: secret,
	}
}

// talking fails, and says everything that it knows when it does.
type talking struct{ *keeping }

func (p talking) AfterEvent(e observe.Event) error {
	_ = p.keep(e)
	switch e.Number {
	case 3:
		panic(secret)
	default:
		return nil
	}
}

func (p talking) OnError(f observe.Failure) error {
	_ = p.keep(f)
	return errors.New(secret)
}

// TestNoSecretReachesAPlugin whatever a model yields, in every field of every chunk
// and error.
func TestNoSecretReachesAPlugin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		chunk := func(kind stream.Kind, lane stream.Lane) stream.Chunk {
			return stream.Chunk{
				Kind: kind, Lane: lane, BlockID: secret, Text: secret, Call: stream.CallStart{ProviderID: secret, Name: secret},
				Finish: stream.Finish{Reason: secret, Raw: secret, Usage: stream.Usage{InputTokens: -7}},
			}
		}
		var chunks []stream.Chunk
		for kind := range stream.Kind(6) {
			for _, lane := range []stream.Lane{stream.LaneText, stream.LaneReasoning, stream.LaneToolArguments, secret} {
				chunks = append(chunks, chunk(kind, lane))
			}
		}
		ctx := context.WithValue(t.Context(), secretKey{}, secret)
		for _, err := range []error{
			nil, errors.New(secret), &loop.ModelError{Code: secret, Message: secret, Err: errors.New(secret)},
			&loop.ModelError{Status: 418, Code: secret, Message: secret}, fmt.Errorf("%s: %w", secret, context.Canceled),
		} {
			k := &keeping{}
			reports := func(r observe.Report) { _ = k.keep(r) }
			r := registry(t, reports, k, talking{k}, failing{})
			inner := &looptest.Provider{
				Plays: plays(err, chunks),
				Begins: func(loop.ModelRequest) loop.ProviderResponse {
					return loop.ProviderResponse{Status: 200, Headers: []hooks.Header{{Name: secret, Value: secret}}}
				},
			}
			for _, m := range []loop.Model{observed.Wrap(inner.Plays, r), observed.Wrap(inner, r)} {
				_, _ = read(m.Stream(ctx, leaking()), all)
			}
			p := loop.ProviderRequest{Headers: []hooks.Header{{Name: secret, Value: secret}}, Body: secret}
			rejects := func(context.Context, loop.ProviderResponse) error { return errors.New(secret) }
			_, _ = read(observed.Wrap(inner, r).(loop.ProviderModel).Send(ctx, leaking(), p, rejects), all)
			panics := func(_ context.Context, _ loop.ModelRequest, yield func(stream.Chunk, error) bool) {
				yield(chunks[0], nil)
				panic(secret)
			}
			_, _ = read(observed.Wrap(looptest.Model(panics), r).Stream(ctx, leaking()), all)
			scan(t, k.take())
		}
	})
}

type secretKey struct{}

// TestNoSecretOfARealProviderReachesAPlugin: the same with an adapter, over HTTP.
func TestNoSecretOfARealProviderReachesAPlugin(t *testing.T) {
	t.Parallel()
	good := `data: {"id":"` + secret + `","model":"` + secret + `","choices":[{"delta":{"content":"` + secret + `","reasoning_content":"` + secret + `"}}]}

data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"` + secret + `","function":{"name":"` + secret + `","arguments":"{\"a\":\"` + secret + `\"}"}}]}}]}

data: {"choices":[{"delta":{},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":7,"completion_tokens":9}}

data: [DONE]

`
	for name, tt := range map[string]struct {
		status int
		body   string
		want   string
	}{
		"Good":      {200, good, "complete tool_calls, 200 2xx"},
		"Refusal":   {401, `{"error":{"message":"` + secret + `","type":"` + secret + `","code":"` + secret + `"}}`, "failed auth, 401 4xx"},
		"InTheBody": {200, `data: {"error":{"message":"` + secret + `","code":"` + secret + `"}}` + "\n\n", "failed stream, 200 2xx"},
		"Nonsense":  {200, "data: {" + secret + "\n\n", "failed stream, 200 2xx"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				w.Header().Set("X-"+secret, secret)
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			}))
			defer server.Close()
			inner, err := openai.New(openai.Config{BaseURL: server.URL + "/" + secret, APIKey: secret, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			defer inner.Close()
			k, others := &keeping{}, &keeping{}
			m := observed.Wrap(inner, registry(t, func(r observe.Report) { _ = others.keep(r) }, k, talking{others}))
			_, _ = read(m.Stream(t.Context(), leaking()), all)
			told := k.take()
			scan(t, append(others.take(), told...))
			if got := ending(t, told); !strings.HasPrefix(got, tt.want) {
				t.Errorf("told %s", got)
			}
		})
	}
}
