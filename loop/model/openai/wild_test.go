package openai_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/loop/model/openai"
)

// wild are streams as providers send them, and what they mean.
var wild = []struct{ name, body, want string }{
	{"Comments", ": hi\n\n:\n\n" + text("a") + ": there\n" + stop + done, "text/1: a\nfinish: stop (stop) 0/0"},
	{"BlankLines", "\n\n" + text("a") + "\n\n\n" + stop + done, "text/1: a\nfinish: stop (stop) 0/0"},
	{"EmptyData", "data:\n\n" + text("a") + "data: \n\n" + stop + done, "text/1: a\nfinish: stop (stop) 0/0"},
	{"NamedEvents", "event: message\nid: 1\n" + text("a") + "retry: 5\n\n" + stop + done, "text/1: a\nfinish: stop (stop) 0/0"},
	{"NullError", `data: {"error":null,"choices":[{"delta":{"content":"a"}}]}` + "\n\n" + stop + done, "text/1: a\nfinish: stop (stop) 0/0"},
	{"ErrorOfNothing", `data: {"error":{"code":0,"message":"","type":null},"choices":[{"delta":{"content":"a"}}]}` + "\n\n" + `data: {"error":{}}` + "\n\n" + `data: {"error":""}` + "\n\n" + stop + done, "text/1: a\nfinish: stop (stop) 0/0"},
	{"ChoicesEmptyNullAbsent", `data: {"choices":[]}` + "\n\n" + `data: {"choices":null}` + "\n\n" + `data: {"id":"x"}` + "\n\n" + text("a") + stop + done, "text/1: a\nfinish: stop (stop) 0/0"},
	{"NoRole", `data: {"choices":[{"delta":{"role":null,"content":"a"}}]}` + "\n\n" + stop, "text/1: a\nfinish: stop (stop) 0/0"},
	{"EmptyFinishReasonFirst", chunk(`{"delta":{"content":"a"},"finish_reason":""}`) + stop, "text/1: a\nfinish: stop (stop) 0/0"},
	{"NoLastBlankLine", text("a") + strings.TrimRight(stop, "\n"), "text/1: a\nfinish: stop (stop) 0/0"},
	{"OneLastLineEnd", text("a") + strings.TrimSuffix(stop, "\n"), "text/1: a\nfinish: stop (stop) 0/0"},
	{"DoneAtOnce", text("a") + stop + "data:[DONE]", "text/1: a\nfinish: stop (stop) 0/0"},
	{"ContentParts", chunk(`{"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"a"},{"type":"image_url"}]}}`) + stop, "reasoning/1: hm\ntext/2: a\nfinish: stop (stop) 0/0"},
	{"ThinkingText", chunk(`{"delta":{"content":[{"type":"thinking","thinking":"hm"}]}}`) + stop, "reasoning/1: hm\nfinish: stop (stop) 0/0"},
	{"WholeMessage", chunk(`{"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}`), "text/1: a\nfinish: stop (stop) 0/0"},
	{"Refusal", chunk(`{"delta":{"refusal":"No"}}`) + chunk(`{"delta":{"refusal":"."},"finish_reason":"stop"}`), "text/1: No.\nfinish: stop (stop) 0/0"},
	{"ReasoningContent", chunk(`{"delta":{"reasoning_content":"h"}}`) + chunk(`{"delta":{"reasoning_content":"m"}}`) + text("a") + stop, "reasoning/1: hm\ntext/2: a\nfinish: stop (stop) 0/0"},
	{"Reasoning", chunk(`{"delta":{"reasoning":"hm"}}`) + text("a") + stop, "reasoning/1: hm\ntext/2: a\nfinish: stop (stop) 0/0"},
	{"StopAlthoughCallsCame", call(`{"index":0,"id":"p","function":{"name":"f","arguments":"{}"}}`) + stop, "tool_arguments/1: p f {}\nfinish: tool_calls (stop) 0/0"},
	{"UnknownWord", text("a") + chunk(`{"finish_reason":"bored"}`), "text/1: a\nfinish: unknown (bored) 0/0"},
	{"EOS", text("a") + chunk(`{"finish_reason":"eos"}`), "text/1: a\nfinish: stop (eos) 0/0"},
	{"LoudWord", text("a") + chunk(`{"finish_reason":"MAX_TOKENS"}`), "text/1: a\nfinish: length (MAX_TOKENS) 0/0"},
	{"NoWords", chunk(`{"delta":{},"finish_reason":"stop"}`) + done, "finish: stop (stop) 0/0"},
	{"DoneAfterACall", call(`{"index":0,"id":"p","function":{"name":"f","arguments":"{\"a\":"}}`) + done, "tool_arguments/1: p f {\"a\":\nfinish: unknown () 0/0"},
	{"CallAndEOF", call(`{"index":0,"id":"p","function":{"name":"f","arguments":"{}"}}`), "tool_arguments/1: p f {}\n"},
	{"UsageOnTheLastChunk", text("a") + `data: {"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":2}}` + "\n\n" + done, "text/1: a\nfinish: stop (stop) 5/2"},
	{"UsageTwice", text("a") + usage(5, 2) + stop + usage(5, 2) + done, "text/1: a\nfinish: stop (stop) 5/2"},
	{"UsageGrows", usage(5, 1) + text("a") + usage(5, 2) + stop + usage(0, 0) + done, "text/1: a\nfinish: stop (stop) 5/2"},
	{"UsageInTheChoice", text("a") + chunk(`{"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":5,"completion_tokens":2}}`) + done, "text/1: a\nfinish: stop (stop) 5/2"},
	{"UsageOfAnotherKind", `data: {"choices":[],"usage":""}` + "\n\n" + text("a") + stop, "text/1: a\nfinish: stop (stop) 0/0"},
	{"FunctionCall", chunk(`{"delta":{"function_call":{"name":"f","arguments":"{\"a\""}}}`) + chunk(`{"delta":{"function_call":{"arguments":":1}"}},"finish_reason":"function_call"}`), "tool_arguments/1:  f {\"a\":1}\nfinish: tool_calls (function_call) 0/0"},
	{"OddIDAndIndex", call(`{"index":"0","id":7,"function":{"name":"f","arguments":"{"}}`) + call(`{"index":0.5,"id":7,"function":{"arguments":"}"}}`) + stop, "tool_arguments/1: 7 f {}\nfinish: tool_calls (stop) 0/0"},
	{"CharactersCutBetweenDeltas", text("1\xE2\x82") + text("\xAC") + text(`\ud83e`) + text(`\udded!`) + stop, "text/1: 1€🧭!\nfinish: stop (stop) 0/0"},
	{"ArgumentsCutInACharacter", call(`{"id":"p","function":{"name":"f","arguments":"{\"a\":\"\ud83e"}}`) + call("{\"function\":{\"arguments\":\"\\udded\xE2\"}}") + call("{\"function\":{\"arguments\":\"\x82\xAC\\\"}\"}}") + stop, "tool_arguments/1: p f {\"a\":\"🧭€\"}\nfinish: tool_calls (stop) 0/0"},
	{"HalvesThatNothingFollows", chunk(`{"delta":{"reasoning":"\ud83e"}}`) + text("a\xE2") + call(`{"id":"p","function":{"name":"f","arguments":"\ud83e"}}`) + text(`\ud83e`) + stop, "reasoning/1: \xED\xA0\xBE\ntext/2: a\xE2\ntool_arguments/3: p f \xED\xA0\xBE\ntext/4: \xED\xA0\xBE\nfinish: tool_calls (stop) 0/0"},
	{"ErrorObjectIsNotAnswerText", `data: {"object":"chat.completion.chunk","type":"x","message":"m","choices":[{"delta":{"content":"a"}}]}` + "\n\n" + stop, "text/1: a\nfinish: stop (stop) 0/0"},
}

