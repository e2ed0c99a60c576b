package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

func closedPool(t *testing.T, db *storetest.DB) *pgxpool.Pool {
	t.Helper()
	pool, err := clientPool(t.Context(), db.URL, 1)
	if err != nil {
		t.Fatal(err)
	}
	pool.Close()
	return pool
}

func TestAClientPoolSaysWhyItIsNone(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"postgres://%": "database URL", "postgres://u@127.0.0.1:1/none": "connect: ",
	} {
		if _, err := clientPool(t.Context(), url, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
}

func TestAStackThatCannotStartLeavesNothing(t *testing.T) {
	t.Parallel()
	if _, err := startStack(t.Context(), stackConfig{url: "postgres://%"}); err == nil || !strings.Contains(err.Error(), "database URL") {
		t.Errorf("wrong URL: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	if _, err := startStack(ctx, stackConfig{url: "postgres://u@127.0.0.1:1/none"}); err == nil || ctx.Err() != nil {
		t.Errorf("no database: %v", err)
	}
}

func TestARunThatFailsFailsTheMeasurement(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	blocking := hooks.Hooks{BeforeRunStart: hooks.Named("no", "1", func(context.Context, hooks.BeforeRunStart) (hooks.BeforeRunStartResult, error) {
		return hooks.BeforeRunStartResult{Action: hooks.ActionBlock, Reason: hooks.Reason{Text: "never"}}, nil
	})}
	ids, err := seedSessions(t.Context(), db.URL, 1)
	if err != nil {
		t.Fatal(err)
	}
	_, err = playRuns(t.Context(), stackConfig{url: db.URL, model: instantModel{}, hooks: blocking}, ids, 1, 0, time.Minute)
	if err == nil || !strings.Contains(err.Error(), "it is failed, blocked") {
		t.Errorf("%v", err)
	}
	_, err = playRuns(t.Context(), stackConfig{url: db.URL, model: instantModel{}}, []string{newID()}, 1, 0, time.Minute)
	if err == nil || !strings.Contains(err.Error(), "start a run") {
		t.Errorf("no session: %v", err)
	}
}

func TestDriveMeasuresTheWindow(t *testing.T) {
	t.Parallel()
	quick := func(context.Context) error { return nil }
	got, err := drive(t.Context(), 2, time.Millisecond, 20*time.Millisecond, quick)
	if err != nil || got.rate <= 0 || got.total < len(got.times) {
		t.Errorf("%d times of %d, rate %f, %v", len(got.times), got.total, got.rate, err)
	}
	// What takes longer than the window is measured once for each client, and
	// the rate is theirs however long the window was.
	slow := func(ctx context.Context) error { return pause(ctx, 30*time.Millisecond) }
	if got, err = drive(t.Context(), 3, 0, time.Millisecond, slow); err != nil || len(got.times) != 3 || got.rate > 3/0.03 {
		t.Errorf("%d times, rate %f, %v, want 3 at less than 100/s", len(got.times), got.rate, err)
	}
	broken := errors.New("broken")
	if _, err = drive(t.Context(), 3, 0, time.Minute, func(context.Context) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("%v, want %v", err, broken)
	}
	next := counter{n: 5}
	spend := func(context.Context) error {
		_, err := next.take()
		return err
	}
	if got, err = drive(t.Context(), 1, 0, time.Minute, spend); err != nil || got.total != 5 || got.rate <= 0 {
		t.Errorf("total %d, rate %f, %v", got.total, got.rate, err)
	}
	if _, err = drive(t.Context(), 1, time.Minute, time.Minute, spend); err == nil || !strings.Contains(err.Error(), "before the measurement began") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := each(ctx, 2, 5, func(context.Context, int) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want canceled", err)
	}
}

func TestFiguresAreMediansOfTheirRounds(t *testing.T) {
	t.Parallel()
	var f figures
	for _, v := range []float64{5, 1, 3} {
		f.add("p", "c", "n", "ms", v)
	}
	g := f.find("p", "c", "n")
	if g.Median != 3 || g.Min != 1 || g.Max != 5 || f.last("p", "c", "n") != 3 {
		t.Errorf("%+v", g)
	}
	f.add("p", "c", "n", "ms", 2)
	if g.Median != 2.5 {
		t.Errorf("the median of 1, 2, 3 and 5 is %f", g.Median)
	}
	f.addRatio("p", "c", "r", 1, f.last("p", "c", "none"))
	f.addRatio("p", "c", "r", 1, 0)
	if f.find("p", "c", "r") != nil {
		t.Error("a ratio to nothing is a figure")
	}
	times := []time.Duration{3, 1, 2, 4}
	f.addTimes("p", "c", "t", times, 50, 99.9, 100)
	for name, want := range map[string]time.Duration{"t p50": 2, "t p99.9": 4, "t max": 4} {
		if g := f.find("p", "c", name); g == nil || g.Median != millis(want) {
			t.Errorf("%s: %+v, want %d ns", name, g, want)
		}
	}
	if percentile(nil, 50) != 0 {
		t.Error("nothing has a percentile")
	}
	f.addDeaths(nil, takeovers)
	f.addDeaths(deaths{takeovers[0]: []time.Duration{time.Second}}, takeovers)
	if g := f.find(partTakeover, takeovers[0].item, takeoverName+" max"); g == nil || g.Median != 1000 {
		t.Errorf("%+v", g)
	}
	for v, want := range map[float64]string{0: "0", 0.01234: "0.0123", 1.2: "1.2", 12.34: "12.3", 1234: "1234", -0.5: "-0.5", 100.4: "100"} {
		if got := formatFloat(v); got != want {
			t.Errorf("%f: %s, want %s", v, got, want)
		}
	}
}

func TestTheSummarySaysWhichAimsAreMet(t *testing.T) {
	t.Parallel()
	var f figures
	f.add(partRuns, "c=64", vsOwnSQL, "×", 0.8)
	f.add(partRuns, "c=1", "latency p50", "ms", 7)
	f.add(partRuns, "c=1", "latency p50", "ms", 9)
	r := report{Seconds: 12, Figures: f.list, Aims: f.results(), Notes: []string{"something was left out"}}
	want := "bench: 2 figures in 12 s, 1 of 2 aims met; runs/own SQL 0.8 (≥ 0.75: ok); run p50 at 1 8 ms (≤ 6: above the aim)"
	if got := r.summary(); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	var out bytes.Buffer
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"7–9", "note: something was left out"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %s", want, out.String())
		}
	}
	if err := r.print(brokenWriter{}); err == nil {
		t.Error("nobody reads the table, and it is well")
	}
	if err := r.write(filepath.Join(t.TempDir(), "nowhere", "bench.json")); err == nil || !strings.Contains(err.Error(), "write the report") {
		t.Errorf("%v", err)
	}
	dir := t.TempDir()
	if err := r.write(dir); err == nil { // a directory is in the way
		t.Error("a directory was replaced")
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), ".bench-*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	r.Seconds = math.NaN() // which JSON does not have
	if err := r.write(filepath.Join(dir, "bench.json")); err == nil || !strings.Contains(err.Error(), "encode") {
		t.Errorf("%v", err)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestStampsAreReadFromDeltas(t *testing.T) {
	t.Parallel()
	var got []int64
	add := func(at time.Time) { got = append(got, at.UnixNano()) }
	stamps([]byte(`{"seq":1,"type":"assistant.delta","data":{"text":"1700000000000000001 1700000000000000002 "}}`), add)
	stamps([]byte(`{"seq":4,"type":"assistant.delta","data":{"text":"ain from 1700000000000000003 the west 1700000000000000004 , ","attempt":1}}`), add)
	if len(got) != 4 || got[2] != 1700000000000000003 || got[3] != 1700000000000000004 {
		t.Errorf("between prose: %v", got)
	}
	got = got[:2]
	stamps([]byte(`{"seq":2,"type":"message.created","data":{"text":"1700000000000000003 "}}`), add)
	stamps([]byte(`{"seq":3,"type":"assistant.delta","data":{"text":"no stamp of that len "}}`), add)
	if len(got) != 2 || got[0] != 1700000000000000001 || got[1] != 1700000000000000002 {
		t.Errorf("%v", got)
	}
	if typ := eventType([]byte(`{"seq":1,"type":"run.completed","data":{}}`)); typ != "run.completed" {
		t.Errorf("type %q", typ)
	}
}

func TestASubscriptionReadsLongLinesAndSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 5000)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "refused") {
			http.Error(w, "no", http.StatusTeapot)
			return
		}
		_, _ = io.WriteString(w, ": hello\n\nid: 1\ndata: "+long+"\n\ndata: last\n\n")
	}))
	t.Cleanup(web.Close)
	s, err := subscribe(t.Context(), web.URL, "s", "", 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	for _, want := range []string{long + "\n", "last\n"} {
		if got, err := s.next(); string(got) != want || err != nil {
			t.Errorf("%d bytes, %v, want %d", len(got), err, len(want))
		}
	}
	if _, err := s.next(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	if _, err := subscribe(t.Context(), web.URL, "refused", "", 64); err == nil || !strings.Contains(err.Error(), "418") {
		t.Errorf("refused: %v", err)
	}
	if _, err := subscribe(t.Context(), "http://127.0.0.1:1", "s", "", 64); err == nil || !strings.Contains(err.Error(), "open an event stream") {
		t.Errorf("nobody listens: %v", err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	t.Cleanup(cancel)
	if _, err := subscribe(ctx, "http://"+silent.Addr().String(), "s", "", 64); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody answers: %v", err)
	}
}

func TestAStreamThatEndsEndsTheMeasurement(t *testing.T) {
	t.Parallel()
	group, listening := errgroup.WithContext(t.Context())
	group.Go(func() error { return io.EOF })
	if err := hold(listening, time.Minute); !errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "ended early") {
		t.Errorf("%v", err)
	}
	_ = group.Wait()
}

func TestAListenerIsToldOfARunThatEnds(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, data := range []string{
			`{"type":"run.started"}`, `{"type":"assistant.delta","data":{"text":"1700000000000000001 "}}`, `{"type":"run.completed","data":{"reason":"stopped"}}`,
		} {
			_, _ = io.WriteString(w, "data: "+data+"\n\n")
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(web.Close)
	s, err := subscribe(t.Context(), web.URL, "s", "", 4096)
	if err != nil {
		t.Fatal(err)
	}
	l := &listener{heard: make(chan struct{})}
	if err := l.listen(s); err == nil || !strings.Contains(err.Error(), "stopped") {
		t.Errorf("%v", err)
	}
	<-l.heard
}

func TestAMessageThatIsRefusedEndsTheMeasurement(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			http.Error(w, "no", http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, "data: {}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(web.Close)
	c := newClient(web.URL)
	t.Cleanup(c.close)
	if _, err := oneMessage(t.Context(), c, web.URL, "s"); err == nil || !strings.Contains(err.Error(), "start a run") {
		t.Errorf("%v", err)
	}
}

func TestPgbenchIsQuotedWhenItFails(t *testing.T) {
	t.Parallel()
	if rate, err := pgbenchTPS([]byte("x\ntps = 1234.5 (without initial connection time)\n")); rate != 1234.5 || err != nil {
		t.Errorf("%f, %v", rate, err)
	}
	if _, err := pgbenchTPS([]byte("x\nno rate\n")); err == nil || !strings.Contains(err.Error(), "names no rate: no rate") {
		t.Errorf("%v", err)
	}
	const database = "postgres://u:p@127.0.0.1:1/none"
	_, err := pgbenchRate(t.Context(), stub(t, "echo it is broken; exit 1"), database, t.TempDir(), "SELECT 1", 1, time.Second)
	if err == nil || !strings.Contains(err.Error(), "it is broken") {
		t.Errorf("%v", err)
	}
	if _, err = pgbenchRate(t.Context(), "pgbench", "%", t.TempDir(), "SELECT 1", 1, time.Second); err == nil || !strings.Contains(err.Error(), "database URL") {
		t.Errorf("%v", err)
	}
	if _, err = pgbenchRate(t.Context(), "pgbench", database, filepath.Join(t.TempDir(), "nowhere"), "SELECT 1", 1, time.Second); err == nil || !strings.Contains(err.Error(), "script") {
		t.Errorf("%v", err)
	}
}

func TestTheSlowDiskIsLeftOutWithoutACompiler(t *testing.T) {
	t.Parallel()
	if _, err := makeSlowBinaries(t.Context(), t.TempDir(), "/usr/bin", t.TempDir()); !errors.Is(err, errNoSlowDisk) || !strings.Contains(err.Error(), "C compiler") {
		t.Errorf("%v", err)
	}
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "cc"), []byte("#!/bin/sh\necho no such header; exit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := makeSlowBinaries(t.Context(), t.TempDir(), "/usr/bin", bin); err == nil || !strings.Contains(err.Error(), "no such header") {
		t.Errorf("%v", err)
	}
}

func TestASweepTakesWhatKilledRunsHaveLeft(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	old := time.Now().Add(-time.Hour)
	dir := func(name string, files ...string) string {
		path := filepath.Join(temp, name)
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if err := os.WriteFile(filepath.Join(path, f), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
		return path
	}
	gone := []string{dir(dirPrefix+"unlocked", lockName), dir(dirPrefix + "bare")}
	kept := []string{dir("agentd-else", lockName)}
	young := dir(dirPrefix + "young")
	if err := os.Chtimes(young, time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	sweep(temp)
	for _, path := range gone {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
	for _, path := range append(kept, young) {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	// One that is in use is held by its process.
	err := withDir(func(held string) error {
		if err := os.Chtimes(held, old, old); err != nil {
			return err
		}
		sweep(filepath.Dir(held))
		_, err := os.Stat(held)
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestTheDiskIsMeasuredWhereItIs(t *testing.T) {
	t.Parallel()
	if took, err := diskSync(t.TempDir()); err != nil || took <= 0 {
		t.Errorf("%s, %v", took, err)
	}
	if _, err := diskSync(filepath.Join(t.TempDir(), "nowhere")); err == nil || !strings.Contains(err.Error(), "measure the disk") {
		t.Errorf("%v", err)
	}
}

func TestFewerClientsAreANote(t *testing.T) {
	t.Parallel()
	b := &bench{}
	if n := b.clientsThatFit(10); n != 10 || len(b.notes) != 0 {
		t.Errorf("%d clients, notes %q", n, b.notes)
	}
	for range 2 {
		if n := b.clientsThatFit(1 << 30); n >= 1<<30 || n < 1 {
			t.Errorf("%d clients", n)
		}
	}
	if len(b.notes) != 1 || !strings.Contains(b.notes[0], "ulimit -n") {
		t.Errorf("notes %q", b.notes)
	}
}
