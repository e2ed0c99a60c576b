package observed_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/seed-2ca4966b/agentd/hooks/observe"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

const (
	nothing = "{Input:0 Output:0 Total:0 Estimated:false}"
	some    = "{Input:3 Output:5 Total:8 Estimated:false}"
)

func TestHowARequestEndsIsToldOnce(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancel(t.Context())
	end()
	late, stop := context.WithTimeout(t.Context(), 0)
	t.Cleanup(stop)
	text, finish := looptest.Text("abc"), looptest.Finish
	failed := func(code string, status int) looptest.Model {
		return plays(&loop.ModelError{Status: status, Code: code, Usage: stream.Usage{InputTokens: 3, OutputTokens: 5}})
	}
	for name, tt := range map[string]struct {
		inner looptest.Model
		ctx   context.Context //nolint:containedctx // of the case
		limit int
		want  string
	}{
		"Stop":          {inner: plays(nil, text, finish(stream.FinishStop)), want: "complete stop, 0 none, 2 events, " + some},
		"Length":        {inner: plays(nil, finish(stream.FinishLength)), want: "complete length, 0 none, 1 events, " + some},
		"ToolCalls":     {inner: plays(nil, finish(stream.FinishToolCalls)), want: "complete tool_calls, 0 none, 1 events, " + some},
		"ContentFilter": {inner: plays(nil, finish(stream.FinishContentFilter)), want: "complete content_filter, 0 none, 1 events, " + some},
		"Unknown":       {inner: plays(nil, finish(stream.FinishUnknown)), want: "complete unknown, 0 none, 1 events, " + some},
		"ANewReason":    {inner: plays(nil, finish("secret")), want: "complete unknown, 0 none, 1 events, " + some},
		"StopsAtFinish": {inner: plays(nil, text, finish(stream.FinishStop)), limit: 2, want: "complete stop, 0 none, 2 events, " + some},
		"Impossible": {
			inner: plays(nil, stream.Chunk{Kind: stream.KindFinish, Finish: stream.Finish{Usage: stream.Usage{InputTokens: -1, OutputTokens: math.MaxInt64}}}),
			want:  "complete unknown, 0 none, 1 events, {Input:0 Output:9007199254740992 Total:9007199254740992 Estimated:true}",
		},
		"Incomplete":       {inner: plays(nil, text), want: "failed incomplete, 0 none, 1 events, " + nothing},
		"Stopped":          {inner: plays(nil, text, text), limit: 1, want: "failed stopped, 0 none, 1 events, " + nothing},
		"Cancelled":        {inner: plays(context.Canceled, text), ctx: ended, want: "failed cancelled, 0 none, 1 events, " + nothing},
		"CancelledSilent":  {inner: plays(nil, text), ctx: ended, want: "failed cancelled, 0 none, 1 events, " + nothing},
		"CancelledStopped": {inner: plays(nil, text), ctx: ended, limit: 1, want: "failed cancelled, 0 none, 1 events, " + nothing},
		"CancelledWrapped": {inner: plays(fmt.Errorf("of it: %w", context.Canceled)), want: "failed cancelled, 0 none, 0 events, " + nothing},
		"Deadline":         {inner: plays(context.DeadlineExceeded), want: "failed timeout, 0 none, 0 events, " + nothing},
		"DeadlineOfTheRun": {inner: plays(context.DeadlineExceeded), ctx: late, want: "failed cancelled, 0 none, 0 events, " + nothing},
		"FirstByte":        {inner: failed("first_byte_timeout", 0), want: "failed timeout, 0 none, 0 events, " + some},
		"Idle":             {inner: failed("idle_timeout", 200), want: "failed timeout, 200 2xx, 0 events, " + some},
		"NoData":           {inner: failed("data_timeout", 200), want: "failed timeout, 200 2xx, 0 events, " + some},
		"Network":          {inner: failed("network_error", 0), want: "failed network, 0 none, 0 events, " + some},
		"ClientPanic":      {inner: failed("client_panic", 0), want: "failed panic, 0 none, 0 events, " + some},
		"NotWritten":       {inner: failed("invalid_request", 0), want: "failed invalid_request, 0 none, 0 events, " + some},
		"Malformed":        {inner: failed("malformed_stream", 200), want: "failed stream, 200 2xx, 0 events, " + some},
		"AnotherCode":      {inner: failed("secret", 0), want: "failed other, 0 none, 0 events, " + some},
		"BadRequest":       {inner: failed("idle_timeout", 400), want: "failed invalid_request, 400 4xx, 0 events, " + some},
		"NoKey":            {inner: failed("", 401), want: "failed auth, 401 4xx, 0 events, " + some},
		"Forbidden":        {inner: failed("", 403), want: "failed auth, 403 4xx, 0 events, " + some},
		"TimedOut":         {inner: failed("", 408), want: "failed timeout, 408 4xx, 0 events, " + some},
		"TooMany":          {inner: failed("", 429), want: "failed rate_limit, 429 4xx, 0 events, " + some},
		"Down":             {inner: failed("", 503), want: "failed server, 503 5xx, 0 events, " + some},
		"GatewayTimeout":   {inner: failed("", 504), want: "failed timeout, 504 5xx, 0 events, " + some},
		"NoStatus":         {inner: failed("", 1234), want: "failed other, 0 other, 0 events, " + some},
		"Redirect":         {inner: failed("", 302), want: "failed other, 302 3xx, 0 events, " + some},
		"AForeignError":    {inner: plays(errors.New("secret")), want: "failed other, 0 none, 0 events, " + nothing},
		"AHostileError":    {inner: plays(hostile{}), want: "failed other, 0 none, 0 events, " + nothing},
		"ErrorAfterFinish": {inner: plays(errors.New("secret"), finish(stream.FinishStop)), want: "failed other, 0 none, 1 events, " + some},
		"Panic": {
			inner: func(_ context.Context, _ loop.ModelRequest, yield func(stream.Chunk, error) bool) {
				yield(text, nil)
				panic("secret")
			},
			want: "failed panic, 0 none, 1 events, " + nothing,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m, k := watched(t, tt.inner)
				ctx := t.Context()
				if tt.ctx != nil {
					ctx = tt.ctx
				}
				_, _ = read(m.Stream(ctx, loop.ModelRequest{}), cmp.Or(tt.limit, all))
				if got := ending(t, k.take()); got != tt.want {
					t.Errorf("told %s, want %s", got, tt.want)
				}
			})
		})
	}
}

