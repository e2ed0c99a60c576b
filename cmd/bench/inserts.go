package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/cmd/proc"
)

// The single insert: one row of the size of an event per transaction, into a
// table that is like agentd.events.
const (
	insertTable = `CREATE TABLE public.bench_events (LIKE agentd.events INCLUDING ALL)`
	insertEvent = `INSERT INTO public.bench_events (session_id, seq, tenant_id, run_id, turn_no, type, payload, actor_kind, actor_id, at, append_id)
VALUES (gen_random_uuid(), 1, 'default', gen_random_uuid(), 1, 'assistant.completed', '%s', 'system', 'worker:01890000-0000-7000-8000-000000000000', now(), gen_random_uuid())`
)

// insertPayload is as long as an event's payload is on average in the reference
// run.
var insertPayload = `{"text":"` + strings.Repeat("x", 340) + `"}`

var tpsLine = regexp.MustCompile(`(?m)^tps = ([0-9.]+) \(without`)

// insertRate is how many single inserts per second c clients make. by says who
// they were.
func insertRate(ctx context.Context, pg *postgres, dir string, c int, warm, d time.Duration) (rate float64, by string, err error) {
	_, database, err := pg.database(ctx)
	if err != nil {
		return 0, "", err
	}
	pool, err := clientPool(ctx, database, c)
	if err != nil {
		return 0, "", err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, insertTable); err != nil {
		return 0, "", fmt.Errorf("make the table of the single insert: %w", err)
	}
	statement := fmt.Sprintf(insertEvent, insertPayload)
	if pgbench := filepath.Join(pg.server.BinDir(), "pgbench"); isExecutable(pgbench) && d >= time.Second {
		rate, err := pgbenchRate(ctx, pgbench, database, dir, statement, c, d)
		return rate, "pgbench", err
	}
	done, err := drive(ctx, c, warm, d, func(ctx context.Context) error {
		_, err := pool.Exec(ctx, statement)
		return err
	})
	if err != nil {
		return 0, "", fmt.Errorf("single insert: %w", err)
	}
	return done.rate, "pgx", nil
}

func pgbenchRate(ctx context.Context, pgbench, database, dir, statement string, c int, d time.Duration) (float64, error) {
	script := filepath.Join(dir, "insert.sql")
	if err := os.WriteFile(script, []byte(strings.ReplaceAll(statement, "\n", " ")+";\n"), 0o600); err != nil {
		return 0, fmt.Errorf("write pgbench's script: %w", err)
	}
	u, err := url.Parse(database)
	if err != nil {
		return 0, fmt.Errorf("database URL: %w", err)
	}
	password, _ := u.User.Password()
	seconds := max(1, int(d.Round(time.Second)/time.Second))
	cmd := exec.CommandContext(ctx, pgbench, "--no-vacuum", "--protocol=prepared", "--file="+script,
		"--client="+strconv.Itoa(c), "--jobs="+strconv.Itoa(min(c, 2)), "--time="+strconv.Itoa(seconds),
		"--host="+u.Hostname(), "--port="+u.Port(), "--username="+u.User.Username(), strings.TrimPrefix(u.Path, "/"))
	proc.DieWithUs(cmd)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "PGPASSWORD=" + password}
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err != nil {
		return 0, fmt.Errorf("pgbench: %w: %s", err, lastLine(out))
	}
	return pgbenchTPS(out)
}

// pgbenchTPS finds the rate in what pgbench has said.
func pgbenchTPS(out []byte) (float64, error) {
	m := tpsLine.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("pgbench names no rate: %s", lastLine(out))
	}
	return strconv.ParseFloat(string(m[1]), 64)
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

// clientPool has exactly c connections, all of them open.
func clientPool(ctx context.Context, database string, c int) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(database)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	config.MaxConns, config.MinConns = int32(c), int32(c)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("connect: %w", err)
	}
	return pool, nil
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// counter hands out 0, 1, 2, … below n, and then errSpent.
type counter struct {
	next atomic.Int64
	n    int
}

func (c *counter) take() (int, error) {
	i := int(c.next.Add(1)) - 1
	if i >= c.n {
		return 0, errSpent
	}
	return i, nil
}
