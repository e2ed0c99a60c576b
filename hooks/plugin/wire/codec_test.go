package wire_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

var actions = []hooks.Action{
	hooks.ActionContinue, hooks.ActionTransform, hooks.ActionAsk, hooks.ActionHandled,
	hooks.ActionTerminate, hooks.ActionBlock, hooks.ActionWithhold,
}

// fill sets everything in v to something: no field keeps its zero value, so that one
// which is lost on the way is noticed.
func fill(t *rapid.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if v.Type() == reflect.TypeFor[hooks.Action]() {
			v.SetString(string(rapid.SampledFrom(actions).Draw(t, "action")))
			return
		}
		v.SetString(rapid.StringN(1, 8, 40).Draw(t, "text"))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.Int64Range(1, 1<<31-1).Draw(t, "number"))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Slice:
		n := rapid.IntRange(1, 3).Draw(t, "length")
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(t, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, key)
		fill(t, value)
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	default:
		t.Fatalf("no filling for a %s: hooks has a field of a new kind", v.Type())
	}
}

// fillMessage sets every field of a message, but for those that skip names and of
// the oneofs, which hold one.
func fillMessage(t *rapid.T, m protoreflect.Message, skip ...protoreflect.Name) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		for _, name := range skip {
			if f.Name() == name {
				f = nil
				break
			}
		}
		switch {
		case f == nil || f.ContainingOneof() != nil && !f.ContainingOneof().IsSynthetic():
		case f.IsMap():
			m.Mutable(f).Map().Set(protoreflect.ValueOfString("k").MapKey(), protoreflect.ValueOfString("v"))
		case f.IsList():
			list := m.Mutable(f).List()
			if f.Message() != nil {
				fillMessage(t, list.AppendMutable().Message())
			} else {
				list.Append(scalar(t, f))
			}
		case f.Message() != nil:
			fillMessage(t, m.Mutable(f).Message())
		default:
			m.Set(f, scalar(t, f))
		}
	}
}

func scalar(t *rapid.T, f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(rapid.StringN(1, 8, 40).Draw(t, "text"))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(rapid.Int32Range(1, 1<<31-1).Draw(t, "number"))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(rapid.Int64Range(1, 1<<31-1).Draw(t, "number"))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(rapid.IntRange(1, f.Enum().Values().Len()-1).Draw(t, "enum")))
	default:
		t.Fatalf("no filling for %s: the protocol has a field of a new kind", f.FullName())
		return protoreflect.Value{}
	}
}

// over sends m over a wire.
func over[M proto.Message](t *rapid.T, m M) M {
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	out, _ := m.ProtoReflect().New().Interface().(M)
	if err := proto.Unmarshal(raw, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// same sends what is filled in either form there and back: a field that the other
// form lacks does not return.
func same[In, Out any](t *testing.T, c wire.Codec[In, Out]) {
	t.Helper()
	field := protoreflect.Name(strings.ToLower(strings.TrimPrefix(c.Number.String(), "GATE_")))
	rapid.Check(t, func(t *rapid.T) {
		var (
			in  In
			out Out
		)
		fill(t, reflect.ValueOf(&in).Elem())
		fill(t, reflect.ValueOf(&out).Elem())
		if got, ok := c.Asked(over(t, c.Ask(in))); !ok || !reflect.DeepEqual(got, in) {
			t.Fatalf("asked %+v, %v\nwant  %+v", got, ok, in)
		}
		if got, err := c.Answered(over(t, c.Answer(out))); err != nil || !reflect.DeepEqual(got, out) {
			t.Fatalf("answered %+v, %v\nwant     %+v", got, err, out)
		}

		q, a := &pluginv1.EvaluateRequest{}, &pluginv1.EvaluateResponse{}
		fillMessage(t, q.ProtoReflect().Mutable(q.ProtoReflect().Descriptor().Fields().ByName(field)).Message())
		fillMessage(t, a.ProtoReflect(), "result")
		fillMessage(t, a.ProtoReflect().Mutable(a.ProtoReflect().Descriptor().Fields().ByName(field)).Message())
		in, _ = c.Asked(q)
		if got := c.Ask(in); !proto.Equal(got, q) {
			t.Fatalf("asked %v\nwant  %v", got, q)
		}
		out, err := c.Answered(a)
		if got := c.Answer(out); err != nil || !proto.Equal(got, a) {
			t.Fatalf("answered %v, %v\nwant     %v", got, err, a)
		}
	})
}

func TestEveryFieldOfEveryGateGoesBothWays(t *testing.T) {
	t.Parallel()
	same(t, wire.BeforeInput)
	same(t, wire.BeforeRunStart)
	same(t, wire.TransformContext)
	same(t, wire.BeforeProviderHeaders)
	same(t, wire.BeforeProviderRequest)
	same(t, wire.AfterProviderResponse)
	same(t, wire.BeforeToolCall)
	same(t, wire.BeforeExecute)
	same(t, wire.AfterToolCall)
}

// TestTheProtocolHasTheGatesOfHooks fails when hooks gets a gate that plugins cannot
// be asked at.
func TestTheProtocolHasTheGatesOfHooks(t *testing.T) {
	t.Parallel()
	h := reflect.TypeFor[hooks.Hooks]()
	var gates, notices int
	for i := range h.NumField() {
		name := h.Field(i).Name
		if strings.HasPrefix(name, "On") {
			notices++
			word := "NOTIFICATION_TYPE_" + strings.ToUpper(snake(strings.TrimPrefix(name, "On")))
			if _, ok := pluginv1.NotificationType_value[word]; !ok {
				t.Errorf("no notification %s for %s", word, name)
			}
			continue
		}
		gates++
		g := hooks.Gate(name)
		if n := wire.Number(g); n == 0 || wire.GateOf(n) != g || n.String() != "GATE_"+strings.ToUpper(snake(name)) {
			t.Errorf("the gate %s is %v", g, n)
		}
	}
	if gates != len(pluginv1.Gate_name)-1 || notices != len(pluginv1.NotificationType_name)-1 {
		t.Errorf("%d gates and %d notifications, the protocol has %d and %d", gates, notices, len(pluginv1.Gate_name)-1, len(pluginv1.NotificationType_name)-1)
	}
	if wire.GateOf(99) != "" || wire.GateOf(-1) != "" || wire.Number("Nowhere") != 0 {
		t.Error("there are gates that there are not")
	}
}

func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return b.String()
}

func tells[T any](t *testing.T, n wire.Notice[T]) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		var in T
		fill(t, reflect.ValueOf(&in).Elem())
		if got, ok := n.Told(over(t, n.Tell(in))); !ok || !reflect.DeepEqual(got, in) {
			t.Fatalf("told %+v, %v\nwant %+v", got, ok, in)
		}
	})
	if _, ok := n.Told(&pluginv1.Notification{}); ok {
		t.Errorf("%s is told by a notification of nothing", n.Name)
	}
}

