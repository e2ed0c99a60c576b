package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/store"
)

const (
	// ownConns are those that a process opens beside its pool, at most: docs/operations.md
	// says the same.
	ownConns = 3
	// maxAhead is how wrong a clock may be before people who read times are misled.
	maxAhead = time.Second
	// maxStuck is how many runs are looked at.
	maxStuck = 1000
)

// lookAtDatabase asks the database, in transactions that change nothing.
func (cmd doctorCmd) lookAtDatabase(ctx context.Context, d *diagnosis) {
	const name = "database"
	database, err := cmd.urlOrDev()
	if err != nil {
		d.fail(name, "set AGENTD_DATABASE_URL, or start `agentd dev` here", "%v", err)
		return
	}
	if cmd.DatabaseURL != "" && !cmd.lookAtWay(ctx, d) {
		return
	}
	pool, err := openVerifyPool(ctx, database)
	if err != nil {
		d.unreachable(name, err)
		return
	}
	defer pool.Close()
	server, err := store.ReadServer(ctx, pool)
	if err != nil {
		d.unreachable(name, err)
		return
	}
	config := pool.Config().ConnConfig
	d.ok(name, "Postgres %d answers at %s, database %s", server.Version, place(config.Host, config.Port), config.Database)
	lookAtServer(d, server)
	ready := lookAtSchema(ctx, d, pool)
	workers := 0
	if ready {
		workers = lookAtRuns(ctx, d, pool)
	}
	cmd.lookAtConnections(d, server, workers)
}

// unreachable tells of a database that does not answer. What to do stands in the
// sentence.
func (d *diagnosis) unreachable(name string, err error) {
	sentence := oneLine(aboutDatabase(err).Error(), longestField)
	for _, begin := range []string{"check ", "try "} {
		if message, do, ok := strings.Cut(sentence, ": "+begin); ok {
			d.fail(name, begin+do, "%s", message)
			return
		}
	}
	d.fail(name, "look at what it logs, and check AGENTD_DATABASE_URL", "%s", sentence)
}

// lookAtWay looks for a pooler on the way to the database, and reports whether there is a
// way at all.
func (cmd doctorCmd) lookAtWay(ctx context.Context, d *diagnosis) bool {
	const name = "pooler"
	pooled := false
	config, err := poolConfig(cmd.DatabaseURL)
	if err == nil {
		pooled, err = store.Pooled(ctx, config.ConnConfig)
	}
	switch {
	case err != nil:
		d.unreachable("database", err)
		return false
	case !pooled:
		d.ok(name, "there is none in transaction mode before the database")
		return true
	case cmd.DirectDatabaseURL == "":
		d.warn(name, "set AGENTD_DIRECT_DATABASE_URL to the address of Postgres itself",
			"there is one in transaction mode before the database: `agentd migrate` is refused, deaths of workers are seen when their leases run out, and what is new is found by polling")
		return true
	}
	if _, err := directConfig(ctx, cmd.DirectDatabaseURL, store.Limits{}); err != nil {
		d.fail(name, "correct AGENTD_DIRECT_DATABASE_URL", "%s", oneLine(aboutDatabase(err).Error(), longestField))
		return false
	}
	d.ok(name, "there is one in transaction mode before the database, and AGENTD_DIRECT_DATABASE_URL leads past it")
	return true
}

