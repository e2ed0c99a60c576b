package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// onCall runs a command of the person on call over the fleet's database and
// wants it to succeed.
func (f *fleet) onCall(t *testing.T, args ...string) string {
	t.Helper()
	code, out, said := f.here(t, args...)
	if code != 0 {
		t.Fatalf("agentd %s: exit code %d, said %s%s", strings.Join(args, " "), code, out, said)
	}
	return out
}

// awaitBeats returns when every worker of the fleet has had a heartbeat that
// began after now.
func (f *fleet) awaitBeats(t *testing.T, workers int) {
	t.Helper()
	at := scalar[string](t, f.db, `SELECT agentd.clock()::text`)
	awaitRow(t, f.db, fmt.Sprintf(`
		SELECT 'x' FROM agentd.workers WHERE dead_at IS NULL AND stopped_at IS NULL
		HAVING count(*) = %d AND min(heartbeat_at) > '%s'::timestamptz + interval '%d milliseconds'`, workers, at, killLease.Milliseconds()))
}

// TestAPauseOutlivesAKillOfEverything: one run is in its tool and one is queued
// when all is paused; all processes are killed, and others come. Nothing runs,
// and nothing is lost.
func TestAPauseOutlivesAKillOfEverything(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	front := f.add(t, "--roles", "api")
	f.add(t, "--roles", "worker")
	f.add(t, "--roles", "worker")
	sessions := map[string]string{}
	begin := func(say string) string {
		t.Helper()
		session := newSession(t, front)
		run, _ := startRun(t, front, session, say)
		sessions[run] = session
		return run
	}
	running := begin(toolCharge + " " + f.gate + " r0")
	killed := begin(toolPut + " " + holdBefore + " r1")
	awaitEffect(t, f.effects, running)
	awaitEffect(t, f.effects, killed)
	if out := f.onCall(t, "pause", "--agent", demoAgent, "--reason", "it spends too much"); !strings.Contains(out, "paused: agent demo of tenant default") || !strings.Contains(out, "0 queued, 2 running and 0 waiting") {
		t.Errorf("pause printed %q", out)
	}
	f.awaitBeats(t, 2)
	res, err := agentdv1connect.NewRunServiceClient(freshClient(), front.url).
		StartRun(t.Context(), connect.NewRequest(&agentdv1.StartRunRequest{SessionId: newSession(t, front), Text: "say r2"}))
	if err != nil || res.Msg.GetPause().GetReason() != "it spends too much" || res.Msg.GetPause().GetAgent() != demoAgent {
		t.Errorf("a new message gives %v, %v; want it accepted, with the pause", res, err)
	}
	fresh := res.Msg.GetRunId()
	writeFile(t, f.gate)
	awaitRow(t, f.db, fmt.Sprintf(`SELECT 'x' FROM agentd.events WHERE run_id = '%s' AND type = 'run.released' AND payload ->> 'cause' = 'pause'`, running))
	before := len(effects(t, f.effects, killed))

	f.kill(t, f.alive...)
	front = f.add(t, "--roles", "api")
	f.add(t, "--roles", "worker")
	// The run whose worker died is taken away from it, and stays queued.
	awaitRow(t, f.db, `SELECT 'x' FROM agentd.runs HAVING bool_and(status = 'queued')`)
	awaitRow(t, f.db, `SELECT 'x' FROM (SELECT count(*) FROM agentd.river_job WHERE state = 'available') AS j (n) WHERE n = 0`)
	f.awaitBeats(t, 1)
	f.awaitBeats(t, 1)
	if n := len(effects(t, f.effects, killed)); n != before || scalar[int](t, f.db, `SELECT count(*) FROM agentd.runs WHERE status = 'queued'`) != 3 {
		t.Errorf("the tool was entered %d times before and %d after the kill; want no step in a pause", before, n)
	}
	f.onCall(t, "pause", "--list")
	if out := f.onCall(t, "resume", "--agent", demoAgent); !strings.Contains(out, "resumed: agent demo of tenant default\nnothing is paused\n") {
		t.Errorf("resume printed %q", out)
	}
	began := time.Now()
	for _, run := range []string{running, killed, fresh} {
		if status := f.awaitEnd(t, run); status != "completed" {
			t.Errorf("run %s is %s", run, status)
		}
	}
	t.Logf("all runs are at their end %s after the resume; lease %s", time.Since(began).Round(time.Millisecond), killLease)
	if n := len(effects(t, f.effects, running)); n != 1 {
		t.Errorf("the tool that must not be repeated took effect %d times", n)
	}
	for run, session := range sessions {
		checkRun(t, ofRun(checkSession(t, f, session), run))
	}
	f.verify(t)
}