func TestEveryFieldOfEveryNotificationArrives(t *testing.T) {
	t.Parallel()
	tells(t, wire.RunStart)
	tells(t, wire.TurnStart)
	tells(t, wire.ToolExecutionStart)
	tells(t, wire.TurnEnd)
	tells(t, wire.RunEnd)
}

func TestAListThatIsThereAndEmptyStays(t *testing.T) {
	t.Parallel()
	tools, messages, empty := []string{}, []hooks.Message{}, ""
	start, err := wire.BeforeRunStart.Answered(wire.BeforeRunStart.Answer(hooks.BeforeRunStartResult{Tools: &tools, System: &empty}))
	if err != nil || start.Tools == nil || *start.Tools == nil || start.System == nil {
		t.Errorf("run start: %+v, %v", start, err)
	}
	model, err := wire.TransformContext.Answered(wire.TransformContext.Answer(hooks.TransformContextResult{Messages: &messages}))
	if err != nil || model.Messages == nil || *model.Messages == nil {
		t.Errorf("context: %+v, %v", model, err)
	}
	start, err = wire.BeforeRunStart.Answered(wire.BeforeRunStart.Answer(hooks.BeforeRunStartResult{}))
	if err != nil || start.Tools != nil || start.System != nil {
		t.Errorf("nothing changed: %+v, %v", start, err)
	}
}

func TestTextThatIsNoUTF8IsSentAsTheLedgerHasIt(t *testing.T) {
	t.Parallel()
	in := hooks.BeforeToolCall{Call: hooks.ToolCall{Arguments: "a\xff\xfeb"}}
	if _, err := proto.Marshal(wire.BeforeToolCall.Ask(in)); err != nil {
		t.Fatal(err)
	}
	if got, _ := wire.BeforeToolCall.Asked(wire.BeforeToolCall.Ask(in)); got.Call.Arguments != "a\uFFFDb" {
		t.Errorf("%q", got.Call.Arguments)
	}
}

func TestWhatIsNoAnswerIsAFailure(t *testing.T) {
	t.Parallel()
	outcome := func(a *pluginv1.EvaluateResponse) string {
		out, err := wire.BeforeToolCall.Answered(a)
		var f *hooks.Failure
		if errors.As(err, &f) {
			return string(f.Outcome) + " " + f.Code
		}
		return fmt.Sprintf("action %q", out.Action)
	}
	verdict := func(n pluginv1.Action) *pluginv1.EvaluateResponse {
		return &pluginv1.EvaluateResponse{Verdict: &pluginv1.Verdict{Action: n}}
	}
	for want, a := range map[string]*pluginv1.EvaluateResponse{
		// hooks takes no action for malformed.
		`action ""`:         {},
		"malformed ":        wire.BeforeExecute.Answer(hooks.BeforeExecuteResult{Action: hooks.ActionContinue}),
		`action "block"`:    verdict(pluginv1.Action_ACTION_BLOCK),
		"panic ":            wire.Failed(&hooks.Failure{Outcome: hooks.OutcomePanic}),
		"unavailable c":     wire.Failed(fmt.Errorf("x: %w", &hooks.Failure{Outcome: hooks.OutcomeUnavailable, Code: "c", Err: errors.New("e")})),
		"timeout ":          wire.Failed(&hooks.Failure{Outcome: hooks.OutcomeTimeout}),
		"error ":            wire.Failed(errors.New("no")),
		"error crash":       wire.Failed(&hooks.Failure{Outcome: hooks.OutcomeCrash, Code: "crash"}),
		"error new outcome": {Result: &pluginv1.EvaluateResponse_Failure{Failure: &pluginv1.Failure{Outcome: 77, Code: "new outcome"}}},
	} {
		if got := outcome(a); got != want {
			t.Errorf("%v is %q, want %q", a, got, want)
		}
	}
	for _, n := range []pluginv1.Action{-1, 8, 99} {
		if got := outcome(verdict(n)); got != `action ""` {
			t.Errorf("action %d is %s", n, got)
		}
	}
	if got := outcome(wire.BeforeToolCall.Answer(hooks.BeforeToolCallResult{Action: "perhaps"})); got != `action ""` {
		t.Errorf("an action that there is not is %s", got)
	}
	long := wire.Failed(errors.New(strings.Repeat("é", 1<<20)))
	if n := proto.Size(long); n > 5<<10 {
		t.Errorf("a failure of %d bytes", n)
	}
}