func lookAtServer(d *diagnosis, s store.Server) {
	switch {
	case s.Version < store.MinServerVersion:
		d.fail("version", fmt.Sprintf("upgrade it to Postgres %d or newer", store.MinServerVersion), "Postgres %d is older than agentd works with", s.Version)
	case s.Encoding != "UTF8":
		d.fail("version", "make a database with ENCODING 'UTF8' TEMPLATE template0", "the encoding of the database is %s, which does not hold every text", s.Encoding)
	default:
		d.ok("version", "Postgres %d is supported, and the encoding is %s", s.Version, s.Encoding)
	}
	switch {
	case s.Recovery:
		d.fail("writable", "give the address of the primary, or several hosts with target_session_attrs=read-write", "the server follows another one and takes no writes")
	case s.ReadOnly:
		d.fail("writable", "ALTER DATABASE or ROLE … RESET default_transaction_read_only", "default_transaction_read_only is on for this role and database")
	default:
		d.ok("writable", "the database takes writes")
	}
	lost := false
	for _, setting := range []struct{ name, value, lost string }{
		{"synchronous_commit", s.SynchronousCommit, "what was stored last is lost when Postgres crashes, and people may have been told"},
		{"fsync", s.Fsync, "the database can be destroyed when the machine crashes"},
		{"full_page_writes", s.FullPageWrites, "pages can be destroyed when the machine crashes"},
	} {
		if setting.value == "off" {
			lost = true
			d.warn("durability", "set "+setting.name+" = on (docs/durability.md says what is promised)", "%s is off: %s", setting.name, setting.lost)
		}
	}
	if !lost {
		d.ok("durability", "synchronous_commit is %s, fsync and full_page_writes are on", s.SynchronousCommit)
	}
	if ahead := s.Ahead.Abs(); ahead-s.Trip/2 > maxAhead {
		d.warn("clock", "set both clocks with NTP", "the database's clock is %s off from this machine's: leases and expiry go by the database's, and times in logs by this one's", ahead.Round(time.Millisecond))
		return
	}
	d.ok("clock", "the database's clock is within %s of this machine's", maxAhead)
}

// lookAtSchema reports whether it is that of this binary.
func lookAtSchema(ctx context.Context, d *diagnosis, pool *pgxpool.Pool) bool {
	err := store.CheckSchema(ctx, pool)
	if errors.Is(err, store.ErrSchemaOld) {
		message, _, _ := strings.Cut(err.Error(), ": run ")
		if _, versions, ok := strings.Cut(err.Error(), " ("); ok {
			message += " (" + versions
		}
		d.fail("schema", "agentd migrate", "the %s", message)
		return false
	}
	var version int64
	if err == nil {
		version, err = store.SchemaVersion(ctx, pool)
	}
	if err != nil {
		d.fail("schema", "look at the rights of the role: it owns the schema agentd", "%s", oneLine(err.Error(), longestField))
		return false
	}
	d.ok("schema", "it is at version %d, which this binary works with", version)
	return true
}

// lookAtRuns looks for what does not go on, and returns how many workers live.
func lookAtRuns(ctx context.Context, d *diagnosis, pool *pgxpool.Pool) (workers int) {
	s := store.New(pool, store.Options{})
	living, err := s.Workers(ctx)
	if err != nil {
		d.fail("runs", "look at what Postgres logs", "%s", oneLine(err.Error(), longestField))
		return 0
	}
	stuck, err := s.Stuck(ctx, maxStuck)
	if err != nil {
		d.fail("runs", "look at what Postgres logs", "%s", oneLine(err.Error(), longestField))
		return 0
	}
	reasons := map[string]int64{}
	for _, r := range stuck {
		reasons[r.Reason]++
	}
	if len(stuck) == 0 {
		d.ok("runs", "none is stuck, and %s", livingWorkers(len(living)))
		return len(living)
	}
	var list []string
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		list = append(list, fmt.Sprintf("%d %s", reasons[reason], reason))
	}
	d.warn("runs", "`agentd stuck` lists them, and what to do about each", "%s, stuck: %s; %s",
		count(int64(len(stuck)), "run"), strings.Join(list, ", "), livingWorkers(len(living)))
	return len(living)
}

func livingWorkers(n int) string {
	if n == 1 {
		return "1 worker is alive"
	}
	return fmt.Sprintf("%d workers are alive", n)
}

// lookAtConnections compares what processes may open with what there is.
func (cmd doctorCmd) lookAtConnections(d *diagnosis, s store.Server, workers int) {
	const name, do = "connections", "raise max_connections, or lower pool_max_conns in the URL"
	each := defaultConns + ownConns
	if config, err := poolConfig(cmd.DatabaseURL); err == nil && cmd.DatabaseURL != "" {
		each = int(config.MaxConns) + ownConns
	}
	switch all := each * max(workers, 1); {
	case s.Connections >= s.MaxConnections:
		d.fail(name, do, "all %d are in use", s.MaxConnections)
	case all > s.MaxConnections:
		d.warn(name, do, "%d are in use of %d, and a process may open %d; %s", s.Connections, s.MaxConnections, each, livingWorkers(workers))
	default:
		d.ok(name, "%d are in use of %d; a process may open %d", s.Connections, s.MaxConnections, each)
	}
}
