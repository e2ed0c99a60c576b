package rules_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/rules"
)

// FuzzParse: any file is either a set whose rules are hooks, or errors that are
// about places in it.
func FuzzParse(f *testing.F) {
	seeds, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	bad, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(seeds, bad...) {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
		for _, one := range bytes.SplitAfter(text, []byte("\n  - ")) {
			f.Add(append([]byte("rules:\n  - "), bytes.TrimSuffix(one, []byte("\n  - "))...))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := rules.Parse([]rules.File{{Name: "f", Text: text}})
		if err == nil {
			if n, m := len(s.Rules()), len(s.Hooks().Set().Hooks); n != m {
				t.Fatalf("%d rules are %d hooks", n, m)
			}
			return
		}
		var told *rules.Errors
		if !errors.As(err, &told) || len(told.List) == 0 {
			t.Fatal(err)
		}
		lines := bytes.Count(text, []byte("\n")) + 1
		for _, e := range told.List {
			if e.Line < 0 || e.Line > lines+1 || e.Line > 0 && e.Column < 1 || e.Column > len(text)+2 || e.Text == "" {
				t.Fatalf("%+v of %d lines", e, lines)
			}
		}
	})
}
