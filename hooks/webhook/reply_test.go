package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// replies are those of all gates.
func replies() []interface{ common() *head } {
	return []interface{ common() *head }{
		&inputReply{}, &runStartReply{}, &contextReply{}, &headersReply{}, &requestReply{}, &plainReply{}, &callReply{}, &outputReply{},
	}
}

var badReplies = []string{
	``, ` `, `x`, `null`, `[]`, `"a"`, `1`, `{`, `{}}`, `{},`, `{} {}`, `[{}]`, "\xef\xbb\xbf{}", "{}\x00", `{"id":"a",}`, `{'id':'a'}`, `{"id":"a" "action":"b"}`, `/**/{}`,
	`{"Id":"a"}`, `{"ID":"a"}`, `{"ıd":"a"}`, `{"id":"a","id":"a"}`, `{"id":"a","i\u0064":"b"}`, `{"id":"a","":1}`, `{"id":"a","x":null}`,
	`{"id":null}`, `{"id":1}`, `{"id":["a"]}`, `{"id":{"a":1}}`, `{"id":true}`, `{"id":"a","action":{}}`, `{"action":null}`,
	`{"reason":"no"}`, `{"reason":null}`, `{"reason":[]}`, `{"reason":{"Code":"a"}}`, `{"reason":{"code":"a","code":"b"}}`, `{"reason":{"code":1}}`, `{"reason":{"why":"a"}}`,
	`{"annotations":[]}`, `{"annotations":{"a":1}}`, `{"annotations":{"a":null}}`, `{"annotations":{"a":"b","a":"c"}}`, `{"annotations":{"a":{}}}`,
	"{\"id\":\"\xff\"}", "{\"id\":\"\xed\xa0\x80\"}", `{"id":"\ud800"}`, `{"id":"\udc00"}`, `{"id":"\ud800\ud800"}`, `{"id":"\ud800x"}`, `{"id":"\ud800\u0041"}`, `{"id":"\\\ud800"}`,
	`{"text":1}`, `{"text":null}`, `{"arguments":{"a":1}}`, `{"messages":{}}`, `{"messages":[1]}`, `{"messages":[[]]}`, `{"messages":[{"Role":"user"}]}`, `{"messages":[{"position":"1"}]}`,
	`{"messages":[{"position":1.5}]}`, `{"messages":[{"position":1e400}]}`, `{"messages":[{"position":9223372036854775808}]}`, `{"messages":[{"parts":[{"tool_call":{"Name":"a"}}]}]}`,
	`{"messages":[{"parts":[{"tool_call":null}]}]}`, `{"messages":[{"partial":1}]}`, `{"is_error":"true"}`, `{"is_error":null}`, `{"set":[{"name":"a","value":1}]}`, `{"set":{"a":"b"}}`,
	`{"remove":[1]}`, `{"remove":"a"}`, `{"tools":null}`, `{"append":[{"role":"user","Text":"a"}]}`, `{"set":[{"name":"a","name":"b"}]}`,
}

func TestOnlyAnAnswerToTheLetterIsOne(t *testing.T) {
	t.Parallel()
	for _, text := range badReplies {
		for _, v := range replies() {
			if err := decode([]byte(text), 1<<20, v); err == nil {
				t.Errorf("%q is a %T: %+v", text, v, v)
			}
		}
	}
	// What one gate takes another does not.
	for _, v := range replies()[1:] {
		if err := decode([]byte(`{"text":"a"}`), 1<<20, v); err == nil {
			t.Errorf("a text is a %T", v)
		}
	}
}

func TestAnAnswerIsReadInAnyOrderAndSpacing(t *testing.T) {
	t.Parallel()
	var v callReply
	text := "\r\n\t {\"arguments\" : \"\\u007b}\\ud83d\\ude00\" , \"annotations\":{\"A\":\"1\",\"a\":\"\\\\ud800\"},\n\"reason\":{},\"action\":\"transform\",\"\\u0069d\":\"x\"} \n"
	if err := decode([]byte(text), 1<<20, &v); err != nil {
		t.Fatal(err)
	}
	arguments := "{}😀"
	want := callReply{head{ID: "x", Action: hooks.ActionTransform, Annotations: map[string]string{"A": "1", "a": `\ud800`}}, &arguments}
	if !reflect.DeepEqual(v, want) {
		t.Errorf("got %+v, want %+v", v, want)
	}
}

