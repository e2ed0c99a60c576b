package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

// oldVariable names the commit that is taken for the old version, in place of
// the last one without [provingMigration].
const oldVariable = "AGENTD_TEST_OLD_COMMIT"

// provingMigration changes tables that runs are worked on with: from it on people
// may edit what they approve.
const provingMigration = "migrations/00019_*.sql"

// git runs git in this repository, whoever owns it.
func git(t *testing.T, args ...string) ([]byte, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "safe.directory=*", "-C", "../.."}, args...)...)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, exit.Stderr)
	}
	return out, err
}

// buildOld builds this test binary as it was before [provingMigration].
func buildOld(t *testing.T) string {
	t.Helper()
	commit := os.Getenv(oldVariable)
	if commit == "" {
		newest, err := git(t, "log", "-1", "--format=%H^", "--diff-filter=A", "--", provingMigration)
		if err != nil || len(newest) == 0 {
			t.Skip("NOT TESTED: this checkout has no history, so there is no old version to run beside this one: ", err)
		}
		commit = strings.TrimSpace(string(newest))
	}
	archive, err := git(t, "archive", "--format=tar", commit)
	if err != nil {
		t.Skip("NOT TESTED: the history ends before that version, so there is no old version to run beside this one: ", err)
	}
	dir := t.TempDir()
	unpack := exec.CommandContext(t.Context(), "tar", "-x", "-C", dir)
	unpack.Stdin = strings.NewReader(string(archive))
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", unpack, err, out)
	}
	t.Log("the old version is", commit)
	return buildSelf(t, dir)
}

// addBuild starts a process of a build, "" for this one, and returns it when it
// is ready.
func (f *fleet) addBuild(t *testing.T, binary string, args ...string) *server {
	t.Helper()
	f.coming = append(f.coming, start(t, options{dir: f.dir, env: f.env, binary: binary}, append([]string{"serve"}, args...)...))
	f.ready(t)
	return f.alive[len(f.alive)-1]
}

// TestKillAmongOldAndNewVersions: on the schema of the new version, the old one
// goes on, whichever of the two answers people and whichever does the work, and
// each takes over what the other one leaves.
func TestKillAmongOldAndNewVersions(t *testing.T) {
	t.Parallel()
	if !fullSize() {
		t.Skip("builds agentd as it was: make test-full-size")
	}
	old := buildOld(t)
	for name, v := range map[string]struct{ front, works, heir string }{
		"the old one works":  {"", old, ""},
		"the new one works":  {old, "", old},
		"the old one is all": {old, old, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.env = append(f.env, "AGENTD_TOOL_PERMISSIONS="+toolPay+"=ask")
			front := f.addBuild(t, v.front, "--roles", "api")
			works := f.addBuild(t, v.works)
			ends := f.mixedRuns(t, front, works)
			for run, c := range ends {
				if status := f.awaitEnd(t, run); status != cmp.Or(c.status, "completed") {
					t.Errorf("%s: the run is %s", c.said, status)
				}
				c.check(t, f, run)
			}
			f.takeOverBy(t, front, works, v.heir)
			f.verify(t)
		})
	}
}

// mixedRun is a run that one version has asked for and another one does.
type mixedRun struct {
	session, said string
	status        string // "" for completed
	follower      *follower
	after         int64
}

func (c *mixedRun) check(t *testing.T, f *fleet, run string) {
	t.Helper()
	all := checkSession(t, f, c.session)
	facts := ofRun(all, run)
	if c.status == "cancelled" {
		checkEnd(t, facts, event.TypeRunCancelled)
	} else {
		checkRun(t, facts)
	}
	if strings.HasPrefix(c.said, toolCharge) || strings.HasPrefix(c.said, toolPut) || strings.HasPrefix(c.said, toolPay) {
		checkTool(t, f, facts)
	}
	if c.follower != nil {
		told, _ := c.follower.all(t)
		sameStory(t, c.said+" over SSE", told, above(all, c.after))
	}
}

// mixedRuns asks one process for all kinds of runs, of which it tells, while the
// other one works. What waits for people is answered through either.
func (f *fleet) mixedRuns(t *testing.T, front, works *server) map[string]*mixedRun {
	t.Helper()
	out := map[string]*mixedRun{}
	begin := func(said string) (string, *mixedRun) {
		c := &mixedRun{session: newSession(t, front), said: said}
		run, after := startRun(t, front, c.session, said)
		out[run], c.after = c, after
		return run, c
	}
	for _, said := range []string{"say r1", toolCharge + " never r2", toolPut + " never r3"} {
		_, c := begin(said)
		c.follower = follow(t, front.url, c.session, c.after)
	}
	for _, at := range []*server{front, works} {
		run, _ := begin(toolPay + " never r4")
		awaitRow(t, f.db, fmt.Sprintf(`SELECT 'x' FROM agentd.runs WHERE id = '%s' AND status = 'waiting'`, run))
		f.approve(t, at, run)
	}
	// A run of which one is enqueued behind, and which is then cancelled.
	run, c := begin("pause r5")
	c.status = "cancelled"
	awaitRow(t, f.db, fmt.Sprintf(`SELECT 'x' FROM agentd.events WHERE run_id = '%s' AND type = 'assistant.delta'`, run))
	out[say(t, front, c.session, "say r6", "enqueue").GetRunId()] = &mixedRun{session: c.session, said: "say r6"}
	out[say(t, works, c.session, "say r7", "enqueue").GetRunId()] = &mixedRun{session: c.session, said: "say r7"}
	cancelRun(t, front, run)
	return out
}

// takeOverBy kills the process that works, in a model call and in two tools, and
// has another version go on.
func (f *fleet) takeOverBy(t *testing.T, front, works *server, heir string) {
	t.Helper()
	runs := map[string]*mixedRun{}
	for _, said := range []string{"stream r8", toolCharge + " after r9", toolPut + " before r10"} {
		c := &mixedRun{session: newSession(t, front), said: said}
		run, _ := startRun(t, front, c.session, said)
		runs[run] = c
		if strings.HasPrefix(said, "stream") {
			awaitRow(t, f.db, fmt.Sprintf(`SELECT 'x' FROM agentd.events WHERE run_id = '%s' AND type = 'assistant.delta'`, run))
		} else {
			awaitEffect(t, f.effects, run)
		}
	}
	f.kill(t, works)
	f.addBuild(t, heir, "--roles", "worker")
	for run, c := range runs {
		if status := f.awaitEnd(t, run); status != "completed" {
			t.Errorf("%s: the run that was taken over is %s", c.said, status)
		}
		c.check(t, f, run)
		if n := len(decoded[event.RunReleased](t, ofRun(stored(t, f.db, c.session), run))); n != 1 {
			t.Errorf("%s: %d workers died over it, want one", c.said, n)
		}
	}
}
