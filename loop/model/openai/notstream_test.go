package openai_test

import (
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/model/openai"
)

func TestAnAnswerThatIsNoStreamSaysSo(t *testing.T) {
	t.Parallel()
	notStream := func(contentType string) loop.ModelError {
		return loop.ModelError{
			Status: 200, Code: "not_a_stream",
			Message: "the provider's answer is not an event stream (content type: " + contentType + "): check that OPENAI_BASE_URL is right " +
				"(it usually ends in /v1), that what is there can stream, and that no proxy or login page answers in its place",
		}
	}
	const completion = `{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"error":null}`
	page := "<!DOCTYPE html>\n<html>\n<p>data: log in</p>\n</html>\n"
	tests := []struct {
		name, contentType, body, end string
		want                         loop.ModelError
	}{
		{"LoginPage", "text/html; charset=utf-8", page, "", notStream("text/html; charset=utf-8")},
		{"PageOnOneLine", "text/html", "<html>log in</html>", "", notStream("text/html")},
		{"PageThatBroke", "text/html", page, "cut", notStream("text/html")},
		{"WrongLabel", "text/event-stream", page, "", notStream("text/event-stream")},
		{"NoLabel", "", "login required", "", notStream("none")},
		{"LabelWithAKey", key, "x", "", notStream("[API key]")},
		{"LongLabel", strings.Repeat("x", 200), "x", "", notStream(strings.Repeat("x", 97) + "…")},
		{"Completion", "application/json", completion, "", notStream("application/json")},
		{"ManyCompletions", "application/x-ndjson", completion + "\n" + completion + "\n", "", notStream("application/x-ndjson")},
		{"EndlessLine", "video/mp4", strings.Repeat("x", 5<<20), "", notStream("video/mp4")},
		{"LongError", "application/json", `{"error":"` + strings.Repeat("x", 5000) + `"}`, "", notStream("application/json")},
		{
			"ErrorObject", "application/json", `{"error":{"message":"slow down, ` + key + `","type":"requests","code":"rate_limit_exceeded"}}`, "",
			loop.ModelError{Status: 200, Code: "requests/rate_limit_exceeded", Message: "slow down, [API key]", Retryable: true},
		},
		{
			"ErrorText", "application/json", "\xEF\xBB\xBF{\n  \"error\": \"no such model\"\n}\n", "",
			loop.ModelError{Status: 200, Message: "no such model"},
		},
		{
			"ErrorBehindKeepAlives", "text/event-stream", strings.Repeat("\n", 10_000) + ": wait\r\n\r\n{\"error\":\"no such model\"}", "",
			loop.ModelError{Status: 200, Message: "no such model"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, every := range []int{0, 7} {
				if every > 0 && len(tt.body) > 1000 {
					continue
				}
				f := newFake(t, playback{body: tt.body, end: tt.end, every: every, header: map[string]string{"Content-Type": tt.contentType}})
				text, err := play(t.Context(), f.model(t, openai.Config{APIKey: key}), hello())
				if got := wantModelError(t, err); got != tt.want || text != "" {
					t.Errorf("every %d: got %+v after %q, want %+v", every, got, text, tt.want)
				}
			}
		})
	}
}

func TestAStreamThatEndsBeforeItsFirstDataIsCutOff(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"Empty": "", "Blank": " \n\r\n\n", "KeepAlives": ": ping\n\nevent: ping\rid: 1\r\n\nretry\n", "ManyKeepAlives": strings.Repeat(": ping\n\n", 2000),
		"InAComment": "\n:pi", "InAField": "event: pi", "InAName": ": ping\n\nda", "InAFrame": `data: {"cho`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, end := range []string{"", "cut"} {
				f := newFake(t, playback{body: body, end: end, header: map[string]string{"Content-Type": "text/html"}})
				if got, err := play(t.Context(), f.model(t, openai.Config{}), hello()); err != nil || got != "" {
					t.Errorf("end %q: got %q and error %v, want nothing at all", end, got, err)
				}
			}
		})
	}
}

func TestAStreamMayHoldLinesThatNobodyKnows(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"finish_no_done": "text/1: The total is 42.\nfinish: stop (stop) 0/0",
		"eof_no_finish":  "text/1: The total is 4\n", // cut off, and still a stream
	} {
		f := newFake(t, playback{body: "<!-- gateway -->\n" + fixture(t, name), header: map[string]string{"Content-Type": "text/html"}})
		if got, err := play(t.Context(), f.model(t, openai.Config{}), hello()); err != nil || got != want {
			t.Errorf("%s: got %q and error %v, want %q", name, got, err, want)
		}
	}
}
