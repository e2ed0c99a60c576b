package builtin_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/loop/tool/builtin"
)

func TestASchemaOfSomebodyElseIsHeldTo(t *testing.T) {
	t.Parallel()
	validate, err := builtin.CompileSchema(json.RawMessage(`{
		"type": "object", "required": ["title"],
		"properties": {"title": {"type": "string"}, "n": {"type": "integer"}, "list": {"type": "array", "items": {"type": "object", "properties": {"amount": {}}}}}
	}`))
	if err != nil {
		t.Fatal(err)
	}
	for arguments, problem := range map[string]string{
		`{"title": "x"}`: "",
		` {"title":"x","n":9007199254740993,"other":1} `: "",
		`{"title":"x","list":[{"amount":1}]}`:            "",
		``:                                               "title",
		`{}`:                                             "title",
		`[]`:                                             "object",
		`{"title": 1}`:                                   "string",
		`{"title":"x","n":1.5}`:                          "integer",
		`{"title":"x","title":"y"}`:                      "a key stands twice",
		`{"title":"x","Title":"y"}`:                      `"title" is written "Title"`,
		`{"title":"x","list":[{"amount":1,"AMOUNT":2}]}`: `"amount" is written "AMOUNT"`,
		`{"title":"x"`: "cut off",
	} {
		switch err := validate(json.RawMessage(arguments)); {
		case problem == "" && err != nil:
			t.Errorf("%s: %v", arguments, err)
		case problem != "" && (err == nil || !strings.Contains(err.Error(), problem)):
			t.Errorf("%s: %v; want %q", arguments, err, problem)
		}
	}
}

func TestWhatIsNoSchemaOfAnObjectIsRefused(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{``, `{`, `[]`, `{}`, `{"type":"string"}`, `{"type":"object","properties":{"a":{"$ref":"https://example.com/x"}}}`, `{"type":"object","properties":{"a":{"pattern":"("}}}`} {
		if _, err := builtin.CompileSchema(json.RawMessage(schema)); err == nil {
			t.Errorf("%s is taken", schema)
		}
	}
}
