package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// report is what bench.json holds.
type report struct {
	Version    string    `json:"version"`
	StartedAt  time.Time `json:"started_at"`
	Seconds    float64   `json:"seconds"`
	Go         string    `json:"go"`
	CPUs       int       `json:"cpus"`
	Load       float64   `json:"load_before"` // the load average when it began
	Postgres   int       `json:"postgres"`
	FdatasyncP float64   `json:"fdatasync_ms"` // the median of a write of 8 kB
	Time       string    `json:"time_per_measurement"`
	Rounds     int       `json:"rounds"`
	Figures    []*figure `json:"figures"`
	Aims       []result  `json:"aims"`
	Notes      []string  `json:"notes"`
}

// aim is where a figure should be.
type aim struct {
	short            string // in the last line
	part, item, name string
	most             bool // the limit is the most, not the least
	limit            float64
}

var aims = []aim{
	{"runs/own SQL", partRuns, "c=64", vsOwnSQL, false, 0.75},
	{"commits/run at 1", partRuns, "c=1", commits, true, 6},
	{"commits/run at 64", partRuns, "c=64", commits, true, 1.5},
	{"run p50 at 1", partRuns, "c=1", "latency p50", true, 6},
	{"256 streams p99", partPaced, "256" + streamsHint, addedTime + " p99", true, 8},
	{"1000 streams p99", partPaced, "1000" + streamsHint, addedTime + " p99", true, 25},
	{"chunk without observers", partObservers, observersOther, addedAllocs, true, 0.01},
	{"256 observed p50", partObservers, "256" + streamsHint, onOff + " p50", true, 1.1},
	{"256 observed p99", partObservers, "256" + streamsHint, onOff + " p99", true, 1.1},
	{"calls of a plugin for others", partPlugins, pluginsElse, callsMade, true, 0},
	{"allocations for it", partPlugins, pluginsElse, addedAllocs, true, 0.01},
	{"p99 beside one that sleeps", partPlugins, besideHint + pluginSleeps, vsHealthy + " p99", true, 1.2},
	{"that crashes", partPlugins, besideHint + pluginCrashes, vsHealthy + " p99", true, 1.2},
	{"that floods", partPlugins, besideHint + pluginFloods, vsHealthy + " p99", true, 1.2},
	{"that stops", partPlugins, besideHint + pluginStops, vsHealthy + " p99", true, 1.2},
	{"first event", partIdle, "one message", "first event p50", true, 6},
	{"first delta", partIdle, "one message", "first delta p50", true, 6},
	{"ledger on/off", partLedger, "c=64", vsOff, false, 0.9},
	{"10k clients", partClients, "10000 idle clients", "agentd memory", true, 400},
	{"replay first", partReplay, "100000 events", "first event p50", true, 50},
	{"slow/fast disk", partSlow, "c=64", vsFast, false, 0.5},
}

// result is an aim beside what was measured.
type result struct {
	Figure string  `json:"figure"`
	Aim    float64 `json:"aim"`
	AtMost bool    `json:"at_most"`
	Median float64 `json:"median"`
	Unit   string  `json:"unit"`
	Met    bool    `json:"met"`
}

// results leaves out what was not measured.
func (f *figures) results() []result {
	out := []result{}
	for _, a := range aims {
		g := f.find(a.part, a.item, a.name)
		if g == nil {
			continue
		}
		met := g.Median >= a.limit
		if a.most {
			met = g.Median <= a.limit
		}
		out = append(out, result{Figure: a.short, Aim: a.limit, AtMost: a.most, Median: g.Median, Unit: g.Unit, Met: met})
	}
	return out
}

// print writes the table, and the summary in one line as the last.
func (r *report) print(w io.Writer) error {
	fmt.Fprintf(w, "\nagentd %s, %s, Postgres %d, %d CPUs, load %s before, fdatasync %s ms, %d rounds of %s, %s\n\n", r.Version, r.Go, r.Postgres, r.CPUs,
		formatFloat(r.Load), formatFloat(r.FdatasyncP), r.Rounds, r.Time, r.StartedAt.UTC().Format("2006-01-02 15:04 UTC"))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "part\tcase\tfigure\tmedian\tmin–max\tunit")
	part, item := "", ""
	for _, g := range r.Figures {
		if g.Part != part {
			part, item = g.Part, ""
			fmt.Fprint(t, part)
		}
		name := g.Case
		if name == item {
			name = ""
		}
		item = g.Case
		fmt.Fprintf(t, "\t%s\t%s\t%s\t%s\t%s\n", name, g.Name, formatFloat(g.Median), spread(g), g.Unit)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	for _, n := range r.Notes {
		fmt.Fprintln(w, "note:", n)
	}
	_, err := fmt.Fprintf(w, "\n%s\n", r.summary())
	return err
}

func spread(g *figure) string {
	if len(g.Samples) == 1 {
		return ""
	}
	return formatFloat(g.Min) + "–" + formatFloat(g.Max)
}

// summary is one line.
func (r *report) summary() string {
	var b strings.Builder
	met := 0
	for _, a := range r.Aims {
		sign, verdict := "≥", "below the aim"
		if a.AtMost {
			sign, verdict = "≤", "above the aim"
		}
		if a.Met {
			met++
			verdict = "ok"
		}
		fmt.Fprintf(&b, "; %s %s (%s %s: %s)", a.Figure, strings.TrimSpace(formatFloat(a.Median)+" "+strings.Trim(a.Unit, "×")), sign, formatFloat(a.Aim), verdict)
	}
	return fmt.Sprintf("bench: %d figures in %.0f s, %d of %d aims met%s", len(r.Figures), r.Seconds, met, len(r.Aims), b.String())
}

// write writes the file at once, or not at all.
func (r *report) write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".bench-*.json")
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	_, err = tmp.Write(append(text, '\n'))
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Chmod(tmp.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// formatFloat has three digits that say something.
func formatFloat(v float64) string {
	switch a := math.Abs(v); {
	case a == 0 || a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	default:
		digits := 2 - int(math.Floor(math.Log10(a)))
		s := strconv.FormatFloat(v, 'f', min(max(digits, 0), 6), 64)
		if strings.Contains(s, ".") {
			s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
		}
		return s
	}
}

// diskSync is how long a write of 8 kB takes to be durable in a directory.
func diskSync(dir string) (time.Duration, error) {
	f, err := os.CreateTemp(dir, "sync-*")
	if err != nil {
		return 0, fmt.Errorf("measure the disk: %w", err)
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}()
	page := make([]byte, 8192)
	times := make([]time.Duration, 100)
	for i := range times {
		from := time.Now()
		if _, err := f.WriteAt(page, int64(i)*8192%(1<<20)); err != nil {
			return 0, fmt.Errorf("measure the disk: %w", err)
		}
		if err := fdatasync(f); err != nil {
			return 0, fmt.Errorf("measure the disk: %w", err)
		}
		times[i] = time.Since(from)
	}
	slices.Sort(times)
	return percentile(times, 50), nil
}

func goVersion() string { return runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH }
