package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
)

// settings are what a person may ask for.
type settings struct {
	Duration  time.Duration `default:"15m" env:"DURATION" help:"How long the load and the kills go on."`
	Seed      uint64        `default:"1" env:"SEED" help:"Says what goes wrong when, and what users do."`
	KillEvery time.Duration `default:"1500ms" env:"KILL_EVERY" help:"How long it is from one SIGKILL to the next, on average. All other faults together are as many."`
	Users     int           `default:"12" env:"USERS_AT_ONCE" help:"How many users talk at once."`
	Keep      string        `env:"KEEP" placeholder:"DIR" help:"Where the database, the logs and the timelines of broken sessions go if something is broken; otherwise a directory below the temporary one."`
	Agentd    string        `default:"bin/agentd-faults" placeholder:"FILE" help:"An agentd that was built with the tag faults."`
	Schedule  bool          `help:"Print what would go wrong when, and end."`
}

// minKillEvery leaves processes the time to start.
const minKillEvery = 200 * time.Millisecond

func (s *settings) check() error {
	switch {
	case s.Duration <= 0:
		return fmt.Errorf("DURATION has to be positive, and is %s", s.Duration)
	case s.KillEvery < minKillEvery:
		return fmt.Errorf("KILL_EVERY has to be %s or more, so that processes have the time to start, and is %s", minKillEvery, s.KillEvery)
	case s.Users < 1:
		return fmt.Errorf("USERS_AT_ONCE has to be 1 or more, and is %d", s.Users)
	case s.Schedule:
		return nil
	}
	if info, err := os.Stat(s.Agentd); err != nil || info.IsDir() {
		return fmt.Errorf("there is no agentd at %s: run `make build-faults`, or name another one with --agentd", s.Agentd)
	}
	return nil
}

// run prints a report, and as its last line the summary.
func (s *settings) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	faults := schedule(s.Seed, s.Duration, s.KillEvery, apiSlots+workerSlots)
	if s.Schedule {
		for _, f := range faults {
			fmt.Fprintln(stdout, f)
		}
		return nil
	}
	dir, err := s.directory()
	if err != nil {
		return err
	}
	fmt.Fprintf(stderr, "seed %d, %d faults in %s, everything is in %s\n", s.Seed, len(faults), s.Duration, dir)
	x, err := s.attempt(ctx, faults, dir)
	if err != nil {
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), os.RemoveAll(dir))
		}
		return fmt.Errorf("%w (everything is kept in %s)", err, dir)
	}
	if x.print(stdout, dir) {
		return errBroken
	}
	return os.RemoveAll(dir)
}

// directory is one that Postgres can enter.
func (s *settings) directory() (string, error) {
	parent := s.Keep
	if parent != "" {
		if err := os.MkdirAll(parent, 0o755); err != nil {
			return "", err
		}
	}
	dir, err := os.MkdirTemp(parent, "agentd-faults-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		return "", fmt.Errorf("make a directory: %w", err)
	}
	return filepath.Abs(dir)
}

// attempt lets everything happen, and looks at what is left.
func (s *settings) attempt(ctx context.Context, faults []fault, dir string) (_ *report, err error) {
	database, err := startPostgres(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, database.stop()) }()
	var hall stage
	defer hall.end()
	model := newProvider(&hall)
	f, err := newFleet(ctx, *s, dir, database, model.URL)
	if err != nil {
		return nil, err
	}
	defer f.stop()
	doors, err := newDoors(f.urls())
	if err != nil {
		return nil, err
	}
	defer doors.close()
	l := &load{doors: doors, seed: s.Seed}

	talking, hush := context.WithCancel(ctx)
	defer hush()
	quiet := make(chan struct{})
	go func() {
		defer close(quiet)
		l.talk(talking, ctx, s.Users)
	}()
	err = f.play(ctx, faults)
	hush()
	<-quiet
	if err := errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	return s.examine(ctx, f, l, model)
}

// examine looks at everything once nobody does anything any more.
func (s *settings) examine(ctx context.Context, f *fleet, l *load, model provider) (_ *report, err error) {
	effects, err := readEffects(f.dir)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, f.postgres.url)
	if err != nil {
		return nil, fmt.Errorf("connect to the private Postgres: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	x := &examination{conn: conn, effects: effects, load: l, deaths: f.deaths, downs: f.postgres.away()}
	if err := x.settle(ctx); err != nil {
		return nil, err
	}
	if err := x.run(ctx); err != nil {
		return nil, err
	}
	for _, r := range model.Refusals() {
		if r.Status == 400 {
			x.add(invalidRequests, "", "%v\n%s", r, r.Request.Body)
		}
	}
	x.tool(ctx, mismatches, s.Agentd, f.postgres.url, "verify", "--strict")
	x.tool(ctx, brokenChains, s.Agentd, f.postgres.url, "ledger", "verify", "--all")
	x.tell(ctx, f.dir)
	return &report{settings: *s, examination: x, faults: f.count}, nil
}

// settle waits until every run has ended, as long as that goes on.
func (x *examination) settle(ctx context.Context) error {
	for limit := time.Now().Add(endPatience); time.Now().Before(limit); {
		var open int
		err := x.conn.QueryRow(ctx, `SELECT count(*) FROM agentd.runs WHERE ended_at IS NULL`).Scan(&open)
		if err != nil {
			return fmt.Errorf("wait for the runs to end: %w", err)
		}
		if open == 0 {
			return nil
		}
		if err := pause(ctx, pollEvery); err != nil {
			return err
		}
	}
	return nil // the report says which
}
