package rules

import (
	"encoding/json"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/yamlfile"
)

// example is one case that stands beside the rules.
type example struct {
	file string
	line int
	name string
	gate *gate
	now  time.Time
	in   vars
	want expectation
}

// expectation is what an example comes to. What is "" or nil is not looked at,
// but for the action and the outcome.
type expectation struct {
	action                    string
	rule, code, reason, reply string
	outcome                   hooks.Outcome
	value                     *value
}

// doSkip is the expected action of a rule whose matchers do not fit.
const doSkip = "skip"

var answers = []string{
	doSkip, string(hooks.ActionContinue), string(hooks.ActionTransform), string(hooks.ActionAsk), string(hooks.ActionHandled),
	string(hooks.ActionTerminate), string(hooks.ActionBlock), string(hooks.ActionWithhold),
}

var outcomes = []string{
	string(hooks.OutcomeOK), string(hooks.OutcomeError), string(hooks.OutcomeTimeout),
	string(hooks.OutcomeOversize), string(hooks.OutcomeUnappliable), string(hooks.OutcomeMalformed),
}

// examples reads a list of them. A nil gate has each say its own.
func (c *compiler) examples(n *yaml.Node, of *gate) []*example {
	if n.Kind != yaml.SequenceNode {
		c.ErrorAt(n, "expected examples as a list, not %s", yamlfile.KindOf(n))
		return nil
	}
	var out []*example
	for _, one := range n.Content {
		if e := c.example(one, of); e != nil {
			out = append(out, e)
		}
	}
	return out
}

func (c *compiler) example(n *yaml.Node, of *gate) *example {
	e := &example{file: c.Name, line: n.Line, gate: of, want: expectation{outcome: hooks.OutcomeOK}}
	e.in = vars{
		RunRef: hooks.RunRef{TenantID: "tenant", SessionID: "session", RunID: "run", Agent: "agent"},
		turn:   1, attempt: 1, revision: 1, input: "input", status: 200, model: "model", call: &hooks.ToolCall{ID: "call", Name: "tool", Arguments: "{}"},
		body: "{}", tools: []string{}, messages: []hooks.Message{},
	}
	if of == nil && n.Kind == yaml.MappingNode {
		for i := 0; i < len(n.Content); i += 2 {
			if n.Content[i].Value == "gate" {
				e.gate = gateNamed(c.Word(n.Content[i+1], "gate", gateNames()...))
			}
		}
		if e.gate == nil {
			c.ErrorAt(n, "the example has no gate; expected one of %s", strings.Join(gateNames(), ", "))
			return nil
		}
	}
	known := map[string]func(*yaml.Node){
		"name":   func(n *yaml.Node) { e.name, _ = c.Text(n, "name") },
		"input":  func(n *yaml.Node) { c.input(n, e) },
		"expect": func(n *yaml.Node) { c.expect(n, e) },
	}
	if of == nil {
		known["gate"] = func(*yaml.Node) {}
	}
	if !c.Fields(n, "an example", known) {
		return nil
	}
	if e.want.action == "" {
		c.ErrorAt(n, "the example has no expect, such as block")
	}
	return e
}

// input reads what the gate is asked about, by the names of its variables.
func (c *compiler) input(n *yaml.Node, e *example) {
	v := &e.in
	str := func(to *string) func(*yaml.Node) {
		return func(n *yaml.Node) {
			if n.Kind != yaml.ScalarNode {
				c.ErrorAt(n, "expected a text, not %s", yamlfile.KindOf(n))
				return
			}
			*to = n.Value
		}
	}
	num := func(to *int, what string) func(*yaml.Node) {
		return func(n *yaml.Node) { *to = c.Number(n, what) }
	}
	all := map[string]func(*yaml.Node){
		"tenant": str(&v.TenantID), "agent": str(&v.Agent), "session": str(&v.SessionID), "run": str(&v.RunID),
		"input": str(&v.input), "text": str(&v.text), "system": str(&v.system), "model": str(&v.model),
		"turn": num(&v.turn, "turn"), "attempt": num(&v.attempt, "attempt"), "revision": num(&v.revision, "revision"), "status": num(&v.status, "status"),
		"is_error": func(n *yaml.Node) { v.isError = c.Boolean(n, "is_error") },
		"content":  func(n *yaml.Node) { v.output = c.jsonText(n) },
		"body":     func(n *yaml.Node) { v.body = c.jsonText(n) },
		"now":      func(n *yaml.Node) { e.now = c.time(n) },
		"tools": func(n *yaml.Node) {
			for _, item := range yamlfile.Items(n) {
				v.tools = append(v.tools, item.Value)
			}
		},
		"headers":  func(n *yaml.Node) { v.headers = c.headers(n) },
		"messages": func(n *yaml.Node) { v.messages = c.messages(n) },
		"hidden": func(n *yaml.Node) {
			for _, m := range c.messages(n) {
				v.hidden = append(v.hidden, hooks.HiddenMessage{Role: m.Role, Text: m.Text()})
			}
		},
		"call": func(n *yaml.Node) { c.call(n, "call", v.call) },
	}
	known := map[string]func(*yaml.Node){}
	for _, one := range e.gate.vars {
		name, _, _ := strings.Cut(one.name, ".")
		if all[name] != nil {
			known[name] = all[name]
		}
	}
	c.Fields(n, "the input of "+string(e.gate.name), known)
}

