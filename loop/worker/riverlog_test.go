package worker

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestRiversLog(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	h := newRiverLog(slog.NewTextHandler(&out, nil))
	log := slog.New(h).With("a", 1).WithGroup("g")
	log.Info("not of interest")
	log.Error("cannot fetch", "b", 2)
	log.Error("cannot fetch", "b", 3)
	late := slog.NewRecord(time.Now().Add(2*repeatAfter), slog.LevelError, "cannot fetch", 0)
	if err := h.Handle(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("got %d lines, want the first of the repeated ones and the one after a while:\n%s", len(lines), out.String())
	}
	if !strings.Contains(lines[0], `level=WARN msg="cannot fetch" a=1 g.b=2`) {
		t.Errorf("got %q", lines[0])
	}
}