// TestADrainedServerKeepsAnsweringAndIsNotReady: it is asked without a signal,
// and another process takes up its runs.
func TestADrainedServerKeepsAnsweringAndIsNotReady(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	drained := f.add(t)
	session := newSession(t, drained)
	run, _ := startRun(t, drained, session, toolCharge+" "+f.gate+" r0")
	awaitEffect(t, f.effects, run)
	listed := f.onCall(t, "drain")
	worker, _ := f.holder(t, run)
	if host := hostname(); !strings.Contains(listed, worker) || !strings.Contains(listed, host) {
		t.Errorf("the list has not worker %s on %s:\n%s", worker, host, listed)
	}
	f.onCall(t, "drain", worker)
	awaitReady(t, drained, http.StatusServiceUnavailable, "draining")
	writeFile(t, f.gate)
	drained.await(t, &drained.err, `msg="worker is drained" worker=(`+worker+`)`)
	// It still accepts what it does not work on.
	second := newSession(t, drained)
	other, _ := startRun(t, drained, second, "say r1")
	if out := f.onCall(t, "drain"); out != "no worker is alive\n" {
		t.Errorf("the workers are\n%s", out)
	}
	f.add(t, "--roles", "worker")
	for _, r := range []string{run, other} {
		if status := f.awaitEnd(t, r); status != "completed" {
			t.Errorf("run %s is %s", r, status)
		}
	}
	checkRun(t, ofRun(checkSession(t, f, session), run))
	if n := len(effects(t, f.effects, run)); n != 1 {
		t.Errorf("the tool took effect %d times", n)
	}
	drained.signal(t, syscall.SIGTERM)
	if code := drained.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	f.verify(t)
}

// awaitReady polls /readyz: it says what a heartbeat has brought.
func awaitReady(t *testing.T, s *server, status int, text string) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		res, err := freshClient().Get(s.url + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err == nil && res.StatusCode == status && strings.Contains(string(body), text) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("/readyz says %d %s, want %d %s", res.StatusCode, body, status, text)
		}
	}
}

func TestFailByForceEndsARunOnAStoppedProcess(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	front := f.add(t, "--roles", "api")
	worker := f.add(t, "--roles", "worker")
	session := newSession(t, front)
	run, _ := startRun(t, front, session, toolCharge+" "+holdAfter+" r0")
	awaitEffect(t, f.effects, run)
	worker.signal(t, syscall.SIGSTOP)
	ask := ofServer(front.url, "1m")
	if code, _, said := ask(t, "runs", "fail", run); code != exitUsage || !strings.Contains(said, "--reason") {
		t.Errorf("without a reason: exit code %d, said %s", code, said)
	}
	if code, out, said := ask(t, "runs", "fail", run, "--reason", "its host is gone"); code != 0 || out != "the run has failed: forced\n" {
		t.Fatalf("exit code %d, printed %s, said %s", code, out, said)
	}
	if code, _, said := ask(t, "runs", "fail", run, "--reason", "again"); code != exitFailure || !strings.Contains(said, "already ended") {
		t.Errorf("a second time: exit code %d, said %s", code, said)
	}
	last := scalar[int64](t, f.db, `SELECT last_seq FROM agentd.sessions`)
	worker.signal(t, syscall.SIGCONT)
	worker.await(t, &worker.err, `run was taken away`)
	if now := scalar[int64](t, f.db, `SELECT last_seq FROM agentd.sessions`); now != last {
		t.Errorf("%d events came after the end", now-last)
	}
	got := awaitRow(t, f.db, `SELECT r.status || ' ' || r.reason || ' ' || c.result_reason FROM agentd.runs AS r JOIN agentd.tool_calls AS c ON c.run_id = r.id`)
	if got != "failed forced outcome_unknown" {
		t.Errorf("the run is %s", got)
	}
	f.verify(t)
}