const (
	done = "data: [DONE]\n\n"
	stop = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
)

func chunk(choice string) string { return `data: {"choices":[` + choice + `]}` + "\n\n" }

func text(s string) string { return chunk(`{"index":0,"delta":{"content":"` + s + `"}}`) }

func call(pieces string) string { return chunk(`{"delta":{"tool_calls":[` + pieces + `]}}`) }

func usage(input, output int) string {
	return `data: {"choices":[],"usage":{"prompt_tokens":` + strconv.Itoa(input) + `,"completion_tokens":` + strconv.Itoa(output) + `}}` + "\n\n"
}

func TestStreamsAsTheyAreFoundInTheWild(t *testing.T) {
	t.Parallel()
	for _, tt := range wild {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, p := range []playback{
				{body: tt.body}, {body: tt.body, every: 1}, {body: strings.ReplaceAll(tt.body, "\n", "\r\n"), every: 1},
			} {
				f := newFake(t, p)
				got, err := play(t.Context(), f.model(t, openai.Config{}), hello())
				if err != nil || got != tt.want {
					t.Errorf("every %d: got %q and error %v, want %q", p.every, got, err, tt.want)
				}
			}
		})
	}
}

func TestALineOfTwoMebibytesArrivesWhole(t *testing.T) {
	t.Parallel()
	const size = 2_101_473
	body := call(`{"index":0,"id":"call_A","function":{"name":"save_note","arguments":"{\"path\":\"r.md\",\"body\":\"`+strings.Repeat("x", size)+`\"}"}}`) + stop + done
	for _, every := range []int{0, 4093} {
		f := newFake(t, playback{body: body, every: every})
		got, err := play(t.Context(), f.model(t, openai.Config{}), hello())
		if err != nil || strings.Count(got, "x") != size || !strings.HasSuffix(got, "\"}\nfinish: tool_calls (stop) 0/0") {
			t.Errorf("every %d: got %d bytes and error %v", every, len(got), err)
		}
	}
}

