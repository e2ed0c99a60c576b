package yamlfile_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/yamlfile"
)

// level reads itself as one of two words.
type level int

func (l *level) UnmarshalText(text []byte) error {
	switch string(text) {
	case "low", "high":
		*l = level(len(text))
		return nil
	}
	return errors.New("expected low or high")
}

type everything struct {
	Name   string              `yaml:"name,required"`
	ID     yamlfile.Identifier `yaml:"id"`
	On     bool                `yaml:"on"`
	Count  int                 `yaml:"count,positive"`
	Size   int64               `yaml:"size"`
	Wait   time.Duration       `yaml:"wait"`
	Tools  yamlfile.Globs      `yaml:"tools"`
	Words  []string            `yaml:"words"`
	Level  level               `yaml:"level"`
	Inner  *inner              `yaml:"inner"`
	ByName map[string]inner    `yaml:"by_name"`
	Limit  json.Number         `yaml:"limit"`
	Any    []any               `yaml:"any"`
	Hidden func()              `yaml:"-"`
	Other  func()              // has no tag: it is not read
	Deep   map[string][]inner  `yaml:"deep"`
}

type inner struct {
	X int `yaml:"x,required"`
}

func decode(text string, into any) (*yamlfile.Problems, bool) {
	p := &yamlfile.Problems{}
	f := yamlfile.Parse("f.yaml", []byte(text), "a mapping", p)
	return p, f != nil && f.Decode(f.Root, "it", into)
}

func TestDecodeReadsWhatAStructNames(t *testing.T) {
	t.Parallel()
	var got everything
	p, ok := decode(`
name: a b
id: x-1
on: true
count: 3
size: 9223372036854775807
wait: 1m
tools: memory_*
words: one
level: high
inner: {x: 0}
by_name: {a: {x: 1}, "b c": {x: 2}}
deep: {a: [{x: 1}, {x: 2}], b: {x: 3}}
limit: 100000000000000000000.10
any: [a, true, 1.0, "1"]
`, &got)
	want := everything{
		Name: "a b", ID: "x-1", On: true, Count: 3, Size: 1<<63 - 1, Wait: time.Minute, Tools: yamlfile.Globs{"memory_*"},
		Words: []string{"one"}, Level: 4, Inner: &inner{}, ByName: map[string]inner{"a": {1}, "b c": {2}},
		Deep:  map[string][]inner{"a": {{1}, {2}}, "b": {{3}}},
		Limit: "100000000000000000000.10", Any: []any{"a", true, json.Number("1.0"), "1"},
	}
	if !ok || p.Err() != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %+v\nwant %+v", p.Err(), got, want)
	}
}

func TestDecodeTellsWhatIsWrongAndWhere(t *testing.T) {
	t.Parallel()
	p, ok := decode(`
nam: a
id: a b
on: yes
count: 0
size: 1.5
wait: soon
tools: "a["
words: [x, 7]
level: medium
inner: {y: 1}
by_name: [x]
deep: {a: x}
limit: x
any: [[], .5]
`, new(everything))
	want := `f.yaml:2:1: it has no key "nam"; expected one of any, by_name, count, deep, id, inner, level, limit, name, on, size, tools, wait, words
f.yaml:2:1: it has no key name
f.yaml:3:5: id is "a b"; expected letters, digits, . _ and -
f.yaml:4:5: on is "yes"; expected true or false
f.yaml:5:8: count is 0; expected a number from 1
f.yaml:6:7: size is "1.5"; expected a number from 0
f.yaml:7:7: wait is "soon"; expected a time from 0s to 10000h0m0s, such as 200ms
f.yaml:8:8: tools: "a[" is no glob, such as memory_*
f.yaml:9:12: expected words as a text, not "7"
f.yaml:10:8: level: expected low or high
f.yaml:11:8: inner has no key x
f.yaml:11:9: inner has no key "y"; expected one of x
f.yaml:12:10: expected by_name as a mapping, not a list
f.yaml:13:11: expected deep.a as a mapping, not "x"
f.yaml:14:8: limit is "x"; expected a number as JSON writes it
f.yaml:15:7: any is a list; expected a text, a number, true or false
f.yaml:15:11: any is ".5"; expected a text, a number, true or false`
	if ok || p.Err() == nil || p.Err().Error() != want {
		t.Errorf("got\n%v\nwant\n%s", p.Err(), want)
	}
	for text, want := range map[string]string{
		"level: [high]": "f.yaml:1:8: expected level, not a list", "level:": "f.yaml:1:7: expected level, not nothing",
		"[]": "f.yaml:1:1: expected it as a mapping, not a list", "name: x\nname: y": `f.yaml:2:1: the key "name" stands twice`,
	} {
		if p, ok := decode(text, new(everything)); ok || p.Err() == nil || !strings.Contains(p.Err().Error(), want) {
			t.Errorf("%s: %v", text, p.Err())
		}
	}
}

func TestDecodePanicsOverATypeThatCannotBeRead(t *testing.T) {
	t.Parallel()
	panicked := func() (v any) {
		defer func() { v = recover() }()
		decode("x: 1", &struct {
			X chan int `yaml:"x"`
		}{})
		return nil
	}
	if panicked() == nil {
		t.Error("it is passed over")
	}
}
