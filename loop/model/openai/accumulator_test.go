package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/model/wire"
)

// TestPiecesFindTheirCall feeds the tool_calls of one delta after the other.
func TestPiecesFindTheirCall(t *testing.T) {
	t.Parallel()
	const one = `p1 f {"a":1}`
	const two = `p1 f {"a":1}; p2 g {"b":2}`
	tests := []struct {
		name   string
		deltas []string
		want   string
	}{
		{"ByIndex", []string{`{"index":0,"id":"p1","function":{"name":"f","arguments":"{\"a\""}}`, `{"index":1,"id":"p2","function":{"name":"g","arguments":"{\"b\""}}`, `{"index":0,"function":{"arguments":":1}"}}`, `{"index":1,"function":{"arguments":":2}"}}`}, two},
		{"NullIndex", []string{`{"index":null,"id":"p1","function":{"name":"f","arguments":"{\"a\":1}"}}`, `{"index":null,"id":"p2","function":{"name":"g","arguments":"{\"b\""}}`, `{"index":null,"id":null,"function":{"name":null,"arguments":":2}"}}`}, two},
		{"KnownIDGoesHome", []string{`{"index":0,"id":"p1","function":{"name":"f","arguments":"{\"a\""}}`, `{"index":0,"id":"p2","function":{"name":"g","arguments":"{\"b\":2}"}}`, `{"index":0,"id":"p1","function":{"arguments":":1}"}}`}, two},
		{"IDAndNameOnEachPiece", []string{`{"index":0,"id":"p1","function":{"name":"f","arguments":"{\"a\""}}`, `{"index":0,"id":"p1","function":{"name":"f","arguments":":1}"}}`}, one},
		{"NameOnEachPiece", []string{`{"index":0,"id":"p1","function":{"name":"f","arguments":"{\"a\""}}`, `{"index":0,"function":{"name":"f","arguments":":1}"}}`, `{"index":0,"function":{"name":"f","arguments":""}}`}, one},
		{"ObjectArguments", []string{`{"index":0,"id":"p1","function":{"name":"f","arguments":{"a":1}}}`}, one},
		{"NullArguments", []string{`{"index":0,"id":"p1","function":{"name":"f","arguments":null}}`, `{"index":0,"function":null}`}, `p1 f `},
		{"NameComesLate", []string{`{"index":0,"id":"p1","function":{"arguments":"{\"a\""}}`, `{"index":0,"function":{"name":"f","arguments":":1}"}}`}, one},
		{"IDComesLate", []string{`{"index":0,"function":{"name":"f","arguments":"{\"a\""}}`, `{"index":0,"id":"p1","function":{"arguments":":1}"}}`}, ` f {"a":1}`},
		{"OneIDForTheSameTwice", []string{`{"index":0,"id":"p1","function":{"name":"f","arguments":"{}"}}`, `{"index":1,"id":"p1","function":{"name":"f","arguments":"{}"}}`}, `p1 f {}; p1 f {}`},
		{"KnownIDAtAnotherIndex", []string{`{"index":0,"id":"p1","function":{"name":"f","arguments":"{\"a\""}}`, `{"index":1,"id":"p1","function":{"name":"f","arguments":":1}"}}`}, one},
		{"BlankBehindTheEnd", []string{`{"index":0,"id":"p1","function":{"name":"f","arguments":"{\"a\":1}"}}`, `{"index":0,"function":{"name":"f","arguments":"\n"}}`}, one + "\n"},
		{"BracketsInAText", []string{`{"function":{"name":"f","arguments":"{\"a\":\"}\\\"}"}}`, `{"function":{"name":"f","arguments":"\"}"}}`}, ` f {"a":"}\"}"}`},
		{"QuoteInAText", []string{`{"function":{"name":"f","arguments":"{\"a\":\"\\\"}\"}"}}`, `{"function":{"name":"f","arguments":"{}"}}`}, ` f {"a":"\"}"}; f {}`},
		{"QuotedIndexes", []string{`{"index":"0","function":{"name":"f","arguments":"{\"a\""}}`, `{"index":"1","function":{"name":"g","arguments":"{\"b\""}}`, `{"index":"0","function":{"arguments":":1}"}}`, `{"index":"1","function":{"arguments":":2}"}}`}, ` f {"a":1}; g {"b":2}`},
		{"NoIndexGoesOnWithTheLast", []string{`{"index":0,"id":"p1","function":{"name":"f","arguments":"{\"a\":1}"}}`, `{"index":1,"id":"p2","function":{"name":"g","arguments":"{\"b\""}}`, `{"function":{"arguments":":2}"}}`}, two},
		{"EndThatIsNone", []string{`{"function":{"name":"f","arguments":"{1}"}}`, `{"function":{"name":"f","arguments":"{}"}}`}, ` f {1}{}`},
		{"OneIDForTwo", []string{`{"index":0,"id":"p1","function":{"name":"f","arguments":"{\"a\":1}"}}`, `{"index":1,"id":"p1","function":{"name":"g","arguments":"{\"b\":2}"}}`}, `p1 f {"a":1}; p1 g {"b":2}`},
		{"NoIDsButIndexes", []string{`{"index":0,"function":{"name":"f","arguments":"{}"}}`, `{"index":1,"function":{"name":"f","arguments":"{}"}}`}, ` f {}; f {}`},
		{"NeitherIDsNorIndexes", []string{`{"function":{"name":"f","arguments":"{}"}}`, `{"function":{"name":"f","arguments":"{}"}}`, `{"function":{"name":"g","arguments":"{}"}}`}, ` f {}; f {}; g {}`},
		{"NoIDsAndOneIndex", []string{`{"index":0,"function":{"name":"f","arguments":"{}"}}`, `{"index":0,"function":{"name":"g","arguments":"{}"}}`}, ` f {}; g {}`},
		{"NewIDOnAnUnnamedIndex", []string{`{"index":0,"function":{"name":"f","arguments":"{}"}}`, `{"index":0,"id":"p2","function":{"name":"g","arguments":"{}"}}`}, ` f {}; p2 g {}`},
		{"TwoInOneDelta", []string{`{"id":"p1","function":{"name":"f","arguments":"{\"a\":1}"}},{"id":"p2","function":{"name":"g","arguments":"{\"b\":2}"}}`}, two},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var a accumulator
			var order []string
			calls := make(map[string]string)
			for _, d := range tt.deltas {
				for _, c := range a.add(parseChunk(t, `{"choices":[{"delta":{"tool_calls":[`+d+`]}}]}`)) {
					if c.Kind == stream.KindToolCall {
						order = append(order, c.BlockID)
						calls[c.BlockID] = fmt.Sprintf("%s %s ", c.Call.ProviderID, c.Call.Name)
						continue
					}
					if calls[c.BlockID] == "" {
						t.Errorf("arguments %q before their call", c.Text)
					}
					calls[c.BlockID] += c.Text
				}
			}
			var got []string
			for _, id := range order {
				got = append(got, calls[id])
			}
			if s := strings.Join(got, "; "); strings.ReplaceAll(s, ";  ", "; ") != tt.want {
				t.Errorf("got %q, want %q", s, tt.want)
			}
		})
	}
}

