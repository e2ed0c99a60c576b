package openaitest_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/loop/model/openai/openaitest"
)

// messages is a body with these messages.
func messages(list ...string) string {
	return `{"model":"m","stream":true,"messages":[` + strings.Join(list, ",") + `]}`
}

// tools is a body with these tools.
func tools(list ...string) string {
	return `{"model":"m","stream":true,"messages":[` + user + `],"tools":[` + strings.Join(list, ",") + `]}`
}

func parameters(schema string) string {
	return tools(`{"type":"function","function":{"name":"f","parameters":` + schema + `}}`)
}

func call(id, name, arguments string) string {
	return `{"id":"` + id + `","type":"function","function":{"name":"` + name + `","arguments":` + arguments + `}}`
}

func calls(list ...string) string {
	return `{"role":"assistant","tool_calls":[` + strings.Join(list, ",") + `]}`
}

func result(id string) string { return `{"role":"tool","tool_call_id":"` + id + `","content":"r"}` }

const (
	user   = `{"role":"user","content":"hi"}`
	answer = `{"role":"assistant","content":"hello"}`
)

var (
	callA, callB = call("a", "f", `"{}"`), call("b", "f", `"{}"`)
	manyA        = strings.Repeat("a", 65)
)

func TestWhatEveryProviderRefuses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ body, param, message string }{
		"NoJSON":      {`{"model":`, "", "cannot be parsed"},
		"NoUTF8":      {"{\"model\":\"\xff\"}", "", "not UTF-8"},
		"NoObject":    {`[]`, "", "cannot be parsed"},
		"Nothing":     {`null`, "", "model has to be named"},
		"NoModel":     {`{"stream":true,"messages":[` + user + `]}`, "", "model has to be named"},
		"NoStream":    {`{"model":"m","messages":[` + user + `]}`, "stream", "only streams"},
		"NoMessages":  {messages(), "messages", "has to be a message"},
		"WrongTypes":  {`{"model":5}`, "", "cannot be parsed"},
		"UnknownRole": {messages(`{"role":"robot","content":"hi"}`), "messages.[0].role", `no role "robot"`},
		"NoRole":      {messages(`{"content":"hi"}`), "messages.[0].role", `no role ""`},

		"NoContent":         {messages(`{"role":"user"}`), "messages.[0].content", "needs content"},
		"NullContent":       {messages(`{"role":"user","content":null}`), "messages.[0].content", "needs content"},
		"EmptyText":         {messages(`{"role":"user","content":""}`), "messages.[0].content", "blank"},
		"BlankText":         {messages(`{"role":"user","content":" \n\t"}`), "messages.[0].content", "blank"},
		"EmptyAnswer":       {messages(user, `{"role":"assistant","content":""}`), "messages.[1].content", "blank"},
		"AnswerWithNothing": {messages(user, `{"role":"assistant"}`), "messages.[1].content", "needs content"},
		"EmptyBesideCalls":  {messages(user, `{"role":"assistant","content":"","tool_calls":[`+callA+`]}`, result("a")), "messages.[1].content", "blank"},
		"EmptyResult":       {messages(user, calls(callA), `{"role":"tool","tool_call_id":"a","content":""}`), "messages.[2].content", "blank"},
		"NullResult":        {messages(user, calls(callA), `{"role":"tool","tool_call_id":"a","content":null}`), "messages.[2].content", "needs content"},
		"NumberAsContent":   {messages(`{"role":"user","content":5}`), "messages.[0].content", "text or a list"},
		"NoParts":           {messages(`{"role":"user","content":[]}`), "messages.[0].content", "text or a list"},
		"BlankPart":         {messages(`{"role":"user","content":[{"type":"text","text":"hi"},{"type":"text","text":" "}]}`), "messages.[0].content.[1].text", "blank"},
		"PartWithoutText":   {messages(`{"role":"user","content":[{"type":"text"}]}`), "messages.[0].content.[0].text", "blank"},
		"WrongPart":         {messages(user, `{"role":"assistant","content":[{"type":"image_url"}]}`), "messages.[1].content.[0].type", "no parts of type"},

		"Unanswered":            {messages(user, calls(callA)), "messages.[1].tool_calls", `none for ["a"]`},
		"OneOfTwoUnanswered":    {messages(user, calls(callA, callB), result("b")), "messages.[1].tool_calls", `none for ["a"]`},
		"UserBeforeTheResult":   {messages(user, calls(callA), user, result("a")), "messages.[1].tool_calls", "before message 2"},
		"AnswerBeforeTheResult": {messages(user, calls(callA), answer, result("a")), "messages.[1].tool_calls", "before message 2"},
		"ResultWithoutCall":     {messages(user, result("a")), "messages.[1].role", `no call "a"`},
		"ResultFirst":           {messages(result("a"), user), "messages.[0].role", `no call "a"`},
		"ResultOfAnEarlierCall": {messages(user, calls(callA), result("a"), calls(callB), result("a")), "messages.[4].role", `no call "a"`},
		"ResultTwice":           {messages(user, calls(callA, callB), result("a"), result("a"), result("b")), "messages.[3].tool_call_id", "second result"},
		"ResultWithoutID":       {messages(user, calls(callA), `{"role":"tool","content":"r"}`), "messages.[2].tool_call_id", "needs the id"},
		"ResultWithCalls":       {messages(user, calls(callA), `{"role":"tool","content":"r","tool_call_id":"a","tool_calls":[`+callB+`]}`), "messages.[2].tool_calls", "only an answer"},

		"NoCalls":          {messages(user, calls()), "messages.[1].tool_calls", "must not be empty"},
		"UserCalls":        {messages(`{"role":"user","content":"hi","tool_calls":[` + callA + `]}`), "messages.[0].tool_calls", "only an answer"},
		"UserAnswers":      {messages(`{"role":"user","content":"hi","tool_call_id":"a"}`), "messages.[0].tool_call_id", "only a tool message"},
		"IDTwiceInOne":     {messages(user, calls(callA, callA), result("a")), "messages.[1].tool_calls", "used by two calls"},
		"IDTwice":          {messages(user, calls(callA), result("a"), calls(callA), result("a")), "messages.[3].tool_calls", "used by two calls"},
		"NoID":             {messages(user, calls(call("", "f", `"{}"`))), "messages.[1].tool_calls.[0].id", "needs an id"},
		"NoType":           {messages(user, calls(`{"id":"a","function":{"name":"f","arguments":"{}"}}`)), "messages.[1].tool_calls.[0].type", "no call of type"},
		"BadName":          {messages(user, calls(call("a", "a.b", `"{}"`))), "messages.[1].tool_calls.[0].function.name", `"a.b" does not match`},
		"EmptyName":        {messages(user, calls(call("a", "", `"{}"`))), "messages.[1].tool_calls.[0].function.name", `"" does not match`},
		"LongName":         {messages(user, calls(call("a", manyA, `"{}"`))), "messages.[1].tool_calls.[0].function.name", "does not match"},
		"ObjectArguments":  {messages(user, calls(call("a", "f", `{}`))), "messages.[1].tool_calls.[0].function.arguments", "have to be a string"},
		"NullArguments":    {messages(user, calls(call("a", "f", `null`))), "messages.[1].tool_calls.[0].function.arguments", "have to be a string"},
		"NoArguments":      {messages(user, calls(`{"id":"a","type":"function","function":{"name":"f"}}`)), "messages.[1].tool_calls.[0].function.arguments", "have to be a string"},
		"EmptyArguments":   {messages(user, calls(call("a", "f", `""`))), "messages.[1].tool_calls.[0].function.arguments", "text of a JSON object"},
		"CutArguments":     {messages(user, calls(call("a", "f", `"{\"b\":"`))), "messages.[1].tool_calls.[0].function.arguments", "text of a JSON object"},
		"ListArguments":    {messages(user, calls(call("a", "f", `"[]"`))), "messages.[1].tool_calls.[0].function.arguments", "text of a JSON object"},
		"NullTextArgument": {messages(user, calls(call("a", "f", `"null"`))), "messages.[1].tool_calls.[0].function.arguments", "text of a JSON object"},

		"EmptyTools":       {tools(), "tools", "must not be empty"},
		"ToolType":         {tools(`{"type":"magic","function":{"name":"f"}}`), "tools[0].type", "no tool of type"},
		"ToolName":         {tools(`{"type":"function","function":{"name":"a b"}}`), "tools[0].function.name", "does not match"},
		"ToolNameTwice":    {tools(`{"type":"function","function":{"name":"f"}}`, `{"type":"function","function":{"name":"f"}}`), "tools", `two tools are called "f"`},
		"NoObjectSchema":   {parameters(`{"type":"string"}`), "tools[0].function.parameters", `not "string"`},
		"SchemaOfNoType":   {parameters(`{}`), "tools[0].function.parameters", `has to be "object"`},
		"NullSchema":       {parameters(`null`), "tools[0].function.parameters", "no object schema"},
		"SchemaIsAText":    {parameters(`"object"`), "tools[0].function.parameters", "no object schema"},
		"UnknownType":      {parameters(`{"type":"object","properties":{"a":{"type":"text"}}}`), "tools[0].function.parameters", `/a: there is no type "text"`},
		"NumberAsType":     {parameters(`{"type":"object","properties":{"a":{"type":5}}}`), "tools[0].function.parameters", "/a: 5 is no type"},
		"ArrayOfWhat":      {parameters(`{"type":"object","properties":{"a":{"type":["null","array"]}}}`), "tools[0].function.parameters", "/a: an array has no items"},
		"ItemsAreNoSchema": {parameters(`{"type":"object","properties":{"a":{"type":"array","items":5}}}`), "tools[0].function.parameters", "/a/items"},
		"NullProperty":     {parameters(`{"type":"object","properties":{"a":null}}`), "tools[0].function.parameters", "/a: null is no schema"},
		"MissingRequired":  {parameters(`{"type":"object","required":["a"]}`), "tools[0].function.parameters", `"a" is not there`},
		"BadBranch":        {parameters(`{"type":"object","properties":{"a":{"anyOf":[{"type":"x"}]}}}`), "tools[0].function.parameters", "/a/anyOf"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantRefusal(t, openaitest.Rules{}, tt.body, tt.param, tt.message)
		})
	}
}

