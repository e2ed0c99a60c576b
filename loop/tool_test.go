package loop_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// runOneCall runs a model that calls "look" with args once, and returns the
// log and the result that the model was shown.
func runOneCall(t *testing.T, args string, tools ...loop.Tool) ([]event.Event, hooks.ToolResult) {
	t.Helper()
	model := looptest.Answers(
		looptest.Answer(looptest.ToolCall("p", "look", args), looptest.Finish(stream.FinishToolCalls)),
		looptest.Answer(looptest.Text("done"), looptest.Finish(stream.FinishStop)),
	)
	b := looptest.NewBench(looptest.NewLog(), strict(t, model), tools...)
	id := b.Session(t)
	if run := b.Advance(t, b.Start(t, id, "hi")); run.Status != loop.RunCompleted {
		t.Errorf("run %+v; want it completed whatever the tool did", run)
	}
	events, s := checked(t, b, id)
	all := results(s)
	if len(all) != 1 {
		t.Fatalf("results %+v; want one", all)
	}
	return events, all[0]
}

func TestArgumentsReachTheToolByteForByte(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]string{
		"beyond float64":       `{"n": 9007199254740993}`,
		"beyond int64":         `{"n":18446744073709551615}`,
		"beyond any float":     `{"n":1e400}`,
		"duplicate keys":       `{"a":1,"a":2}`,
		"odd spacing":          "{ \"a\" :\t1 ,\n\"b\":2 }",
		"escapes as written":   `{"a":"\u00e9\u0000\/<>&"}`,
		"a spelled surrogate":  `{"a":"\ud83d"}`,
		"trailing white space": "{} \n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got loop.ToolInput
			events, _ := runOneCall(t, args, looptest.Tool{Name: "look", Run: func(_ context.Context, in loop.ToolInput) (loop.ToolOutput, error) {
				got = in
				return loop.ToolOutput{}, nil
			}})
			call := only[event.ToolProposed](t, events)
			if string(got.Arguments) != args || call.Arguments != args || call.Sanitized {
				t.Errorf("the tool got %q, the log has %q (sanitized %v); want %q", got.Arguments, call.Arguments, call.Sanitized, args)
			}
			if got.CallID != call.CallID || got.Attempt != 1 || got.TenantID != looptest.Tenant || got.SessionID != events[0].SessionID || got.RunID != events[3].RunID {
				t.Errorf("input %+v", got)
			}
		})
	}
}

func TestBlankArgumentsBecomeAnEmptyObject(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"", " \n"} {
		var got string
		events, _ := runOneCall(t, args, looptest.Tool{Name: "look", Run: func(_ context.Context, in loop.ToolInput) (loop.ToolOutput, error) {
			got = string(in.Arguments)
			return loop.ToolOutput{}, nil
		}})
		if stored := only[event.ToolProposed](t, events).Arguments; got != "{}" || stored != "{}" {
			t.Errorf("arguments %q reached the tool as %q and the log as %q; want {}", args, got, stored)
		}
	}
}

func TestArgumentsThatAreNotTextAreMarked(t *testing.T) {
	t.Parallel()
	events, _ := runOneCall(t, "{\"a\":\"x\xffy\"}  ", looptest.Says("look", "seen"))
	call := only[event.ToolProposed](t, events)
	if !strings.HasPrefix(call.Arguments, "{\"a\":\"x\uFFFDy\"}") || !call.Sanitized {
		t.Errorf("proposed %+v; want U+FFFD and the mark", call)
	}
	if whole := payloads[event.AssistantCompleted](t, events)[0]; !whole.Sanitized {
		t.Errorf("answer %+v; want the mark", whole)
	}
}

func TestToolNamesThatAreNotTextAreMarked(t *testing.T) {
	t.Parallel()
	model := looptest.Answers(
		looptest.Answer(looptest.ToolCall("p\x00", "lo\xffok", "{}"), looptest.Finish(stream.FinishToolCalls)),
		looptest.Answer(looptest.Text("done"), looptest.Finish(stream.FinishStop)),
	)
	b := looptest.NewBench(looptest.NewLog(), strict(t, model))
	id := b.Session(t)
	b.Advance(t, b.Start(t, id, "hi"))
	events, _ := checked(t, b, id)
	if call := only[event.ToolProposed](t, events); call.Name != "lo\uFFFDok" || call.ProviderCallID != "p\uFFFD" || !call.Sanitized {
		t.Errorf("proposed %+v; want U+FFFD and the mark", call)
	}
}

