package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// effect is one time that a tool took effect, as it says itself: nothing that
// the log says is taken on trust.
type effect struct {
	tool, run, call string
	attempt         int
	arguments       string
}

func effectsPath(dir string) string { return filepath.Join(dir, "effects") }

// readEffects returns the effects of each call.
func readEffects(dir string) (map[string][]effect, error) {
	text, err := os.ReadFile(effectsPath(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	out := map[string][]effect{}
	for line := range strings.Lines(string(text)) {
		var e effect
		head, arguments, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " {")
		if _, err := fmt.Sscan(head, &e.tool, &e.run, &e.call, &e.attempt); err != nil {
			return nil, fmt.Errorf("effects: line %q: %w", line, err)
		}
		e.arguments = "{" + arguments
		out[e.call] = append(out[e.call], e)
	}
	return out, nil
}
