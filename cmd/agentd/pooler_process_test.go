package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// TestEverythingWorksBehindAPooler: PgBouncer in transaction mode stands before
// the database, with and without a way past it.
func TestEverythingWorksBehindAPooler(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		direct bool
		says   string
	}{
		{"Alone", false, "where LISTEN hears nothing"},
		{"WithAWayPastIt", true, "notifications and heartbeats go past it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			bouncer := storetest.NewBouncer(t, f.db.URL, storetest.BouncerTransaction)
			f.env = append(f.env, "AGENTD_DATABASE_URL="+bouncer,
				"AGENTD_TOOL_PERMISSIONS=pay=ask", "AGENTD_LEASE=3s")
			if test.direct {
				f.env = append(f.env, "AGENTD_DIRECT_DATABASE_URL="+f.db.URL)
			}
			f.spawn(t, "--roles", "api")
			f.spawn(t, "--roles", "worker")
			f.spawn(t, "--roles", "worker")
			f.ready(t)
			front := f.alive[0]
			f.checkTalk(t, front)
			f.checkCancel(t, front)
			for _, s := range f.alive {
				said := s.err.String()
				if strings.Contains(said, "prepared statement") || strings.Count(said, test.says) != 1 {
					t.Errorf("a process does not say once that there is a pooler, or is confused by it:\n%s", said)
				}
			}
			if n := scalar[int](t, f.db, `SELECT count(*) FROM agentd.workers WHERE dead_at IS NOT NULL OR pooled = $1`, test.direct); n != 0 {
				t.Errorf("%d workers are dead, or not what they are", n)
			}
			code, _, said := runAgentd(t, options{env: f.env}, "migrate")
			if refused := strings.Contains(said, "give the address of Postgres itself"); refused == test.direct || (code == 0) != test.direct {
				t.Errorf("migrate: exit code %d, said %s", code, said)
			}
			d := examined(t, databaseFlags{DatabaseURL: bouncer, DirectDatabaseURL: map[bool]string{true: f.db.URL}[test.direct]})
			if test.direct {
				d.expect(t, checkOK, "pooler", "leads past it")
				examined(t, databaseFlags{DatabaseURL: bouncer, DirectDatabaseURL: bouncer}).expect(t, checkFail, "pooler", "leads through a pooler in transaction mode as well")
			} else {
				d.expect(t, checkWarn, "pooler", "`agentd migrate` is refused")
			}
			d.expect(t, checkOK, "runs", "2 workers are alive")
			f.verify(t)
			if code, out, said := f.here(t, "stuck"); code != 0 || out != "nothing is stuck\n" {
				t.Errorf("stuck: exit code %d, printed %q, said %q", code, out, said)
			}
		})
	}
}

// checkTalk has runs of text, tools and approvals, told to a client who
// watches.
func (f *fleet) checkTalk(t *testing.T, front *server) {
	t.Helper()
	for _, say := range []string{"say", toolCharge + " " + holdNever, toolPut + " " + holdNever, toolPay + " " + holdNever} {
		session := newSession(t, front)
		run, after := startRun(t, front, session, say+" r1")
		client := follow(t, front.url, session, after)
		if strings.HasPrefix(say, toolPay) {
			f.approve(t, front, run)
			client.await(t, 1)
			client.stop()
			client = follow(t, front.url, session, after)
		}
		if status := f.awaitEnd(t, run); status != "completed" {
			t.Errorf("%s: the run is %s", say, status)
		}
		facts := checkSession(t, f, session)
		checkRun(t, ofRun(facts, run))
		if say != "say" {
			checkTool(t, f, ofRun(facts, run))
		}
		seen, _ := client.all(t)
		sameStory(t, "the client of "+say, seen, above(facts, after))
	}
}

// checkCancel cancels a run whose tool would never return.
func (f *fleet) checkCancel(t *testing.T, front *server) {
	t.Helper()
	session := newSession(t, front)
	run, _ := startRun(t, front, session, fmt.Sprintf("%s %s r1", toolCharge, filepath.Join(f.dir, "nothing")))
	awaitEffect(t, f.effects, run)
	cancelRun(t, front, run)
	if status := f.awaitEnd(t, run); status != "cancelled" {
		t.Errorf("the run is %s", status)
	}
	checkEnd(t, ofRun(checkSession(t, f, session), run), event.TypeRunCancelled)
}