func TestWhatSomeProvidersRefuse(t *testing.T) {
	t.Parallel()
	nulls := openaitest.Rules{RefuseNullContent: true}
	alternating := openaitest.Rules{Alternate: true}
	known := openaitest.Rules{RefuseUnknownFields: true}
	contents := openaitest.Rules{WantContent: true}
	const system = `{"role":"system","content":"be kind"}`
	for name, tt := range map[string]struct {
		rules                openaitest.Rules
		body, param, message string
	}{
		"NullBesideCalls":      {nulls, messages(user, `{"role":"assistant","content":null,"tool_calls":[`+callA+`]}`, result("a")), "messages.[1].content", "must not be null"},
		"NullBesideCallsAgain": {contents, messages(user, `{"role":"assistant","content":null,"tool_calls":[`+callA+`]}`, result("a")), "messages.[1].content", "needs content"},
		"NoContentBesideCalls": {contents, messages(user, calls(callA), result("a")), "messages.[1].content", "needs content"},
		"CallsWithoutThought":  {openaitest.Rules{WantReasoning: true}, messages(user, calls(callA), result("a")), "messages.[1].reasoning_content", "need the reasoning"},
		"TwoUsers":             {alternating, messages(user, user), "messages", "alternate"},
		"TwoAnswers":           {alternating, messages(user, answer, answer, user), "messages", "alternate"},
		"AnswerFirst":          {alternating, messages(answer, user), "messages", "first message"},
		"AnswerBehindTheStart": {alternating, messages(system, answer, user), "messages", "first message"},
		"LateSystem":           {alternating, messages(user, answer, system, user), "messages", "has to come first"},
		"AnswerLast":           {alternating, messages(user, answer), "messages", "last message"},
		"SystemOnly":           {alternating, messages(system), "messages", "last message"},
		"UnknownArgument":      {known, `{"model":"m","stream":true,"messages":[` + user + `],"x":1}`, "x", "not known"},
		"UnknownInAMessage":    {known, messages(`{"role":"user","content":"hi","id":"m1"}`), "messages.[0].id", "not known"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantRefusal(t, tt.rules, tt.body, tt.param, tt.message)
			if _, got := send(t, openaitest.Rules{}, tt.body); got.status != http.StatusOK {
				t.Errorf("others answered %d, want 200", got.status)
			}
		})
	}
}

