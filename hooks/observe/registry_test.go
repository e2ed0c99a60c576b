package observe_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/seed-2ca4966b/agentd/hooks/observe"
)

// counting has every hook, by its pointer.
type counting struct{ requests, events, completions, failures int }

func (c *counting) BeforeRequest(observe.Request) error { c.requests++; return nil }
func (c *counting) AfterEvent(observe.Event) error      { c.events++; return nil }
func (c *counting) OnComplete(observe.Completion) error { c.completions++; return nil }
func (c *counting) OnError(observe.Failure) error       { c.failures++; return nil }

// ends has one hook, by its value.
type ends struct{}

func (ends) OnComplete(observe.Completion) error { return nil }

// half has one hook by its value and one by its pointer.
type half struct{ ends }

func (*half) OnError(observe.Failure) error { return nil }

type (
	hookFunc  func()
	hookMap   map[string]int
	hookList  []int
	hookChan  chan int
	noHook    struct{}
	withCtx   struct{}
	pointless struct{}
)

func (hookFunc) OnError(observe.Failure) error                 { return nil }
func (hookMap) OnError(observe.Failure) error                  { return nil }
func (hookList) OnError(observe.Failure) error                 { return nil }
func (hookChan) OnError(observe.Failure) error                 { return nil }
func (noHook) Completed(observe.Completion) error              { return nil }
func (withCtx) AfterEvent(any, observe.Event) error            { return nil }
func (*pointless) AfterEvent(observe.Event)                    {}
func (withCtx) OnError(observe.Failure) error                  { return nil }
func (*pointless) BeforeRequest(observe.Request) (bool, error) { return false, nil }

func TestWhatIsNoPluginIsRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		plugin any
		want   error
		text   string
	}{
		"Nil":                  {nil, observe.ErrNil, "nil"},
		"TypedNilPointer":      {(*counting)(nil), observe.ErrNil, "*observe_test.counting"},
		"TypedNilOfAValueType": {(*ends)(nil), observe.ErrNil, "*observe_test.ends"},
		"TypedNilFunc":         {hookFunc(nil), observe.ErrNil, "hookFunc"},
		"TypedNilMap":          {hookMap(nil), observe.ErrNil, "hookMap"},
		"TypedNilSlice":        {hookList(nil), observe.ErrNil, "hookList"},
		"TypedNilChan":         {hookChan(nil), observe.ErrNil, "hookChan"},
		"NoHook":               {noHook{}, observe.ErrNoHook, "noHook"},
		"ANumber":              {7, observe.ErrNoHook, "int"},
		"PointerToAPointer":    {new(&counting{}), observe.ErrNoHook, "**observe_test.counting"},
		"PointerReceivers":     {counting{}, observe.ErrPointer, "pass &T"},
		"OnePointerReceiver":   {half{}, observe.ErrPointer, "OnError"},
		"AnotherSignature":     {withCtx{}, observe.ErrSignature, "AfterEvent"},
		"NoError":              {&pointless{}, observe.ErrSignature, "BeforeRequest"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := observe.NewRegistry(nil)
			err := r.Register("p", tt.plugin)
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %v; want %v with %q", err, tt.want, tt.text)
			}
			if n := r.Seal(); n != 0 {
				t.Errorf("%d plugins are registered", n)
			}
		})
	}
}

func TestAPluginWithAnyHookIsTaken(t *testing.T) {
	t.Parallel()
	r := observe.NewRegistry(nil)
	for id, p := range map[string]any{
		"a": &counting{}, "b": ends{}, "c": &ends{}, "d": &half{}, "e": hookFunc(func() {}), "f": hookMap{},
	} {
		if err := r.Register(id, p); err != nil {
			t.Error(err)
		}
	}
	if n := r.Seal(); n != 6 {
		t.Errorf("%d plugins", n)
	}
}

func TestIDs(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 64)
	for id, fine := range map[string]bool{
		"a": true, "0": true, "provider-metrics": true, "a.b_c-d": true, "a--b": true, long: true, long[1:]: true,
		"": false, long + "x": false, "-a": false, "a-": false, ".a": false, "a.": false, "_a": false, "a_": false, "-": false,
		"A": false, "aB": false, "a b": false, "a\n": false, "\na": false, "é": false, "a/b": false, "a\x00": false,
		strings.Repeat("x", 63) + "-": false, "-" + strings.Repeat("x", 63): false,
	} {
		err := observe.NewRegistry(nil).Register(id, &counting{})
		if fine != (err == nil) || !fine && !errors.Is(err, observe.ErrID) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestAnIDIsTakenOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := observe.NewRegistry(nil)
		first, second := &counting{}, &counting{}
		if err := r.Register("a", first); err != nil {
			t.Fatal(err)
		}
		if err := r.Register("a", second); !errors.Is(err, observe.ErrDuplicate) {
			t.Errorf("got %v", err)
		}
		r.Begin(observe.MethodNone, 0).Complete(observe.CompletionStop, observe.RawUsage{})
		if first.requests != 1 || second.requests != 0 {
			t.Errorf("the first was asked %d times, the second %d", first.requests, second.requests)
		}
	})
}

func TestWhatComesTooLateIsToldSo(t *testing.T) {
	t.Parallel()
	r := observe.NewRegistry(nil)
	r.Seal()
	if err := r.Register("a", &counting{}); !errors.Is(err, observe.ErrSealed) {
		t.Errorf("got %v", err)
	}
}

func TestNoRegistryHasNoPlugins(t *testing.T) {
	t.Parallel()
	var r *observe.Registry
	if r.Seal() != 0 || r.Hung() != 0 || r.Begin(observe.MethodWrite, 1) != nil {
		t.Error("it has some")
	}
}
