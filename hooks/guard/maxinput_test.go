package guard_test

import (
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/guard"
)

func TestMaxInputBytesCountsBytes(t *testing.T) {
	t.Parallel()
	h := made(t)(guard.MaxInputBytes(guard.MaxInputBytesConfig{Bytes: 4}))
	for text, want := range map[string]hooks.Action{
		"": hooks.ActionContinue, "abcd": hooks.ActionContinue, "äö": hooks.ActionContinue, "😀": hooks.ActionContinue,
		"abcde": hooks.ActionBlock, "äöü": hooks.ActionBlock, "😀!": hooks.ActionBlock,
	} {
		v, _ := ask(t, h.BeforeInput, saying(text))
		if v.Action != want {
			t.Errorf("%q: %s; want %s", text, v.Action, want)
		}
		if want == hooks.ActionBlock && (v.Reason.Code != "input_too_long" || !strings.Contains(v.Reason.Text, "at most 4")) {
			t.Errorf("%q: reason %+v", text, v.Reason)
		}
	}
	if r := h.Set().Hooks[0]; !r.Pure || r.Phase != hooks.PhaseValidate || r.ID != "max-input-bytes" {
		t.Errorf("registered as %+v", r)
	}
}

func TestMaxInputBytesRefusesAConfigWithoutANumber(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, -1} {
		h, err := guard.MaxInputBytes(guard.MaxInputBytesConfig{Bytes: n})
		refused(t, h, err, "bytes")
	}
}