func TestAMillionEmptyElementsAreNotFree(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"messages":[` + strings.Repeat("{},", 100) + `{}]}`, `{"messages":[{"parts":[` + strings.Repeat("{},", 100) + `{}]}]}`,
	} {
		if err := decode([]byte(text), 100*elementSize, &contextReply{}); !errors.Is(err, errElements) {
			t.Errorf("%.20s: %v", text, err)
		}
		if err := decode([]byte(text), 102*elementSize, &contextReply{}); err != nil {
			t.Errorf("%.20s: %v", text, err)
		}
	}
}

// FuzzReply: whatever bytes come, they are an answer that means the same when it
// is written again, or none; errors repeat nothing of it.
func FuzzReply(f *testing.F) {
	for _, text := range badReplies {
		f.Add([]byte(text))
	}
	for _, text := range []string{
		`{"id":"a","action":"block","reason":{"code":"a","text":"b","rule":"c"},"annotations":{"a":"b"}}`, `{"id":"a","action":"handled","text":"a","reply":"b"}`,
		`{"system":"a","append":[{"role":"user","text":"a"}],"tools":["a"]}`, `{"set":[{"name":"a","value":"b"}],"remove":["c"]}`, `{"body":"{}"}`, `{"arguments":"{}"}`,
		`{"content":"a","is_error":true}`, `{"messages":[{"id":"a","run_id":"b","role":"tool","partial":true,"hidden":true,"position":-1,"parts":[
			{"type":"text","text":"a"},{"tool_call":{"id":"a","provider_id":"b","name":"c","arguments":"d"}},{"tool_result":{"call_id":"a","content":"b","is_error":false,"reason":"c"}}]}]}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, v := range replies() {
			err := decode(raw, 1<<16, v)
			if err != nil {
				if len(err.Error()) > 100 || !strings.HasPrefix(err.Error(), "the answer") && !knownPlace(err.Error()) {
					t.Fatalf("%T: %v", v, err)
				}
				continue
			}
			if !utf8.Valid(raw) || bytes.Count(bytes.TrimLeft(raw, " \t\r\n")[:1], []byte("{")) != 1 {
				t.Fatalf("%q is a %T", raw, v)
			}
			var loose map[string]any
			if err := json.Unmarshal(raw, &loose); err != nil {
				t.Fatalf("%q: %v", raw, err)
			}
			known := members(reflect.TypeOf(v).Elem())
			for name, value := range loose {
				if known[name] == nil || value == nil {
					t.Fatalf("%q is a %T with %q", raw, v, name)
				}
			}
			again := reflect.New(reflect.TypeOf(v).Elem()).Interface()
			if err := decode([]byte(encode(v)), 1<<16, again); err != nil {
				// A list that is not there is null, which is no answer.
				if !strings.Contains(encode(v), ":null") {
					t.Fatalf("%q, written again: %v", encode(v), err)
				}
				return
			}
			if encode(again) != encode(v) {
				t.Fatalf("%q is %s, and then %s", raw, encode(v), encode(again))
			}
		}
	})
}

// knownPlace reports whether an error begins with a name that is ours.
func knownPlace(text string) bool {
	for _, v := range replies() {
		if namedIn(reflect.TypeOf(v).Elem(), text) {
			return true
		}
	}
	return false
}

func namedIn(t reflect.Type, text string) bool {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return false
	}
	for name, of := range members(t) {
		for _, before := range []string{"", "an element of ", "a value in "} {
			if strings.HasPrefix(text, before+name+" ") {
				return true
			}
		}
		if namedIn(of, text) {
			return true
		}
	}
	return false
}
