package anthropictest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }

func ask(method, path, body string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Anthropic-Version", "2023-06-01")
	r.Header.Set("Content-Type", "application/json")
	return r
}

func TestWhatTheFakeRefuses(t *testing.T) {
	t.Parallel()
	const (
		user   = `{"role":"user","content":[{"type":"text","text":"hi"}]}`
		call   = `{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]}`
		result = `{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"x"}]}`
	)
	with := func(messages ...string) string {
		return `{"model":"m","max_tokens":1,"stream":true,"messages":[` + strings.Join(messages, ",") + `]}`
	}
	tools := func(tools string) string {
		return `{"model":"m","max_tokens":1,"stream":true,"messages":[` + user + `],"tools":[` + tools + `]}`
	}
	said := func(role, blocks string) string { return `{"role":"` + role + `","content":[` + blocks + `]}` }
	for name, tt := range map[string]struct{ body, want string }{
		"Fine":              {with(user, call, result), ""},
		"FineTool":          {tools(`{"name":"f","input_schema":{"type":"object"}}`), ""},
		"NoJSON":            {"{", "unexpected EOF"},
		"UnknownField":      {`{"temp":1}`, `unknown field "temp"`},
		"NoModel":           {`{}`, "model: field required"},
		"NoMaxTokens":       {`{"model":"m"}`, "max_tokens: field required"},
		"NoStream":          {`{"model":"m","max_tokens":1}`, "stream: must be true"},
		"NoMessages":        {with(), "at least one message"},
		"FirstNotUser":      {with(said("assistant", `{"type":"text","text":"hi"}`)), "roles must alternate"},
		"SameRoleTwice":     {with(user, user), "roles must alternate"},
		"System":            {with(said("system", `{"type":"text","text":"hi"}`)), "roles must alternate"},
		"NoContent":         {with(said("user", "")), "must have content"},
		"BlankText":         {with(said("user", `{"type":"text","text":" \n"}`)), "non-whitespace"},
		"UnknownBlock":      {with(said("user", `{"type":"thinking"}`)), `"thinking" is not one`},
		"CallOfTheUser":     {with(said("user", `{"type":"tool_use","id":"a","name":"f","input":{}}`)), `"tool_use" is not one`},
		"BadID":             {with(user, said("assistant", `{"type":"tool_use","id":"a.b","name":"f","input":{}}`), result), "id: "},
		"BadName":           {with(user, said("assistant", `{"type":"tool_use","id":"a","name":"f.g","input":{}}`), result), "name: "},
		"NoInput":           {with(user, said("assistant", `{"type":"tool_use","id":"a","name":"f"}`), result), "input: "},
		"SameID":            {with(user, call, result, call, result), "must be unique"},
		"NoResult":          {with(user, call), "tool_use without tool_result"},
		"ResultLater":       {with(user, call, user), "messages.1: tool_use without tool_result"},
		"ResultWithoutCall": {with(result), "unexpected tool_use_id"},
		"ResultTwice":       {with(user, call, result, said("assistant", `{"type":"text","text":"hi"}`), result), "unexpected tool_use_id"},
		"ResultBehindText":  {with(user, call, said("user", `{"type":"text","text":"hi"},{"type":"tool_result","tool_use_id":"a","content":"x"}`)), "must come first"},
		"BlankResult":       {with(user, call, said("user", `{"type":"tool_result","tool_use_id":"a","content":" "}`)), "must not be blank"},
		"BadToolName":       {tools(`{"name":"f.g","input_schema":{"type":"object"}}`), "tools.0.name"},
		"SameTool":          {tools(`{"name":"f","input_schema":{"type":"object"}},{"name":"f","input_schema":{"type":"object"}}`), "names must be unique"},
		"NoSchema":          {tools(`{"name":"f"}`), "tools.0.input_schema"},
	} {
		_, got := check(ask(http.MethodPost, "/v1/messages", tt.body), []byte(tt.body))
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
	for name, r := range map[string]*http.Request{
		"Path": ask(http.MethodPost, "/v1/complete", ""), "Method": ask(http.MethodGet, "/v1/messages", ""), "Version": httptest.NewRequest(http.MethodPost, "/v1/messages", http.NoBody),
	} {
		if _, got := check(r, []byte(with(user))); got == "" {
			t.Errorf("%s: was not refused", name)
		}
	}
	typed := ask(http.MethodPost, "/v1/messages", "")
	typed.Header.Set("Content-Type", "text/plain")
	if _, got := check(typed, []byte(with(user))); got == "" {
		t.Error("a text was not refused")
	}
}
