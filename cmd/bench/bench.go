package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
)

// bench is one run of the benchmark. It is used by one goroutine.
type bench struct {
	sizes
	figures
	dir    string // deleted at the end, and open to the user Postgres runs as
	agentd string // the binary that is measured as a process
	pg     *postgres
	say    io.Writer
	notes  []string

	// These are made when they are first needed.
	script   *script
	overhead counters // of a stack that does nothing
	long     longSession
	slow     *postgres
	deaths   deaths
	cancels  map[string][]time.Duration // by case
}

// part is something that can be measured by itself.
type part struct {
	name    string
	measure func(b *bench, ctx context.Context) error
}

// parts are in the order in which a round measures them.
var parts = []part{
	{"inserts", (*bench).measureInserts},
	{"runs", (*bench).measureRuns},
	{"ledger", (*bench).measureLedger},
	{"gates", (*bench).measureGates},
	{"plugins", (*bench).measurePlugins},
	{"slow-disk", (*bench).measureSlowDisk},
	{"paced", (*bench).measurePaced},
	{"observers", (*bench).measureObservers},
	{"audience", (*bench).measureAudience},
	{"idle", (*bench).measureIdle},
	{"clients", (*bench).measureClients},
	{"replay", (*bench).measureReplay},
	{"takeover", (*bench).measureTakeover},
	{"cancel", (*bench).measureCancel},
}

// choose returns the parts that one of the patterns, which commas separate,
// matches whole; all for none.
func choose(only string) ([]part, error) {
	if strings.TrimSpace(only) == "" {
		return parts, nil
	}
	var chosen []part
	wanted := map[string]bool{}
	for pattern := range strings.SplitSeq(only, ",") {
		re, err := regexp.Compile(`^(?:` + strings.TrimSpace(pattern) + `)$`)
		if err != nil {
			return nil, &usageError{fmt.Errorf("BENCH_ONLY: %w", err)}
		}
		hit := false
		for _, p := range parts {
			if re.MatchString(p.name) {
				hit, wanted[p.name] = true, true
			}
		}
		if !hit {
			return nil, &usageError{fmt.Errorf("BENCH_ONLY: no part is called %q; there are %s", strings.TrimSpace(pattern), partNames())}
		}
	}
	for _, p := range parts {
		if wanted[p.name] {
			chosen = append(chosen, p)
		}
	}
	return chosen, nil
}

func partNames() string {
	names := make([]string, len(parts))
	for i, p := range parts {
		names[i] = p.name
	}
	return strings.Join(names, ", ")
}

// measure goes through the rounds: what is compared is measured in turns, so
// that a machine that gets slower makes all of it slower.
func (b *bench) measure(ctx context.Context, chosen []part) error {
	for round := range b.rounds {
		for _, p := range chosen {
			from := time.Now()
			fmt.Fprintf(b.say, "round %d of %d: %s", round+1, b.rounds, p.name)
			if err := p.measure(b, ctx); err != nil {
				fmt.Fprintln(b.say)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				return fmt.Errorf("%s: %w", p.name, err)
			}
			fmt.Fprintf(b.say, ", %.1f s\n", time.Since(from).Seconds())
		}
		if round == b.rounds-1 {
			break // everything is deleted anyway
		}
		for _, pg := range []*postgres{b.pg, b.slow} {
			if err := pg.dropAll(ctx); err != nil {
				return err
			}
		}
	}
	b.addDeaths(b.deaths, takeovers)
	b.addCancels(b.cancels)
	b.addDeaths(b.deaths, cancelOfStopped)
	return nil
}

// note says something once.
func (b *bench) note(text string) {
	for _, n := range b.notes {
		if n == text {
			return
		}
	}
	b.notes = append(b.notes, text)
}

func at(n int) string { return fmt.Sprintf("c=%d", n) }
