package loop_test

import (
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/loop"
)

func TestArgumentsPatch(t *testing.T) {
	t.Parallel()
	deep := func(leaf string) string { return strings.Repeat(`{"a":`, 70) + leaf + strings.Repeat(`}`, 70) }
	for name, c := range map[string]struct{ before, after, want string }{
		"nothing":               {`{"a":1}`, `{"a":1}`, `[]`},
		"spelling":              {`{"a":1,"b":[1, 2]}`, ` { "b" : [1,2] , "a" : 1 } `, `[]`},
		"a number to its digit": {`{"n": 9007199254740993}`, `{"n": 9007199254740992}`, `[{"op":"replace","path":"/n","value":9007199254740992}]`},
		"a number's spelling":   {`{"n":1}`, `{"n":1.0}`, `[{"op":"replace","path":"/n","value":1.0}]`},
		"members":               {`{"a":1,"c":3}`, `{"b":"<x>","c":4}`, `[{"op":"remove","path":"/a"},{"op":"replace","path":"/c","value":4},{"op":"add","path":"/b","value":"<x>"}]`},
		"a key with signs":      {`{"a/b~c":1}`, `{"a/b~c":null}`, `[{"op":"replace","path":"/a~1b~0c","value":null}]`},
		"an empty key":          {`{"":1}`, `{"":2}`, `[{"op":"replace","path":"/","value":2}]`},
		"within":                {`{"to":{"name":"Ada","x":1}}`, `{"to":{"name":"Bob","x":1}}`, `[{"op":"replace","path":"/to/name","value":"Bob"}]`},
		"a longer list":         {`{"l":[1]}`, `{"l":[2,3,4]}`, `[{"op":"replace","path":"/l/0","value":2},{"op":"add","path":"/l/-","value":3},{"op":"add","path":"/l/-","value":4}]`},
		"a shorter list":        {`{"l":[1,2,3]}`, `{"l":[1]}`, `[{"op":"remove","path":"/l/2"},{"op":"remove","path":"/l/1"}]`},
		"another kind":          {`{"l":[1]}`, `{"l":{"0":1}}`, `[{"op":"replace","path":"/l","value":{"0":1}}]`},
		"a key that stands twice": {
			`{"n":1}`, `{"n":1,"n":1000}`, `[{"op":"replace","path":"","value":{"n":1,"n":1000}}]`,
		},
		"a key that stood twice": {`{"n":1,"n":1000}`, `{"n":1}`, `[{"op":"replace","path":"","value":{"n":1}}]`},
		"too deep to look":       {deep("1"), deep("2"), `[{"op":"replace","path":"` + strings.Repeat("/a", 64) + `","value":` + strings.Repeat(`{"a":`, 6) + "2" + strings.Repeat("}", 6) + `}]`},
		"no JSON before":         {`{"a"`, `{}`, ``},
		"no JSON after":          {`{}`, `{"a"`, ``},
	} {
		if got := loop.ArgumentsPatch(c.before, c.after); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}