func TestStuckSaysWhatToDo(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startServe(t, db, nil, "--roles", "api")
	ask := ofDatabase(db.URL)
	if code, out, _ := ask(t, "stuck"); code != 0 || out != "nothing is stuck\n" {
		t.Errorf("exit code %d, printed %s", code, out)
	}
	run, _ := startRun(t, s, newSession(t, s), "hi")
	db.ShiftClock(t, time.Minute)
	code, out, _ := ask(t, "stuck")
	for _, want := range []string{run + "  demo   queued  ", "no_worker  no worker is alive", "no_worker: start a worker: `agentd serve --roles worker`"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, no %q in\n%s", code, want, out)
		}
	}
	examined(t, databaseFlags{DatabaseURL: db.URL}).expect(t, checkWarn, "runs", "1 run, stuck: 1 no_worker; 0 workers are alive")
	if code, out, said := ask(t, "pause", "--all"); code != 0 || !strings.Contains(out, "it covers 1 queued") {
		t.Fatalf("exit code %d, printed %s, said %s", code, out, said)
	}
	db.ShiftClock(t, 2*time.Minute)
	if code, out, _ := ask(t, "stuck"); code != 0 || !strings.Contains(out, "paused: no fault: ") || strings.Contains(out, "no_worker") {
		t.Errorf("exit code %d, printed\n%s", code, out)
	}
}

func TestCommandsOfThePersonOnCallSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	ask := ofDatabase(db.URL)
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"pause", exitUsage, "which runs?"},
		{"resume", exitUsage, "which runs?"},
		{"pause --all --agent x", exitUsage, "give it alone"},
		{"pause --tenant nobody", exitFailure, `there is no tenant "nobody"`},
		{"pause --list", 0, "nothing is paused"},
		{"resume --all", exitFailure, "everything: that was not paused"},
		{"pause --tenant default", 0, "paused: tenant default"},
		{"pause --list", 0, "tenant default"},
		{"resume --agent demo", exitFailure, "agent demo of tenant default: that was not paused"},
		{"drain", 0, "no worker is alive"},
		{"drain --all", 0, "no worker is alive"},
		{"drain --all x", exitUsage, "--all is every worker"},
		{"drain x", exitFailure, `no worker "x" is alive`},
		{"drain " + newID(), exitFailure, "is alive"},
		{"stuck --limit 0", exitUsage, "--limit 0"},
	} {
		code, out, said := ask(t, strings.Fields(test.args)...)
		if code != test.code || !strings.Contains(out+said, test.want) {
			t.Errorf("%s: exit code %d, printed %s, said %s; want %d and %q", test.args, code, out, said, test.code, test.want)
		}
	}
}

// TestTheRunbookHasEveryReason holds the view, the command and the document
// against each other.
func TestTheRunbookHasEveryReason(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	listed := scalar[string](t, db, `
		SELECT col_description('agentd.stuck'::regclass, attnum) FROM pg_attribute
		WHERE attrelid = 'agentd.stuck'::regclass AND attname = 'reason'`)
	text := document(t, "docs", "operations.md")
	for reason, remedy := range remedies {
		if !strings.Contains(text, "| `"+reason+"` | ") || !strings.Contains(text, " | "+remedy+" |") {
			t.Errorf("docs/operations.md does not say: `%s` … | %s |", reason, remedy)
		}
		if !strings.Contains(listed, reason) {
			t.Errorf("the view's column does not explain %s", reason)
		}
	}
	_, words, _ := strings.Cut(strings.TrimSuffix(strings.ReplaceAll(listed, " (no fault)", ""), "."), ": ")
	for word := range strings.SplitSeq(words, ", ") {
		if remedies[word] == "" {
			t.Errorf("nobody says what to do about %s", word)
		}
	}
}

// writeFile makes an empty file, for which somebody waits.
func writeFile(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}
