package yamlfile_test

import (
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/yamlfile"
)

func object(t *testing.T, text string) (o yamlfile.Object, problems error) {
	t.Helper()
	p := &yamlfile.Problems{}
	f := yamlfile.Parse("f", []byte(text), "a mapping", p)
	if f != nil {
		f.Decode(f.Root, "config", &o)
	}
	return o, p.Err()
}

func TestAnObjectKeepsItsOrderAndItsDigits(t *testing.T) {
	t.Parallel()
	o, err := object(t, `{z: 1.50, a: [yes, 2026-01-01, null, False, {}], "q\"": "é"}`)
	if got := string(o.JSON()); err != nil || got != `{"z":1.50,"a":["yes","2026-01-01",null,false,{}],"q\"":"é"}` {
		t.Errorf("%s, %v", got, err)
	}
	if got := string(yamlfile.Object{}.JSON()); got != "{}" {
		t.Errorf("nothing is %s", got)
	}
	for text, want := range map[string]string{"[a]": "expected config as a mapping, not a list", "{a: {b: [0x1f]}}": "JSON has no such value: 0x1f"} {
		if _, err := object(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestAnObjectOverAnotherReplacesMembersWhole(t *testing.T) {
	t.Parallel()
	under, err := object(t, `{a: 1, b: {x: 1, y: 2}, c: [1, 2]}`)
	if err != nil {
		t.Fatal(err)
	}
	over, err := object(t, `{n: null, b: {y: 3}}`)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(under.With(over).JSON()); got != `{"a":1,"b":{"y":3},"c":[1,2],"n":null}` {
		t.Errorf("%s", got)
	}
	if got := string(under.JSON()); got != `{"a":1,"b":{"x":1,"y":2},"c":[1,2]}` {
		t.Errorf("what was under it is now %s", got)
	}
	if got := string(under.With(yamlfile.Object{}).JSON()); got != string(under.JSON()) {
		t.Errorf("under nothing: %s", got)
	}
}
