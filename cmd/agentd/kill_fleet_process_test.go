package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// killLease is a fifth of the default, and so are heartbeat and sweep.
const killLease = 600 * time.Millisecond

// fleet is some processes of agentd over one database, of which each may be
// killed at any time.
type fleet struct {
	db      *storetest.DB
	env     []string
	dir     string
	effects string // the file that counts
	gate    string // the file that lets a held step go on
	alive   []*server
	coming  []*process // started, and not ready yet

	// released and resumed are the times from a kill to the release of the run
	// and to the first event under its next lease.
	released, resumed []time.Duration
	cuts              int // of event streams
	killed            int // processes
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	return newFleetOn(t, storetest.New(t))
}

// newFleetOn is for a database that the test has made.
func newFleetOn(t *testing.T, db *storetest.DB) *fleet {
	t.Helper()
	prepareHolds(t, db)
	dir := t.TempDir()
	f := &fleet{db: db, dir: dir, effects: filepath.Join(dir, "effects"), gate: filepath.Join(dir, "gate")}
	text, err := os.ReadFile("testdata/kill.json")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "script.json")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(text), "GATE", f.gate)), 0o600); err != nil {
		t.Fatal(err)
	}
	f.env = []string{
		"AGENTD_DATABASE_URL=" + db.URL, "AGENTD_LISTEN=127.0.0.1:0", "AGENTD_SCRIPT=" + file,
		effectsVariable + "=" + f.effects, "AGENTD_LEASE=" + killLease.String(),
		"GORACE=atexit_sleep_ms=0", // those that are not killed would sleep for a second
	}
	return f
}

// spawn starts a process and does not wait for it.
func (f *fleet) spawn(t *testing.T, args ...string) {
	t.Helper()
	f.coming = append(f.coming, start(t, options{dir: f.dir, env: f.env}, append([]string{"serve"}, args...)...))
}

// ready waits for what was spawned.
func (f *fleet) ready(t *testing.T) {
	t.Helper()
	for _, p := range f.coming {
		f.alive = append(f.alive, &server{process: p, url: p.await(t, &p.err, `msg=serving url=(\S+)`)})
	}
	f.coming = nil
}

// add starts a process and returns it when it is ready.
func (f *fleet) add(t *testing.T, args ...string) *server {
	t.Helper()
	f.spawn(t, args...)
	f.ready(t)
	return f.alive[len(f.alive)-1]
}

// kill is kill -9, of all at once.
func (f *fleet) kill(t *testing.T, victims ...*server) time.Time {
	t.Helper()
	at := time.Now()
	f.killed += len(victims)
	for _, s := range victims {
		s.signal(t, syscall.SIGKILL)
	}
	for _, s := range victims {
		s.wait(t)
	}
	f.alive = slices.DeleteFunc(f.alive, func(s *server) bool { return slices.Contains(victims, s) })
	return at
}

// holder is the worker that has a run, or has fetched its job, and the process
// in which it is; both are zero if there is none.
func (f *fleet) holder(t *testing.T, run string) (worker string, s *server) {
	t.Helper()
	worker = scalar[string](t, f.db, `
		SELECT coalesce(
			(SELECT worker_id::text FROM agentd.runs WHERE id = $1::uuid AND status = 'running'),
			(SELECT attempted_by[array_upper(attempted_by, 1)] FROM agentd.river_job
				WHERE state = 'running' AND args ->> 'run_id' = $1::text ORDER BY id DESC LIMIT 1),
			'')`, run)
	for _, s := range f.alive {
		if worker != "" && strings.Contains(s.err.String(), "worker="+worker) {
			return worker, s
		}
	}
	return worker, nil
}

// freshClient keeps no connection: the server may be dead the next time.
func freshClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
}

func newSession(t *testing.T, s *server) string {
	t.Helper()
	res, err := agentdv1connect.NewSessionServiceClient(freshClient(), s.url).
		CreateSession(t.Context(), connect.NewRequest(&agentdv1.CreateSessionRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	return res.Msg.GetSessionId()
}

func startRun(t *testing.T, s *server, session, text string) (run string, after int64) {
	t.Helper()
	res, err := agentdv1connect.NewRunServiceClient(freshClient(), s.url).
		StartRun(t.Context(), connect.NewRequest(&agentdv1.StartRunRequest{SessionId: session, Text: text}))
	if err != nil {
		t.Fatal(err)
	}
	return res.Msg.GetRunId(), int64(res.Msg.GetAfter())
}

func cancelRun(t *testing.T, s *server, run string) {
	t.Helper()
	if err := cancellation(run)(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// cancellation is the request that stops a run.
func cancellation(run string) func(ctx context.Context, at *server) error {
	return func(ctx context.Context, at *server) error {
		_, err := agentdv1connect.NewRunServiceClient(freshClient(), at.url).
			CancelRun(ctx, connect.NewRequest(&agentdv1.CancelRunRequest{RunId: run, Reason: "no longer wanted"}))
		return err
	}
}

func (f *fleet) awaitEnd(t *testing.T, run string) (status string) {
	t.Helper()
	return awaitRow(t, f.db, fmt.Sprintf(`
		SELECT status FROM agentd.runs WHERE id = '%s' AND status IN ('completed', 'failed', 'cancelled')`, run))
}

// here runs a command on the database that the processes have in their
// environment, where the last one counts, and in their way past a pooler.
func (f *fleet) here(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	args = slices.Clone(args)
	for name, flag := range map[string]string{"AGENTD_DATABASE_URL=": "--database-url", "AGENTD_DIRECT_DATABASE_URL=": "--direct-database-url"} {
		url := ""
		for _, v := range f.env {
			if rest, ok := strings.CutPrefix(v, name); ok {
				url = rest
			}
		}
		if url != "" {
			args = append(args, flag, url)
		}
	}
	return here(t, args...)
}

// verify is what a person does who does not trust any of this.
func (f *fleet) verify(t *testing.T) {
	t.Helper()
	code, out, said := f.here(t, "verify", "--strict")
	if code != 0 || !strings.Contains(out, " 0 differences") {
		t.Errorf("verify: exit code %d, printed %q, said %q", code, out, said)
	}
}

func percentiles(d []time.Duration) string {
	if len(d) == 0 {
		return "none"
	}
	slices.Sort(d)
	at := func(p int) time.Duration { return d[(len(d)-1)*p/100].Round(time.Millisecond) }
	return fmt.Sprintf("p50 %s, p99 %s, max %s of %d", at(50), at(99), at(100), len(d))
}