func parseChunk(t *testing.T, s string) wireChunk {
	t.Helper()
	var ch wireChunk
	if err := json.Unmarshal([]byte(s), &ch); err != nil {
		t.Fatal(err)
	}
	return ch
}

func TestOddChunksAreTolerated(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		chunks []string
		want   string
	}{
		{"NullEverywhere", []string{`{"choices":null,"usage":null,"error":null}`, `{"choices":[null]}`, `{"choices":[{"delta":null}]}`, `{"choices":[{"delta":{"content":null,"tool_calls":null,"refusal":null,"reasoning":null},"finish_reason":null}]}`, `{}`}, ""},
		{"BothReasonings", []string{`{"choices":[{"delta":{"reasoning_content":"r","reasoning":"r"}}]}`, `{"choices":[{"delta":{"reasoning":"s","content":"t"}}]}`}, "reasoning/1 r, reasoning/1 s, text/2 t"},
		{"ReasoningObject", []string{`{"choices":[{"delta":{"reasoning":{"x":1},"content":"t"}}]}`}, "text/1 t"},
		{"Refusal", []string{`{"choices":[{"delta":{"refusal":"No."}}]}`}, "text/1 No."},
		{"SecondChoice", []string{`{"choices":[{"index":1,"delta":{"content":"other"}},{"index":0,"delta":{"content":"t"}}]}`}, "text/1 t"},
		{"TextAroundACall", []string{`{"choices":[{"delta":{"content":"a","tool_calls":[{"id":"p","function":{"name":"f"}}]}}]}`, `{"choices":[{"delta":{"content":"b"}}]}`}, "text/1 a, /2 , text/3 b"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var a accumulator
			var got []string
			for _, s := range tt.chunks {
				for _, c := range a.add(parseChunk(t, s)) {
					got = append(got, fmt.Sprintf("%s/%s %s", c.Lane, c.BlockID, c.Text))
				}
			}
			if s := strings.Join(got, ", "); s != tt.want {
				t.Errorf("got %q, want %q", s, tt.want)
			}
		})
	}
}

