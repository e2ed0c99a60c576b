package builtin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/tool/builtin"
	"github.com/seed-2ca4966b/agentd/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }

// define makes a tool that hands its arguments to got.
func define[In any](t *testing.T, got *In) loop.Tool {
	t.Helper()
	tool, err := builtin.Define(loop.ToolSpec{Name: "probe"}, func(_ context.Context, _ loop.ToolInput, args In) (loop.ToolOutput, error) {
		*got = args
		return loop.ToolOutput{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tool
}

func call(t *testing.T, tool loop.Tool, arguments string) error {
	t.Helper()
	if err := tool.Validate(json.RawMessage(arguments)); err != nil {
		return err
	}
	_, err := tool.Call(t.Context(), loop.ToolInput{Arguments: json.RawMessage(arguments)})
	return err
}

type numbers struct {
	ID   int64           `json:"id"`
	Max  int64           `json:"max"`
	UMax uint64          `json:"umax"`
	Neg  int64           `json:"neg"`
	Dec  json.Number     `json:"dec"`
	Long json.RawMessage `json:"long"`
	Exp  json.Number     `json:"exp"`
	One  any             `json:"one"`
	Z    int             `json:"z"`
	A    int8            `json:"a"`
	Dup  int             `json:"dup"`
}

func TestNumbersReachTheToolDigitForDigit(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/numbers.json")
	if err != nil {
		t.Fatal(err)
	}
	var got numbers
	if err := call(t, define(t, &got), string(raw)); err != nil {
		t.Fatal(err)
	}
	if got.ID != 9007199254740993 || got.Max != math.MaxInt64 || got.UMax != math.MaxUint64 || got.Neg != math.MinInt64 {
		t.Errorf("got ids %+v", got)
	}
	const long = "3.14159265358979323846264338327950288"
	if got.Dec != "0.1" || string(got.Long) != long || got.Exp != "1e400" || got.One != json.Number("1.0") {
		t.Errorf("got numbers %s, %s, %s, %v", got.Dec, got.Long, got.Exp, got.One)
	}
	if got.Z != 1 || got.A != 2 || got.Dup != 2 {
		t.Errorf("got z %d, a %d, dup %d; of two keys the last counts", got.Z, got.A, got.Dup)
	}
}

func TestTheWholeObjectAsItWasWritten(t *testing.T) {
	t.Parallel()
	tool, err := builtin.Define(loop.ToolSpec{Name: "probe"}, func(_ context.Context, in loop.ToolInput, args struct {
		Any map[string]json.RawMessage `json:"any"`
	}) (loop.ToolOutput, error) {
		return loop.ToolOutput{Content: string(args.Any["n"]) + "|" + string(in.Arguments)}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	const raw = `{"any": {"n": [18446744073709551615, 1e400, 1.0], "m": "<"} }`
	out, err := tool.Call(t.Context(), loop.ToolInput{Arguments: []byte(raw)})
	if err != nil || out.Content != "[18446744073709551615, 1e400, 1.0]|"+raw {
		t.Errorf("got %q and error %v", out.Content, err)
	}
}

func TestARepeatedKeyCountsOnceAndWhole(t *testing.T) {
	t.Parallel()
	type inner struct {
		A int64 `json:"a,omitempty"`
		B int64 `json:"b,omitempty"`
	}
	var got struct {
		O inner           `json:"o"`
		R json.RawMessage `json:"r"`
	}
	err := call(t, define(t, &got), `{"o":{"a":1},"r":0,"o":{"b":9007199254740993,"b":9007199254740995},"r":[1e400]}`)
	if err != nil || got.O.A != 0 || got.O.B != 9007199254740995 || string(got.R) != "[1e400]" {
		t.Errorf("got %+v and error %v, want only the last of each", got, err)
	}
	// The check sees what the tool would get: the last one.
	if err := call(t, define(t, &got), `{"r":1,"o":{"a":1},"o":7}`); err == nil {
		t.Error("an object whose last value is a number was accepted")
	}
}

type strict struct {
	Name   string      `json:"name"`
	Count  int64       `json:"count,omitempty"`
	Small  uint8       `json:"small,omitempty"`
	Amount json.Number `json:"amount,omitempty"`
	Tags   []string    `json:"tags,omitempty"`
	Deep   struct {
		X bool `json:"x"`
	} `json:"deep,omitzero"`
}

func TestArgumentsThatDoNotFitAreRefused(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, arguments, want string }{
		{"Fits", `{"name":"n","count":1,"small":255,"amount":0.1,"tags":["a"],"deep":{"x":true}}`, ""},
		{"Blank", " \n", `missing properties: ["name"]`},
		{"Missing", `{}`, `missing properties: ["name"]`},
		{"MissingBelow", `{"name":"n","deep":{}}`, `missing properties: ["x"]`},
		{"Unknown", `{"name":"n","nick":"x"}`, `unexpected additional properties ["nick"]`},
		{"OtherCase", `{"name":"n","NAME":"x"}`, `unexpected additional properties ["NAME"]`},
		{"UnknownBelow", `{"name":"n","deep":{"x":true,"y":1}}`, `unexpected additional properties ["y"]`},
		{"NumberForText", `{"name":5}`, `has type "integer", want "string"`},
		{"HugeNumberForText", `{"name":1e400}`, `has type "integer", want "string"`},
		{"TextForNumber", `{"name":"n","amount":"0.1"}`, `has type "string", want "number"`},
		{"Null", `{"name":null}`, `want "string"`},
		{"WrongItem", `{"name":"n","tags":["a",1]}`, `want "string"`},
		{"Fraction", `{"name":"n","count":1.5}`, `has type "number", want "integer"`},
		{"TooLarge", `{"name":"n","count":9223372036854775808}`, "count: number 9223372036854775808 does not fit int64"},
		{"MuchTooLarge", `{"name":"n","count":-1e400}`, "count: number -1e400 does not fit int64"},
		{"OutOfRange", `{"name":"n","small":256}`, "maximum: "},
		{"NotAnObject", `[1]`, `has type "array", want "object"`},
		{"CutOff", `{"name":"half`, "arguments are cut off"},
		{"NotJSON", `{name:1}`, "arguments are not valid JSON"},
		{"TwoDocuments", `{"name":"n"}{}`, "arguments are not valid JSON"},
		{"VeryDeep", strings.Repeat("[", 1_000_000) + strings.Repeat("]", 1_000_000), "exceeded max depth"},
	}
	tool := define(t, &strict{})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := tool.Validate([]byte(tt.arguments))
			_, callErr := tool.Call(t.Context(), loop.ToolInput{Arguments: []byte(tt.arguments)})
			if tt.want == "" {
				if err != nil || callErr != nil {
					t.Errorf("got errors %v and %v", err, callErr)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || fmt.Sprint(err) != fmt.Sprint(callErr) {
				t.Errorf("got errors %v and %v, want %q in both", err, callErr, tt.want)
			}
		})
	}
}

// picky refuses what its schema lets through.
type picky struct {
	Word word `json:"word"`
}

type word struct{}

func (w *word) UnmarshalJSON([]byte) error { return errors.New("no word is good enough") }

func TestAnErrorOfTheTypesOwnDecoderIsShown(t *testing.T) {
	t.Parallel()
	err := call(t, define(t, &picky{}), `{"word":{}}`)
	if err == nil || !strings.Contains(err.Error(), "no word is good enough") {
		t.Errorf("got error %v", err)
	}
}

func TestTheSchemaTellsTheModelWhatToWrite(t *testing.T) {
	t.Parallel()
	var got struct {
		Zone string          `json:"zone" jsonschema:"an IANA zone"`
		N    json.Number     `json:"n,omitempty"`
		Raw  json.RawMessage `json:"raw,omitempty"`
	}
	const want = `{"type":"object","properties":{"zone":{"type":"string","description":"an IANA zone"},"n":{"type":"number"},"raw":true},` +
		`"required":["zone"],"additionalProperties":false}`
	if s := string(define(t, &got).Spec().Schema); s != want {
		t.Errorf("got %s\nwant %s", s, want)
	}
}

func TestDefineRefusesWhatCannotBeATool(t *testing.T) {
	t.Parallel()
	type cyclic struct {
		Next *cyclic `json:"next"`
	}
	spec := loop.ToolSpec{Name: "probe"}
	tests := []struct {
		name string
		err  error
		want string
	}{
		{"NoName", try[struct{}](loop.ToolSpec{}), "it has no name"},
		{"OwnSchema", try[struct{}](loop.ToolSpec{Name: "probe", Schema: []byte(`{}`)}), "leave it empty"},
		{"NotAnObject", try[string](spec), "must be a struct"},
		{"Float", try[struct{ A struct{ B []*float64 } }](spec), ".A.B: a float64 rounds numbers"},
		{"FloatInMap", try[struct{ M map[string]float32 }](spec), ".M: a float32 rounds numbers"},
		{"Func", try[struct{ F func() }](spec), "unsupported"},
		{"Cycle", try[cyclic](spec), "cycle"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.err == nil || !strings.Contains(tt.err.Error(), tt.want) {
				t.Errorf("got error %v, want %q in it", tt.err, tt.want)
			}
		})
	}
}

func TestAFloatThatJSONNeverReachesIsFine(t *testing.T) {
	t.Parallel()
	if err := try[struct {
		Name   string `json:"name"`
		weight float64
	}](loop.ToolSpec{Name: "probe"}); err != nil {
		t.Error(err)
	}
}

func try[In any](spec loop.ToolSpec) error {
	_, err := builtin.Define(spec, func(context.Context, loop.ToolInput, In) (loop.ToolOutput, error) {
		return loop.ToolOutput{}, nil
	})
	return err
}
