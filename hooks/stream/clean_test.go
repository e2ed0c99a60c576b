package stream_test

import (
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
)

// cleaning is an observer that says what is to be kept of a text.
type cleaning struct {
	observer

	clean func(string) (string, bool)
}

func (c cleaning) Clean(text string) (string, bool) { return c.clean(text) }

// TestWhatElseAProviderSaysIsCleaned by one observer after the other. Nothing is kept
// where one that takes secrets out cannot say what may be.
func TestWhatElseAProviderSaysIsCleaned(t *testing.T) {
	t.Parallel()
	passes := func(stream.Chunk) stream.Verdict { return stream.Continue() }
	with := func(id string, redacting bool, clean func(string) (string, bool)) stream.Registration {
		return stream.Registration{ID: id, Redacting: redacting, New: func(stream.Call) stream.Observer {
			if clean == nil {
				return observer{chunk: passes}
			}
			return cleaning{observer{chunk: passes}, clean}
		}}
	}
	first := with("first", true, func(text string) (string, bool) { return text + "1", true })
	second := with("second", false, func(text string) (string, bool) { return text + "2", true })
	unmade := with("unmade", true, nil)
	unmade.New = func(stream.Call) stream.Observer { return nil }
	for name, c := range map[string]struct {
		regs []stream.Registration
		want string
		ok   bool
	}{
		"in their order":        {[]stream.Registration{first, with("plain", false, nil), second}, "word12", true},
		"one cannot":            {[]stream.Registration{first, with("cannot", false, func(string) (string, bool) { return "word", false })}, "", false},
		"one panics":            {[]stream.Registration{first, with("panics", false, func(string) (string, bool) { panic("word") })}, "", false},
		"one is asked in vain":  {[]stream.Registration{first, with("plain", true, nil)}, "", false},
		"one could not be made": {[]stream.Registration{unmade}, "", false},
	} {
		a := begin(t, c.regs...)
		if got, ok := a.Clean("word"); got != c.want || ok != c.ok {
			t.Errorf("%s: %q, %t", name, got, ok)
		}
		end := finish()
		end.Finish.Raw = "word"
		if out := a.Push(end); out.Stop == nil && out.Chunks[0].Finish.Raw != c.want {
			t.Errorf("%s: ends with %q", name, out.Chunks[0].Finish.Raw)
		}
	}
}
