package builtin_test

import (
	"encoding/json"
	"fmt"
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

// TestASchemaThatWouldBeFollowedWithoutEndIsRefused: it would end the process.
func TestASchemaThatWouldBeFollowedWithoutEndIsRefused(t *testing.T) {
	t.Parallel()
	doubled := func(n int) string {
		var out strings.Builder
		for i := range n {
			fmt.Fprintf(&out, `"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%[2]d"}]},`, i, i+1)
		}
		return fmt.Sprintf(`{"type":"object","properties":{"a":{"$ref":"#/$defs/d0"}},"$defs":{%s"d%d":{}}}`, out.String(), n)
	}
	deep := func(n int) string {
		return `{"type":"object","properties":{"a":` + strings.Repeat(`{"not":`, n) + `{}` + strings.Repeat(`}`, n) + `}}`
	}
	for schema, want := range map[string]string{
		`{"type":"object","$ref":"#"}`: "# refers to itself about the same value",
		`{"type":"object","properties":{"a":{"anyOf":[{"type":"string"},{"$ref":"#/properties/a"}]}}}`:            "#/properties/a refers to itself",
		`{"type":"object","properties":{"a~b/c":{"not":{"$ref":"#/properties/a~0b~1c"}}}}`:                        "#/properties/a~0b~1c refers to itself",
		`{"type":"object","$defs":{"a":{"if":{"$ref":"#/$defs/b"}},"b":{"allOf":[{"$ref":"#/%24defs/a"}]}}}`:      "refers to itself",
		`{"type":"object","items":{"prefixItems":[{"dependentSchemas":{"x":{"$ref":"#/items/prefixItems/0"}}}]}}`: "refers to itself",
		`{"type":"object","$REF":"#"}`:                                                  "# refers to itself",
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/no"}}}`:                    `refers to "#/$defs/no"`,
		`{"type":"object","properties":{"a":{"$ref":"#/required/7"}},"required":["a"]}`: `refers to "#/required/7"`,
		`{"type":"object","properties":{"a":{"$ref":"https://example.com/a"}}}`:         "has to be a place within the schema",
		`{"type":"object","properties":{"a":{"$dynamicRef":"#a"}}}`:                     "$dynamicRef",
		`{"type":"object","properties":{"a":{"$id":"b"}}}`:                              "only the whole schema may",
		doubled(26): "more than 10000 times",
		deep(200):   "deeper than 100 levels",
		doubled(5):  "", deep(50): "",
		`{"type":"object","$id":"https://example.com/tree","properties":{"kids":{"type":"array","items":{"$ref":"#"}}}}`:         "",
		`{"type":"object","properties":{"$ref":{"type":"string"},"default":{"default":{"$ref":"nowhere"},"const":{"$id":"x"}}}}`: "",
	} {
		validate, err := builtin.CompileSchema(json.RawMessage(schema))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.120s: %v, want %q", schema, err, want)
		}
		if err == nil {
			_ = validate(json.RawMessage(`{"a":1}`)) // it ends
		}
	}
}
