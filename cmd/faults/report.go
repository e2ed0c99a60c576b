package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// report is what is printed.
type report struct {
	*examination
	settings settings
	faults   [faultKinds]int
}

// shownLines is how many examples there are of each thing that is wrong.
const shownLines = 5

// print writes the figures, with the summary as the last line, and reports
// whether anything is broken.
func (r *report) print(out io.Writer, dir string) (broken bool) {
	for kind, n := range r.faults {
		fmt.Fprintf(out, "%-32s %6d\n", faultKind(kind), n)
	}
	clients, joins := len(r.load.followers), 0
	for _, f := range r.load.followers {
		joins += len(f.joins)
	}
	fmt.Fprintf(out, "%-32s %6d\n%-32s %6d\n%-32s %6d, from %d cursors\n", "runs", r.runs, "events", r.events, "clients of events", clients, joins)
	fmt.Fprintf(out, "%-32s %6d\n", "runs given up, 5 deaths in a row", r.givenUp)
	for _, kind := range []faultKind{kill, freeze} {
		fmt.Fprintf(out, "%-32s %s\n", "take-over after "+kind.String(), percentiles(r.takeovers[kind]))
	}
	var zero []string
	for _, what := range mustBeZero {
		lines := r.lines[what]
		fmt.Fprintf(out, "%-32s %6d\n", what, len(lines))
		for _, l := range lines[:min(len(lines), shownLines)] {
			fmt.Fprintf(out, "    %s\n", strings.ReplaceAll(l, "\n", "\n    "))
		}
		if len(lines) > 0 {
			zero = append(zero, fmt.Sprintf("%d %s", len(lines), what))
		}
	}
	verdict := "nothing lost, nothing twice"
	if broken = len(zero) > 0; broken {
		verdict = "BROKEN: " + strings.Join(zero, ", ") + "; everything is kept in " + dir
	}
	fmt.Fprintf(out, "faults: seed %d, %s: %d runs, %d kills, %d faults in all, take-over %s: %s\n",
		r.settings.Seed, r.settings.Duration, r.runs, r.kills(), r.total(), percentiles(r.takeovers[kill]), verdict)
	return broken
}

// kills are what takes a process away at once.
func (r *report) kills() int { return r.faults[kill] }

func (r *report) total() (n int) {
	for _, f := range r.faults {
		n += f
	}
	return n
}

func percentiles(d []time.Duration) string {
	if len(d) == 0 {
		return "none"
	}
	slices.Sort(d)
	at := func(p int) time.Duration { return d[(len(d)-1)*p/100].Round(10 * time.Millisecond) }
	return fmt.Sprintf("p50 %s, p99 %s, max %s of %d", at(50), at(99), at(100), len(d))
}

// tell writes the timelines of broken sessions into files.
func (x *examination) tell(ctx context.Context, dir string) {
	told := 0
	for session := range x.sessions {
		if told++; told > shownLines {
			return
		}
		text, err := x.timeline(ctx, session)
		if err != nil {
			text += err.Error() + "\n"
		}
		// Without it there is still the database.
		_ = os.WriteFile(filepath.Join(dir, "session-"+session+".txt"), []byte(text), 0o644)
	}
}

func (x *examination) timeline(ctx context.Context, session string) (string, error) {
	rows, err := x.conn.Query(ctx, `
		SELECT concat_ws('  ', to_char(seq, '99999'), to_char(at, 'HH24:MI:SS.US'), left(run_id::text, 13), turn_no::text, type, left(payload::text, 300), actor_id)
		FROM agentd.events WHERE session_id = $1 ORDER BY seq`, session)
	if err != nil {
		return "", err
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return strings.Join(lines, "\n") + "\n", err
}