func TestHowItFinished(t *testing.T) {
	t.Parallel()
	const call = `{"choices":[{"delta":{"tool_calls":[{"id":"p","function":{"name":"f"}}]}}]}`
	finish := func(reason string) string { return `{"choices":[{"finish_reason":"` + reason + `"}]}` }
	tests := []struct {
		name   string
		chunks []string
		want   stream.Finish
	}{
		{"Stop", []string{finish("stop")}, stream.Finish{Reason: stream.FinishStop, Raw: "stop"}},
		{"EndTurn", []string{finish("end_turn")}, stream.Finish{Reason: stream.FinishStop, Raw: "end_turn"}},
		{"StopWithCalls", []string{call, finish("stop")}, stream.Finish{Reason: stream.FinishToolCalls, Raw: "stop"}},
		{"LengthWithCalls", []string{call, finish("length")}, stream.Finish{Reason: stream.FinishLength, Raw: "length"}},
		{"Filter", []string{finish("content_filter")}, stream.Finish{Reason: stream.FinishContentFilter, Raw: "content_filter"}},
		{"FunctionCall", []string{finish("function_call")}, stream.Finish{Reason: stream.FinishToolCalls, Raw: "function_call"}},
		{"UnknownWord", []string{finish("bored")}, stream.Finish{Reason: stream.FinishUnknown, Raw: "bored"}},
		{"EmptyIsNone", []string{finish("length"), finish("")}, stream.Finish{Reason: stream.FinishLength, Raw: "length"}},
		{
			"LastUsageCounts", []string{`{"usage":{"prompt_tokens":1,"completion_tokens":1}}`, `{"usage":{"prompt_tokens":9007199254740993,"completion_tokens":2}}`, `{"usage":null}`},
			stream.Finish{Reason: stream.FinishUnknown, Usage: stream.Usage{InputTokens: 9007199254740993, OutputTokens: 2}},
		},
		{"OddUsage", []string{`{"usage":{"prompt_tokens":"many","completion_tokens":-3}}`}, stream.Finish{Reason: stream.FinishUnknown}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var a accumulator
			for _, s := range tt.chunks {
				a.add(parseChunk(t, s))
			}
			if _, got, err := a.finish(); err != nil || got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestAnAnswerHasALimit(t *testing.T) {
	t.Parallel()
	frames := map[string]string{
		"Text":      `{"choices":[{"delta":{"content":"x"}}]}`,
		"Reasoning": `{"choices":[{"delta":{"reasoning":"x"}}]}`,
		"Arguments": `{"choices":[{"delta":{"tool_calls":[{"function":{"name":"f","arguments":"{"}}]}}]}`,
		"Index":     `{"choices":[{"delta":{"tool_calls":[{"index":7}]}}]}`,
	}
	for name, data := range frames {
		for _, size := range []int{maxAnswer - 200, maxAnswer} {
			m, err := New(Config{BaseURL: "http://provider.invalid"})
			if err != nil {
				t.Fatal(err)
			}
			yielded := 0
			c := &call{model: m, acc: accumulator{size: size}}
			c.Status, c.Yield = 200, func(stream.Chunk, error) bool { yielded++; return true }
			_, err = c.take(wire.Frame{Data: []byte(data)})
			if size < maxAnswer {
				if err != nil {
					t.Errorf("%s: %v below the limit", name, err)
				}
				continue
			}
			var me *loop.ModelError
			if !errors.As(err, &me) || me.Code != "answer_too_long" || me.Retryable || me.Message != "the provider's answer has more than 33554432 bytes of text" || yielded > 0 {
				t.Errorf("%s: got error %v and %d chunks", name, err, yielded)
			}
		}
	}
}