func TestToolOutcomes(t *testing.T) {
	t.Parallel()
	tool := func(out loop.ToolOutput, err error) loop.Tool {
		return looptest.Tool{Name: "look", Run: func(context.Context, loop.ToolInput) (loop.ToolOutput, error) { return out, err }}
	}
	digest := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return hex.EncodeToString(sum[:])
	}
	for name, c := range map[string]struct {
		tool    loop.Tool
		raw     string // what the tool gave, as digested
		want    string
		isError bool
		marked  bool
	}{
		"content":               {tool(loop.ToolOutput{Content: "seen"}, nil), "seen", "seen", false, false},
		"nothing":               {tool(loop.ToolOutput{}, nil), "", "", false, false},
		"a reported failure":    {tool(loop.ToolOutput{Content: "no such file", IsError: true}, nil), "no such file", "no such file", true, false},
		"an error":              {tool(loop.ToolOutput{Content: "half"}, errors.New("disk full")), "disk full", "disk full", true, false},
		"a NUL":                 {tool(loop.ToolOutput{Content: "a\x00b"}, nil), "a\x00b", "a\uFFFDb", false, true},
		"invalid UTF-8":         {tool(loop.ToolOutput{Content: "caf\xe9"}, nil), "caf\xe9", "caf\uFFFD", false, true},
		"an error that is odd":  {tool(loop.ToolOutput{}, errors.New("\xff")), "\xff", "\uFFFD", true, true},
		"a spelled escape":      {tool(loop.ToolOutput{Content: `a\u0000b`}, nil), `a\u0000b`, `a\u0000b`, false, false},
		"an error without text": {tool(loop.ToolOutput{}, errors.New("")), "", "", true, false},
		"a panic": {looptest.Tool{Name: "look", Run: func(context.Context, loop.ToolInput) (loop.ToolOutput, error) {
			panic("secret of the tool")
		}}, "the tool broke off: internal error", "the tool broke off: internal error", true, false},
		"an end without an answer": {looptest.Tool{Name: "look", Run: func(context.Context, loop.ToolInput) (loop.ToolOutput, error) {
			runtime.Goexit()
			return loop.ToolOutput{}, nil
		}}, "the tool broke off: internal error", "the tool broke off: internal error", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			events, got := runOneCall(t, "{}", c.tool)
			if got.Content != c.want || got.IsError != c.isError {
				t.Errorf("the model was shown %+v; want %q, error %v", got, c.want, c.isError)
			}
			if reason := got.Reason; (reason == hooks.ReasonToolError) != c.isError || reason != "" && !c.isError {
				t.Errorf("reason %q", reason)
			}
			if done := only[event.ToolExecuted](t, events); done.Success == c.isError || done.SHA256 != digest(c.raw) || done.Bytes != int64(len(c.raw)) {
				t.Errorf("executed %+v; want the digest and size of %q", done, c.raw)
			}
			if res := only[event.ToolResult](t, events); res.Sanitized != c.marked || res.Name != "look" {
				t.Errorf("result %+v; want sanitized %v", res, c.marked)
			}
		})
	}
}

func TestNothingRunsWithoutAToolOrValidArguments(t *testing.T) {
	t.Parallel()
	ran := looptest.Tool{Name: "look", Run: func(context.Context, loop.ToolInput) (loop.ToolOutput, error) {
		t.Error("the tool was entered")
		return loop.ToolOutput{}, nil
	}}
	other := ran
	other.Name = "other"
	for name, c := range map[string]struct {
		args   string
		tool   loop.Tool
		reason hooks.ResultReason
		says   string
	}{
		"unknown tool":     {"{}", other, hooks.ReasonUnknownTool, "There is no tool called look"},
		"not JSON":         {"{", ran, hooks.ReasonInvalidArguments, "The arguments are not whole JSON"},
		"not an object":    {"[1]", ran, hooks.ReasonInvalidArguments, "The arguments are not valid"},
		"half an argument": {`{"a": "x`, ran, hooks.ReasonInvalidArguments, "The arguments are not whole JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			events, got := runOneCall(t, c.args, c.tool)
			if got.Reason != c.reason || !got.IsError || !strings.Contains(got.Content, c.says) {
				t.Errorf("the model was shown %+v; want %s, with %q", got, c.reason, c.says)
			}
			if n := len(payloads[event.ToolStarted](t, events)) + len(payloads[event.ToolExecuted](t, events)); n != 0 {
				t.Errorf("%d events say that something ran", n)
			}
		})
	}
}