// jsonText is a text, or anything else as JSON.
func (c *compiler) jsonText(n *yaml.Node) string {
	if yamlfile.IsText(n) {
		return n.Value
	}
	return c.plain(n).String()
}

func (c *compiler) time(n *yaml.Node) time.Time {
	t, err := time.Parse(time.RFC3339, n.Value)
	if err != nil {
		c.ErrorAt(n, "now is %s; expected a time such as 2006-01-02T15:04:05Z", yamlfile.KindOf(n))
	}
	return t
}

func (c *compiler) headers(n *yaml.Node) []hooks.Header {
	if n.Kind != yaml.MappingNode {
		c.ErrorAt(n, "expected headers as names and values, not %s", yamlfile.KindOf(n))
		return nil
	}
	var out []hooks.Header
	for i := 0; i < len(n.Content); i += 2 {
		out = append(out, hooks.Header{Name: n.Content[i].Value, Value: n.Content[i+1].Value})
	}
	return out
}

func (c *compiler) call(n *yaml.Node, what string, to *hooks.ToolCall) {
	c.Fields(n, what, map[string]func(*yaml.Node){
		"id":        func(n *yaml.Node) { to.ID = n.Value },
		"name":      func(n *yaml.Node) { to.Name = n.Value },
		"arguments": func(n *yaml.Node) { to.Arguments = c.jsonText(n) },
	})
}

func (c *compiler) messages(n *yaml.Node) []hooks.Message {
	out := []hooks.Message{}
	for _, item := range yamlfile.Items(n) {
		m := hooks.Message{Role: hooks.RoleUser}
		say := func(of hooks.PartType) func(*yaml.Node) {
			return func(n *yaml.Node) { m.Parts = append(m.Parts, hooks.Part{Type: of, Text: n.Value}) }
		}
		c.Fields(item, "a message", map[string]func(*yaml.Node){
			"id": func(n *yaml.Node) { m.ID = n.Value },
			"role": func(n *yaml.Node) {
				m.Role = hooks.Role(c.Word(n, "role", string(hooks.RoleSystem), string(hooks.RoleUser), string(hooks.RoleAssistant), string(hooks.RoleTool)))
			},
			"text":      say(hooks.PartText),
			"reasoning": say(hooks.PartReasoning),
			"hidden":    func(n *yaml.Node) { m.Hidden = c.Boolean(n, "hidden") },
			"partial":   func(n *yaml.Node) { m.Partial = c.Boolean(n, "partial") },
			"calls": func(n *yaml.Node) {
				for _, one := range yamlfile.Items(n) {
					call := hooks.ToolCall{Arguments: "{}"}
					c.call(one, "a call", &call)
					m.Parts = append(m.Parts, hooks.Part{Type: hooks.PartToolCall, ToolCall: &call})
				}
			},
			"results": func(n *yaml.Node) {
				for _, one := range yamlfile.Items(n) {
					m.Parts = append(m.Parts, hooks.Part{Type: hooks.PartToolResult, ToolResult: c.result(one)})
				}
			},
		})
		out = append(out, m)
	}
	return out
}

