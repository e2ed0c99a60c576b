package main

import (
	"context"
	"fmt"
	"time"
)

const (
	partInserts = "inserts"
	partRuns    = "runs"
	partLedger  = "ledger"
	partSlow    = "slow-disk"

	rate      = "rate"
	perSecond = "/s"
	each1     = "per run"
	commits   = "commits per run"
	vsOwnSQL  = "runs ÷ own SQL"
	vsOwnCPU  = "CPU ÷ own SQL's"
	vsNone    = "÷ without hooks"
	vsOff     = "on ÷ off"
	vsFast    = "slow ÷ fast"
	slowdown  = "the same for own SQL"

	// maxOwnSQL connections: more of them make two cores slower.
	maxOwnSQL = 64
)

// measureInserts measures the smallest thing that a log can do.
func (b *bench) measureInserts(ctx context.Context) error {
	for _, c := range b.inserters {
		perSec, by, err := insertRate(ctx, b.pg, b.dir, c, b.warm, b.time)
		if err != nil {
			return err
		}
		if by == "pgx" {
			b.note("inserts: by a loop over pgx, since there is no pgbench beside postgres or the time is below its 1 s")
		}
		b.add(partInserts, at(c), rate, perSecond, perSec)
	}
	return nil
}

// measureRuns measures the reference run beside its own SQL.
func (b *bench) measureRuns(ctx context.Context) error {
	for _, c := range b.runs {
		if c <= maxOwnSQL {
			if err := b.addOwnSQL(ctx, b.pg, partRuns, "own SQL "+at(c), c); err != nil {
				return err
			}
		}
		if err := b.addRuns(ctx, b.pg, partRuns, at(c), c, stackConfig{hooks: referenceHooks()}); err != nil {
			return err
		}
		base, both := "own SQL "+at(min(c, maxOwnSQL)), func(item string) float64 {
			return b.last(partRuns, item, clientCPU) + b.last(partRuns, item, postgresCPU)
		}
		b.addRatio(partRuns, at(c), vsOwnSQL, b.last(partRuns, at(c), rate), b.last(partRuns, base, rate))
		b.addRatio(partRuns, at(c), vsOwnCPU, both(at(c)), both(base))
	}
	return nil
}

// measureLedger measures what decisions cost.
func (b *bench) measureLedger(ctx context.Context) error {
	name := func(n int) string { return fmt.Sprintf("%d hooks %s", n, at(b.gatesAt)) }
	for _, n := range b.hooks {
		if err := b.addRuns(ctx, b.pg, partLedger, name(n), b.gatesAt, stackConfig{hooks: evenHooks(n)}); err != nil {
			return err
		}
		if n > 0 {
			b.addRatio(partLedger, name(n), vsNone, b.last(partLedger, name(n), rate), b.last(partLedger, name(0), rate))
		}
	}
	off, on := "off "+at(b.gatesAt), "on "+at(b.gatesAt)
	if err := b.addRuns(ctx, b.pg, partLedger, off, b.gatesAt, stackConfig{hooks: referenceHooks(), unrecorded: true}); err != nil {
		return err
	}
	if err := b.addRuns(ctx, b.pg, partLedger, on, b.gatesAt, stackConfig{hooks: referenceHooks()}); err != nil {
		return err
	}
	b.addRatio(partLedger, at(b.gatesAt), vsOff, b.last(partLedger, on, rate), b.last(partLedger, off, rate))
	return nil
}

// measureSlowDisk measures the reference run, and its own SQL, on a disk that
// takes its time.
func (b *bench) measureSlowDisk(ctx context.Context) error {
	slow, err := b.slowPostgres(ctx)
	if err != nil || slow == nil {
		return err
	}
	c := b.gatesAt
	for _, side := range []struct {
		name string
		pg   *postgres
	}{{"fast ", b.pg}, {"slow ", slow}} {
		if err := b.addOwnSQL(ctx, side.pg, partSlow, side.name+"own SQL "+at(c), c); err != nil {
			return err
		}
		if err := b.addRuns(ctx, side.pg, partSlow, side.name+at(c), c, stackConfig{hooks: referenceHooks()}); err != nil {
			return err
		}
	}
	ratio := func(name, item string) {
		b.addRatio(partSlow, at(c), name, b.last(partSlow, "slow "+item+at(c), rate), b.last(partSlow, "fast "+item+at(c), rate))
	}
	ratio(vsFast, "")
	ratio(slowdown, "own SQL ")
	return nil
}

// sessionsFor is how many sessions a measurement can use up at most.
func (b *bench) sessionsFor(c int) int {
	perSecond := 2500.0
	if c == 1 {
		perSecond = 400
	}
	return int((b.warm+b.time).Seconds()*perSecond) + 2*c
}

// seeded is a fresh database with the sessions that a measurement needs.
func (b *bench) seeded(ctx context.Context, pg *postgres, c int) (database, url string, sessions []string, err error) {
	if database, url, err = pg.database(ctx); err != nil {
		return "", "", nil, err
	}
	sessions, err = seedSessions(ctx, url, b.sessionsFor(c))
	return database, url, sessions, err
}