func TestWhatNobodyRefuses(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"Hello":           hello,
		"SystemOnlyFirst": messages(`{"role":"system","content":"be kind"}`, `{"role":"developer","content":"really"}`, user),
		"PartsOfContent":  messages(`{"role":"user","content":[{"type":"text","text":"hi"},{"type":"image_url","image_url":{"url":"u"}}]}`),
		"CallsAndResults": messages(user, calls(callA, callB), result("b"), result("a"), calls(call("c", "f-g_H9", `"{\"a\":[1]}"`)), result("c"), answer, user),
		"TextBesideCalls": messages(user, `{"role":"assistant","content":"see","tool_calls":[`+callA+`]}`, `{"role":"tool","tool_call_id":"a","content":[{"type":"text","text":"r"}]}`),
		"UserBehindTools": messages(user, calls(callA), result("a"), user),
		"ToolOfNothing":   tools(`{"type":"function","function":{"name":"f"}}`),
		"Schema": parameters(`{"type":"object","required":["a"],"properties":{"a":{"type":["string","null"],"enum":["x",null]},` +
			`"b":{"type":"array","items":{"type":"object"}},"c":{"anyOf":[{"type":"integer"},true]},"d":{}}}`),
		"ManySettings": `{"model":"m","stream":true,"stream_options":{"include_usage":true},"temperature":0,"messages":[` + user + `]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			strict := openaitest.Rules{RefuseNullContent: true, Alternate: true, RefuseUnknownFields: true}
			if _, got := send(t, strict, body); got.status != http.StatusOK {
				t.Errorf("answered %d: %s", got.status, got.text)
			}
		})
	}
	t.Run("EmptyBesideCallsWhereContentIsWanted", func(t *testing.T) {
		t.Parallel()
		body := messages(user, `{"role":"assistant","content":"","reasoning_content":"hm","tool_calls":[`+callA+`]}`, result("a"))
		if _, got := send(t, openaitest.Rules{WantContent: true, WantReasoning: true}, body); got.status != http.StatusOK {
			t.Errorf("answered %d: %s", got.status, got.text)
		}
	})
	t.Run("NullBesideCalls", func(t *testing.T) {
		t.Parallel()
		body := messages(user, `{"role":"assistant","content":null,"tool_calls":[`+callA+`]}`, result("a"))
		if _, got := send(t, openaitest.Rules{}, body); got.status != http.StatusOK {
			t.Errorf("answered %d: %s", got.status, got.text)
		}
	})
}

func TestTheEndpointIsChecked(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		edit   func(*http.Request)
		status int
		code   string
	}{
		"Path":        {func(r *http.Request) { r.URL.Path = "/v1/models" }, 404, "unknown_url"},
		"Method":      {func(r *http.Request) { r.Method = http.MethodPut }, 405, "method_not_supported"},
		"NoKey":       {func(r *http.Request) { r.Header.Del("Authorization") }, 401, "invalid_api_key"},
		"WrongKey":    {func(r *http.Request) { r.Header.Set("Authorization", "Bearer no") }, 401, "invalid_api_key"},
		"ContentType": {func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 400, ""},
		"Fine":        {func(*http.Request) {}, 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := openaitest.Config{Key: "sesame", MayRefuse: true}.New(t, openaitest.Text("hi"))
			r := request(t.Context(), t, p, hello)
			r.Header.Set("Authorization", "Bearer sesame")
			tt.edit(r)
			res, err := client(t).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if res.StatusCode != tt.status {
				t.Errorf("answered %d, want %d", res.StatusCode, tt.status)
			}
			for _, refusal := range p.Refusals() {
				if refusal.Code != tt.code {
					t.Errorf("code %q, want %q", refusal.Code, tt.code)
				}
			}
		})
	}
}

// send sends a body to a provider with these rules, which has an answer.
func send(t *testing.T, rules openaitest.Rules, body string) (*openaitest.Provider, reply) {
	t.Helper()
	p := openaitest.Config{Rules: rules, MayRefuse: true}.New(t, openaitest.Text("hi"))
	got := ask(t, client(t), p, body)
	if got.err != nil {
		t.Fatal(got.err)
	}
	return p, got
}

// wantRefusal wants a 400 with the error object of the protocol.
func wantRefusal(t *testing.T, rules openaitest.Rules, body, param, message string) {
	t.Helper()
	p, got := send(t, rules, body)
	var said struct {
		Error struct {
			Message, Type string
			Param, Code   *string
		}
	}
	if err := json.Unmarshal([]byte(got.text), &said); err != nil {
		t.Fatalf("%v: %s", err, got.text)
	}
	about := ""
	if said.Error.Param != nil {
		about = *said.Error.Param
	}
	if got.status != http.StatusBadRequest || got.header.Get("Content-Type") != "application/json" ||
		said.Error.Type != "invalid_request_error" || about != param || !strings.Contains(said.Error.Message, message) {
		t.Errorf("answered %d %s, want a 400 about %q: %q", got.status, got.text, param, message)
	}
	if coded := said.Error.Code != nil; coded != strings.HasSuffix(param, "parameters") {
		t.Errorf("code: %s", got.text)
	}
	if list := p.Refusals(); len(list) != 1 || list[0].Message != said.Error.Message || string(list[0].Request.Body) != body || p.Left() != 1 {
		t.Errorf("recorded %+v, and %d answers are left", list, p.Left())
	}
}
