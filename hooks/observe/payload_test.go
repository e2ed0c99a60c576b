package observe_test

import (
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/observe"
)

// words are the types of words out of closed sets: the only texts in payloads.
var words = []reflect.Type{
	reflect.TypeFor[observe.MethodClass](), reflect.TypeFor[observe.EventType](), reflect.TypeFor[observe.StatusClass](),
	reflect.TypeFor[observe.CompletionClass](), reflect.TypeFor[observe.ErrorClass](),
}

// TestPayloadsAreFlat: there is no place in them for anything but numbers and words.
func TestPayloadsAreFlat(t *testing.T) {
	t.Parallel()
	var flat func(path string, typ reflect.Type)
	flat = func(path string, typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Bool, reflect.Uint16, reflect.Uint64:
		case reflect.Int64:
			if typ != reflect.TypeFor[time.Duration]() {
				t.Errorf("%s is an %s, which may be negative", path, typ)
			}
		case reflect.String:
			if !slices.Contains(words, typ) {
				t.Errorf("%s is a %s, which may be any text", path, typ)
			}
		case reflect.Struct:
			for f := range typ.Fields() {
				flat(path+"."+f.Name, f.Type)
			}
		default:
			t.Errorf("%s is a %s", path, typ)
		}
	}
	for _, h := range []reflect.Type{
		reflect.TypeFor[observe.RequestHook](), reflect.TypeFor[observe.EventHook](),
		reflect.TypeFor[observe.CompletionHook](), reflect.TypeFor[observe.ErrorHook](),
	} {
		m := h.Method(0)
		if m.Type.NumIn() != 1 || m.Type.NumOut() != 1 {
			t.Errorf("%s is a %s: one payload and one error", m.Name, m.Type)
		}
		flat(m.Name, m.Type.In(0))
	}
	if !reflect.TypeFor[observe.Report]().Comparable() || reflect.TypeFor[observe.Report]().NumField() != 3 {
		t.Error("a report is more than plugin, hook and reason")
	}
}

func TestTheListsOfClassesAreWhole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := observe.NewRegistry(nil)
		var completed []observe.CompletionClass
		var failed []observe.ErrorClass
		if err := r.Register("a", plugin(func(_ observe.Hook, p any) error {
			switch p := p.(type) {
			case observe.Completion:
				completed = append(completed, p.Class)
			case observe.Failure:
				failed = append(failed, p.Class)
			}
			return nil
		})); err != nil {
			t.Fatal(err)
		}
		for _, c := range observe.Completions() {
			r.Begin(observe.MethodNone, 0).Complete(c, observe.RawUsage{})
		}
		for _, e := range observe.Errors() {
			r.Begin(observe.MethodNone, 0).Fail(e, observe.RawUsage{})
		}
		expect(t, "completions", completed, observe.Completions())
		expect(t, "errors", failed, observe.Errors())
	})
}