func TestWhatIsNoAnswerIsAFailure(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, body, code, message string
		retryable                 bool
	}{
		{"DoneAndNothingElse", ": ping\n\n" + done, "empty_answer", "the provider ended its answer before it had begun", true},
		{"DoneAndUsage", usage(5, 0) + done, "empty_answer", "the provider ended its answer before it had begun", true},
		{"ErrorAsAWord", text("a") + chunk(`{"finish_reason":"error"}`) + done, "error", "the provider broke its answer off (finish reason: error)", true},
		{"LackOfResources", chunk(`{"finish_reason":"insufficient_system_resource"}`), "insufficient_system_resource", "the provider broke its answer off (finish reason: insufficient_system_resource)", true},
		{"FlatError", text("a") + `data: {"object":"error","message":"too long","type":"BadRequestError","code":400}` + "\n\n" + done, "BadRequestError/400", "too long", false},
		{"FlatErrorEvent", "event: error\n" + `data: {"type":"error","code":"server_error","message":"oops"}` + "\n\n", "server_error", "oops", true},
		{"Overloaded", `data: {"error":{"type":"overloaded_error","message":"later"}}` + "\n\n", "overloaded_error", "later", true},
		{"OverloadedInWords", `data: {"error":"The model is overloaded"}` + "\n\n", "", "The model is overloaded", true},
		{"Exhausted", `data: {"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"later"}}` + "\n\n", "RESOURCE_EXHAUSTED/429", "later", true},
		{"OddStatus", `data: {"error":{"code":"529","message":"later"}}` + "\n\n", "529", "later", true},
		{"ContextLength", `data: {"error":{"code":"context_length_exceeded","type":"invalid_request_error","message":"long"}}` + "\n\n", "invalid_request_error/context_length_exceeded", "long", false},
		{"Unpaid", `data: {"error":{"code":"insufficient_quota","type":"server_error","message":"pay"}}` + "\n\n", "server_error/insufficient_quota", "pay", false},
		{"DoneDoesNotMakeItGood", `data: {"error":{"code":"x","message":"m"}}` + "\n\n" + stop + done, "x", "m", false},
		{"ContentOfAnotherKind", chunk(`{"delta":{"content":7}}`), "malformed_stream", "the provider sent a frame that is not a chunk", true},
		{"PartsOfAnotherKind", chunk(`{"delta":{"content":[7]}}`), "malformed_stream", "the provider sent a frame that is not a chunk", true},
		{"ThinkingOfAnotherKind", chunk(`{"delta":{"content":[{"thinking":[7]}]}}`), "malformed_stream", "the provider sent a frame that is not a chunk", true},
		{"TooManyCalls", call(manyCalls(1001)), "too_many_calls", "the provider's answer has more than 1000 tool calls", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, playback{body: tt.body})
			_, err := play(t.Context(), f.model(t, openai.Config{}), hello())
			me := wantModelError(t, err)
			if me.Status != 200 || me.Code != tt.code || me.Message != tt.message || me.Retryable != tt.retryable {
				t.Errorf("got %+v", me)
			}
			if n := len(f.sent()); n != 1 {
				t.Errorf("the provider was called %d times", n)
			}
		})
	}
}

func manyCalls(n int) string {
	var pieces []string
	for i := range n {
		pieces = append(pieces, `{"index":`+strconv.Itoa(i)+`,"function":{"name":"f","arguments":"{}"}}`)
	}
	return strings.Join(pieces, ",")
}