// hostile is an error that nobody can ask anything.
type hostile struct{}

func (hostile) Error() string   { panic("no text") }
func (hostile) Is(error) bool   { panic("nothing is it") }
func (hostile) As(any) bool     { panic("it is nothing") }
func (hostile) Unwrap() []error { panic("nothing is in it") }

// TestAModelThatPanicsBeforeItAnswersIsToldOf: Stream itself may panic, and not only
// its sequence.
func TestAModelThatPanicsBeforeItAnswersIsToldOf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, k := watched(t, nothingAtAll{})
		if _, panicked := read(m.Stream(t.Context(), loop.ModelRequest{}), all); panicked == nil {
			t.Error("the panic is gone")
		}
		if got := ending(t, k.take()); !strings.HasPrefix(got, "failed panic") {
			t.Errorf("told %s", got)
		}
	})
}

type nothingAtAll struct{ loop.Model }

func TestAProviderTellsItsStatus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		status := 200
		inner := &looptest.Provider{
			Plays:  plays(nil, looptest.Finish(stream.FinishStop)),
			Begins: func(loop.ModelRequest) loop.ProviderResponse { return loop.ProviderResponse{Status: status} },
		}
		m, k := watched(t, inner)
		for _, tt := range []struct {
			status int
			want   string
		}{{200, "complete stop, 200 2xx, 1 events, " + some}, {500, "failed server, 500 5xx, 0 events, " + nothing}} {
			status = tt.status
			_, _ = read(m.Stream(t.Context(), loop.ModelRequest{}), all)
			told := k.take()
			if got := ending(t, told); got != tt.want {
				t.Errorf("told %s, want %s", got, tt.want)
			}
			if r := told[0].(observe.Request); r.Method != observe.MethodWrite || int(r.BodyBytes) != len(looptest.Written(loop.ModelRequest{}).Body) {
				t.Errorf("told %+v", r)
			}
		}
	})
}

func TestWhatAChunkIsIsToldByTypeAndLength(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, k := watched(t, plays(nil, looptest.Reasoning("hm"), looptest.Text("abc"), looptest.ToolCall("c", "look", `{"a":1}`),
			stream.Chunk{Kind: stream.KindToolCall, BlockID: "d", Text: `{}`}, stream.Chunk{Kind: stream.KindEnd, Lane: stream.LaneText},
			stream.Chunk{Kind: 200, Text: "later"}, stream.Chunk{Kind: stream.KindDelta, Lane: "citation", Text: "later"},
			looptest.Finish(stream.FinishStop)))
		_, _ = read(m.Stream(t.Context(), loop.ModelRequest{}), all)
		var got []string
		for _, p := range k.take() {
			if e, ok := p.(observe.Event); ok {
				got = append(got, fmt.Sprintf("%s %d", e.Type, e.Bytes))
			}
		}
		want := []string{
			"reasoning 2", "text 3", "tool_call 0", "tool_arguments 3", "tool_arguments 4", "tool_call 2", "other 0", "other 5", "other 5", "finish 0",
		}
		if !slices.Equal(got, want) {
			t.Errorf("told %q", got)
		}
	})
}

// TestNothingIsToldOnceNobodyReads: a model that goes on all the same tells nobody.
func TestNothingIsToldOnceNobodyReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, k := watched(t, looptest.Model(func(_ context.Context, _ loop.ModelRequest, yield func(stream.Chunk, error) bool) {
			for range 3 {
				yield(looptest.Text("a"), nil)
			}
			yield(looptest.Finish(stream.FinishStop), nil)
			yield(stream.Chunk{}, errors.New("late"))
		}))
		read := 0
		m.Stream(t.Context(), loop.ModelRequest{})(func(stream.Chunk, error) bool { read++; return read < 2 })
		if got, want := ending(t, k.take()), "failed stopped, 0 none, 2 events, "+nothing; got != want {
			t.Errorf("told %s", got)
		}
	})
}