func TestACallThatTheOutputLimitCutIsToldSo(t *testing.T) {
	t.Parallel()
	ran := looptest.Tool{Name: "look", Run: func(context.Context, loop.ToolInput) (loop.ToolOutput, error) {
		t.Error("the tool was entered")
		return loop.ToolOutput{}, nil
	}}
	model := looptest.Answers(
		looptest.Answer(looptest.ToolCall("p", "look", `{"a": "x`), looptest.Finish(stream.FinishLength)),
		looptest.Answer(looptest.Text("done"), looptest.Finish(stream.FinishStop)),
	)
	b := looptest.NewBench(looptest.NewLog(), strict(t, model), ran)
	id := b.Session(t)
	b.Advance(t, b.Start(t, id, "hi"))
	_, s := checked(t, b, id)
	if got := results(s); len(got) != 1 || got[0].Reason != hooks.ReasonInvalidArguments || !strings.Contains(got[0].Content, "cut off by the output limit") {
		t.Errorf("results %+v; want one that names the output limit", got)
	}
}

func TestOutputAboveTheLimitIsCutAndItsDigestIsOfTheWhole(t *testing.T) {
	t.Parallel()
	raw := strings.Repeat("🙂", 300_000)
	events, got := runOneCall(t, "{}", looptest.Says("look", raw))
	if len(got.Content) > 1<<20 || len(got.Content) < 1<<20-8 || !utf8.ValidString(got.Content) || !strings.HasSuffix(got.Content, "…") {
		t.Errorf("shown %d bytes, ending in %q", len(got.Content), got.Content[len(got.Content)-8:])
	}
	sum := sha256.Sum256([]byte(raw))
	if done := only[event.ToolExecuted](t, events); done.Bytes != int64(len(raw)) || done.SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("executed %+v; want the whole", done)
	}
}

func TestSomeCallsRunAndOthersDoNot(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), strict(t, calls("look", "gone", "look")), looptest.Says("look", "seen"))
	id := b.Session(t)
	b.Advance(t, b.Start(t, id, "hi"))
	_, s := checked(t, b, id)
	got := results(s)
	if len(got) != 3 || got[0].Content != "seen" || got[1].Reason != hooks.ReasonUnknownTool || got[2].Content != "seen" {
		t.Errorf("results %+v; want seen, unknown tool, seen", got)
	}
}

// laxTool takes whatever it is given, and so reads the first of two documents.
type laxTool struct{ looptest.Tool }

func (laxTool) Validate(json.RawMessage) error { return nil }

// TestWhatIsNotOneDocumentIsNoArguments, whatever the tool says: hooks could not read
// what the tool may.
func TestWhatIsNotOneDocumentIsNoArguments(t *testing.T) {
	t.Parallel()
	for _, arguments := range []string{`{"a":1}{"a":2}`, `{"a":1} x`, "\ufeff{}", `{"a":1,}`, `{'a':1}`, "{\"a\":\"\n\"}"} {
		for _, rewritten := range []bool{false, true} {
			var c counted
			written := arguments
			if rewritten {
				written = "{}"
			}
			b := looptest.NewBench(looptest.NewLog(), strict(t, looptest.Answers(
				looptest.Answer(looptest.ToolCall("p", "lax", written), looptest.Finish(stream.FinishToolCalls)),
				looptest.Answer(looptest.Text("done"), looptest.Finish(stream.FinishStop)))), laxTool{c.tool("lax")})
			b.Use(hooks.Hooks{BeforeToolCall: hooks.Named("rewrites", "1", func(context.Context, hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
				return hooks.BeforeToolCallResult{Action: hooks.ActionTransform, Arguments: &arguments}, nil
			})})
			j := b.Start(t, b.Session(t), "hi")
			b.Advance(t, j)
			_, s := checked(t, b, j.SessionID)
			want, asked := hooks.ReasonInvalidArguments, 0
			if rewritten {
				want, asked = hooks.ReasonBlocked, 1
			}
			if got := results(s)[0]; got.Reason != want || len(c.sorted()) != 0 || len(ledger(b, j.SessionID)) != asked {
				t.Errorf("%q: result %+v, ran %q, ledger %v", arguments, got, c.sorted(), rows(ledger(b, j.SessionID)))
			}
		}
	}
}
