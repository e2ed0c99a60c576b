package main

import (
	"log/slog"
	"strings"
	"testing"
)

func TestPartsAreMutedOnceTheirDatabaseIsGone(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	gone := make(chan struct{})
	log := slog.New(mutedOnce{slog.NewTextHandler(&out, nil), gone})
	child := log.With("part", 1).WithGroup("g")
	log.Info("first")
	log.Debug("too little")
	child.Info("second", "x", 2)
	close(gone)
	log.Error("third")
	child.Error("fourth")
	for word, want := range map[string]int{"msg=first": 1, "msg=second part=1 g.x=2": 1, "msg=": 2} {
		if got := strings.Count(out.String(), word); got != want {
			t.Errorf("%q is there %d times: %s", word, got, out.String())
		}
	}
}