func (c *compiler) result(n *yaml.Node) *hooks.ToolResult {
	r := &hooks.ToolResult{}
	c.Fields(n, "a result", map[string]func(*yaml.Node){
		"call_id":  func(n *yaml.Node) { r.CallID = n.Value },
		"content":  func(n *yaml.Node) { r.Content = c.jsonText(n) },
		"is_error": func(n *yaml.Node) { r.IsError = c.Boolean(n, "is_error") },
		"reason":   func(n *yaml.Node) { r.Reason = hooks.ResultReason(n.Value) },
	})
	return r
}

// expect reads what an example comes to: a word, or all that matters.
func (c *compiler) expect(n *yaml.Node, e *example) {
	w := &e.want
	if n.Kind == yaml.ScalarNode {
		w.action = c.Word(n, "expect", answers...)
		return
	}
	str := func(to *string, what string) func(*yaml.Node) {
		return func(n *yaml.Node) { *to, _ = c.Text(n, what) }
	}
	c.Fields(n, "expect", map[string]func(*yaml.Node){
		"action":  func(n *yaml.Node) { w.action = c.Word(n, "action", answers...) },
		"rule":    str(&w.rule, "rule"),
		"code":    str(&w.code, "code"),
		"reason":  str(&w.reason, "reason"),
		"reply":   str(&w.reply, "reply"),
		"outcome": func(n *yaml.Node) { w.outcome = hooks.Outcome(c.Word(n, "outcome", outcomes...)) },
		"value": func(n *yaml.Node) {
			v := c.plain(n)
			w.value = &v
			if v.object == nil {
				c.ErrorAt(n, "expected value as a mapping, not %s", yamlfile.KindOf(n))
			}
		},
	})
}

// shown is what a gate went on with, by the names of its variables: what a value
// that an example expects is compared with.
func shown(v *vars) value {
	o := &object{}
	put := func(name string, of value) { o.members = append(o.members, member{name, of}) }
	put("text", textValue(v.text))
	put("system", textValue(v.system))
	put("content", jsonOrText(v.output))
	put("body", jsonOrText(v.body))
	put("is_error", encoded(v.isError))
	put("tools", encoded(v.tools))
	put("arguments", jsonOrText(v.call.Arguments))
	headers := &object{}
	for _, h := range v.headers {
		headers.members = append(headers.members, member{h.Name, textValue(h.Value)})
	}
	put("headers", value{object: headers})
	hidden := value{isArray: true}
	for _, h := range v.hidden {
		hidden.array = append(hidden.array, shownMessage(messageOf(h)))
	}
	put("hidden", hidden)
	messages := value{isArray: true}
	for _, m := range v.messages {
		messages.array = append(messages.array, shownMessage(m))
	}
	put("messages", messages)
	return value{object: o}
}

func shownMessage(m hooks.Message) value {
	o := &object{members: []member{
		{"role", textValue(string(m.Role))}, {"text", textValue(m.Text())}, {"reasoning", textValue(partsText(m, hooks.PartReasoning))},
		{"hidden", encoded(m.Hidden)}, {"partial", encoded(m.Partial)},
	}}
	calls, results := value{isArray: true}, value{isArray: true}
	for _, p := range m.Parts {
		if p.ToolCall != nil {
			calls.array = append(calls.array, value{object: &object{members: []member{
				{"id", textValue(p.ToolCall.ID)}, {"name", textValue(p.ToolCall.Name)}, {"arguments", jsonOrText(p.ToolCall.Arguments)},
			}}})
		}
		if p.ToolResult != nil {
			results.array = append(results.array, value{object: &object{members: []member{
				{"call_id", textValue(p.ToolResult.CallID)}, {"content", jsonOrText(p.ToolResult.Content)}, {"is_error", encoded(p.ToolResult.IsError)},
			}}})
		}
	}
	o.members = append(o.members, member{"calls", calls}, member{"results", results})
	return value{object: o}
}

// encoded is a bool or a list of texts as JSON.
func encoded(v any) value {
	raw, _ := json.Marshal(v) // such values always encode
	out, _ := decode(string(raw))
	return out
}

// jsonOrText is a text that holds a JSON object or array as that, so that an
// example can name parts of it.
func jsonOrText(text string) value {
	if v, err := decode(text); err == nil && (v.object != nil || v.isArray) {
		return v
	}
	return textValue(text)
}
