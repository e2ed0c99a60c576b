package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

// TestAWorkerThatWasStoppedForLongerThanItsLease: it wakes up in the middle of
// its steps, with their outcomes to write, when another worker has its runs or
// has finished them.
func TestAWorkerThatWasStoppedForLongerThanItsLease(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	zombie := f.add(t)
	second := f.gate + ".second"
	for i := range max(kills()/3, 2) {
		z := f.makeZombie(t, i, zombie)
		other := f.add(t)
		f.awaitTakeover(t, z)
		finished := i%2 == 0
		if finished {
			f.open(t, second)
			f.awaitEnds(t, z)
		}
		before := scalar[int](t, f.db, `SELECT count(*) FROM agentd.events`)
		f.open(t, f.gate)
		zombie.signal(t, syscall.SIGCONT)
		f.awaitFresh(t, zombie, z.worker)
		if n := scalar[int](t, f.db, `SELECT count(*) FROM agentd.events`); n != before {
			t.Errorf("%d events were written after the take-over", n-before)
		}
		if !finished {
			f.open(t, second)
			f.awaitEnds(t, z)
		}
		f.checkZombie(t, z)
		// It is a worker like any other.
		f.kill(t, other)
		session := newSession(t, zombie)
		run, _ := startRun(t, zombie, session, "say again")
		f.awaitEnd(t, run)
		started := only[event.RunStarted](t, stored(t, f.db, session))
		if started.WorkerID == z.worker || !strings.Contains(zombie.err.String(), "worker="+started.WorkerID) {
			t.Errorf("the next run is started by %s, want by the same process under a fresh id", started.WorkerID)
		}
		for _, path := range []string{f.gate, second} {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.verify(t)
}

func (f *fleet) open(t *testing.T, gate string) {
	t.Helper()
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// stoppedWorker is a worker that was stopped in the middle of steps.
type stoppedWorker struct {
	worker   string
	sessions []string
	runs     []string
	tools    map[string]bool // the runs with a tool call
}

// makeZombie stops s in a model call and in both kinds of tools. Each would go
// on when the gate is open.
func (f *fleet) makeZombie(t *testing.T, i int, s *server) *stoppedWorker {
	t.Helper()
	z := &stoppedWorker{tools: map[string]bool{}}
	for _, say := range []string{"drift", toolCharge + " " + f.gate, toolPut + " " + f.gate} {
		session := newSession(t, s)
		run, _ := startRun(t, s, session, fmt.Sprintf("%s r%d", say, i))
		z.sessions, z.runs = append(z.sessions, session), append(z.runs, run)
		if say == "drift" {
			awaitRow(t, f.db, fmt.Sprintf(`SELECT 'x' FROM agentd.events WHERE run_id = '%s' AND type = 'assistant.delta'`, run))
			continue
		}
		z.tools[run] = true
		awaitEffect(t, f.effects, run)
	}
	z.worker, _ = f.holder(t, z.runs[0])
	s.signal(t, syscall.SIGSTOP)
	return z
}

// awaitTakeover returns when the runs with tools have ended, and the one in a
// model call is in the middle of another attempt.
func (f *fleet) awaitTakeover(t *testing.T, z *stoppedWorker) {
	t.Helper()
	for _, run := range z.runs {
		if z.tools[run] {
			f.awaitEnd(t, run)
			continue
		}
		awaitRow(t, f.db, fmt.Sprintf(`
			SELECT 'x' FROM agentd.events
			WHERE run_id = '%s' AND type = 'assistant.delta' AND payload ->> 'attempt' = '2'`, run))
	}
}

func (f *fleet) awaitEnds(t *testing.T, z *stoppedWorker) {
	t.Helper()
	for _, run := range z.runs {
		if status := f.awaitEnd(t, run); status != "completed" {
			t.Errorf("run %s is %s", run, status)
		}
	}
}

// awaitFresh returns when s has seen that it is dead, and takes jobs as another
// worker.
func (f *fleet) awaitFresh(t *testing.T, s *server, was string) {
	t.Helper()
	s.await(t, &s.err, `(?s)msg="worker has lost its lease"[^\n]*worker=`+was+`.*msg="worker takes jobs"`)
}

func (f *fleet) checkZombie(t *testing.T, z *stoppedWorker) {
	t.Helper()
	if !scalar[bool](t, f.db, `SELECT dead_at IS NOT NULL FROM agentd.workers WHERE id = $1`, z.worker) {
		t.Error("the stopped worker was not declared dead")
	}
	for i, run := range z.runs {
		facts := ofRun(checkSession(t, f, z.sessions[i]), run)
		checkRun(t, facts)
		released := decoded[event.RunReleased](t, facts)
		if len(released) == 0 || released[0].WorkerID != z.worker || released[0].Cause != event.ReleaseWorkerDead {
			t.Errorf("released: %+v, want by the death of %s", released, z.worker)
		}
		if z.tools[run] {
			checkTool(t, f, facts)
		}
	}
}