// addRuns measures reference runs on a database of their own, under the hooks
// of cfg.
func (b *bench) addRuns(ctx context.Context, pg *postgres, part, item string, c int, cfg stackConfig) error {
	if err := b.measureOverhead(ctx); err != nil {
		return err
	}
	database, url, ids, err := b.seeded(ctx, pg, c)
	if err != nil {
		return err
	}
	before, err := pg.counters(ctx, database)
	if err != nil {
		return err
	}
	cpu, groups := selfCPU(), &appends{}
	cfg.url, cfg.model, cfg.tracer = url, instantModel{}, groups
	done, err := playRuns(ctx, cfg, ids, c, b.warm, b.time)
	if err != nil {
		return err
	}
	cpu = selfCPU() - cpu
	after, err := pg.counters(ctx, database)
	if err != nil {
		return err
	}
	used, runs := after.minus(before).minus(b.overhead), float64(done.total)
	b.add(part, item, rate, perSecond, done.rate)
	b.addTimes(part, item, "latency", done.times, 50, 99)
	b.add(part, item, commits, "", float64(groups.groups.Load())/runs)
	b.add(part, item, "transactions "+each1, "", used.commits/runs)
	b.add(part, item, "fsyncs "+each1, "", used.syncs/runs)
	b.add(part, item, "WAL "+each1, "kB", used.walBytes/1000/runs)
	b.addCPU(part, item, cpu, used.cpu, runs)
	return nil
}

const (
	clientCPU   = "agentd CPU " + each1 // for own SQL, the client that stands in its place
	postgresCPU = "Postgres CPU " + each1
)

func (b *bench) addCPU(part, item string, client, postgres time.Duration, runs float64) {
	b.add(part, item, clientCPU, "ms", millis(client)/runs)
	if postgres > 0 {
		b.add(part, item, postgresCPU, "ms", millis(postgres)/runs)
	}
}

// playRuns has c clients start runs, one after another, each in a session of
// its own.
func playRuns(ctx context.Context, cfg stackConfig, sessions []string, c int, warm, d time.Duration) (done load, err error) {
	s, err := startStack(ctx, cfg)
	if err != nil {
		return load{}, err
	}
	next := counter{n: len(sessions)}
	done, err = drive(ctx, c, warm, d, func(ctx context.Context) error {
		i, err := next.take()
		if err != nil {
			return err
		}
		return s.play(ctx, sessions[i])
	})
	if stopErr := s.stop(); err == nil {
		err = stopErr
	}
	return done, err
}

// measureOverhead counts what a stack costs that starts and stops, which is
// taken off what one with runs costs.
func (b *bench) measureOverhead(ctx context.Context) error {
	if b.overhead.commits != 0 {
		return nil
	}
	database, url, err := b.pg.database(ctx)
	if err != nil {
		return err
	}
	before, err := b.pg.counters(ctx, database)
	if err != nil {
		return err
	}
	s, err := startStack(ctx, stackConfig{url: url, model: instantModel{}, hooks: referenceHooks()})
	if err != nil {
		return err
	}
	if err := s.stop(); err != nil {
		return err
	}
	after, err := b.pg.counters(ctx, database)
	if err != nil {
		return err
	}
	b.overhead = after.minus(before)
	return nil
}

// addOwnSQL measures the reference run's own SQL in four transactions.
func (b *bench) addOwnSQL(ctx context.Context, pg *postgres, part, item string, c int) error {
	if b.script == nil {
		s, err := recordScript(ctx, b.pg)
		if err != nil {
			return err
		}
		b.script = s
	}
	database, url, err := pg.database(ctx)
	if err != nil {
		return err
	}
	pool, err := clientPool(ctx, url, c)
	if err != nil {
		return err
	}
	ids, err := b.script.seedAll(ctx, pool, 2*b.sessionsFor(c))
	pool.Close()
	if err != nil {
		return err
	}
	before, err := pg.counters(ctx, database)
	if err != nil {
		return err
	}
	if pool, err = clientPool(ctx, url, c); err != nil {
		return err
	}
	cpu, next := selfCPU(), counter{n: len(ids)}
	done, err := drive(ctx, c, b.warm, b.time, func(ctx context.Context) error {
		i, err := next.take()
		if err != nil {
			return err
		}
		return b.script.play(ctx, pool, ids[i])
	})
	pool.Close()
	cpu = selfCPU() - cpu
	if err != nil {
		return err
	}
	after, err := pg.counters(ctx, database)
	if err != nil {
		return err
	}
	used, runs := after.minus(before), float64(done.total)
	b.add(part, item, rate, perSecond, done.rate)
	b.addTimes(part, item, "latency", done.times, 50, 99)
	b.add(part, item, "fsyncs "+each1, "", used.syncs/runs)
	b.add(part, item, "WAL "+each1, "kB", used.walBytes/1000/runs)
	b.addCPU(part, item, cpu, used.cpu, runs)
	return nil
}

// recordScript plays one reference run and reads what it has left.
func recordScript(ctx context.Context, pg *postgres) (*script, error) {
	_, url, err := pg.database(ctx)
	if err != nil {
		return nil, err
	}
	ids, err := seedSessions(ctx, url, 1)
	if err != nil {
		return nil, err
	}
	s, err := startStack(ctx, stackConfig{url: url, model: instantModel{}, hooks: referenceHooks()})
	if err != nil {
		return nil, err
	}
	err = s.play(ctx, ids[0])
	if stopErr := s.stop(); err == nil {
		err = stopErr
	}
	if err != nil {
		return nil, err
	}
	return readScript(ctx, url, ids[0])
}
