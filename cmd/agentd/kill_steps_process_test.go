package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

// kills is how often a process is killed in each kind of step.
func kills() int {
	switch {
	case fullSize():
		return 20
	case testing.Short():
		return 2
	}
	return 4
}

// takesLong leaves a test to the full size.
func takesLong(t *testing.T) {
	t.Helper()
	if !fullSize() {
		t.Skip("takes long: make test-full-size")
	}
}

// fullSize reports whether tests are to be as large as they are meant, which
// takes longer than there is time for each time: `make test-full-size`.
func fullSize() bool { return os.Getenv("AGENTD_FULL_SIZE") != "" }

// killPoint is when a process is killed.
type killPoint struct {
	// say is the user's message; the name of the run is added.
	say string
	// hold and turn name the append that is in flight; "" is none. It is lost
	// with the process, or committed after its death.
	hold event.Type
	turn int
	lose bool
	// events have been told of the run, if nothing is held.
	events int
	// approved is when a person approves the run's call.
	approved approvalTime
	// request, if any, is what a client asks for, of the process that has the
	// run. It may be what is in flight; without an answer it is made again.
	request clientRequest
	// status is how the run ends, "" for completed.
	status string
}

// clientRequest waits until a run is ready for it, and returns the request.
type clientRequest func(t *testing.T, f *fleet, r *killedRun) func(ctx context.Context, at *server) error

// approvalTime is when a person says yes.
type approvalTime int

const (
	approvedNever  approvalTime = iota
	approvedBefore              // so that what is held can be written
	approvedAfter               // the kill
)

// killedRun is a run during which a process was killed.
type killedRun struct {
	id       string
	name     string
	session  string
	after    int64 // the seq before its message
	follower *follower
	at       time.Time // of the kill
	worker   string    // that was killed with the run in its hands, if any
	pid      int       // of the process that was killed
	status   string    // at the end, "" for completed
	facts    []fact
}

// has reports whether the killed worker's append with that event was committed.
func (r *killedRun) has(of event.Type, turn int) bool {
	return slices.ContainsFunc(r.facts, func(f fact) bool {
		return f.Type == of && f.Turn == turn && f.ActorID == workerActor+r.worker
	})
}

// begin starts a run at a process, which also tells of it.
func (f *fleet) begin(t *testing.T, at *server, session, name, say string) *killedRun {
	t.Helper()
	r := &killedRun{name: name, session: session}
	r.id, r.after = startRun(t, at, session, say+" "+name)
	r.follower = follow(t, at.url, session, r.after)
	return r
}

// killDuring starts a run on one of two processes, kills the one that has it,
// and returns when the other has brought it to its end.
func (f *fleet) killDuring(t *testing.T, i int, session string, p killPoint) *killedRun {
	t.Helper()
	f.ready(t)
	var held *appendHold
	if p.hold != "" {
		held = holdAppend(t, f.db, p.hold, p.turn)
	}
	asked := f.alive[i%len(f.alive)]
	r := f.begin(t, asked, session, fmt.Sprintf("r%d", i), p.say)
	r.status = p.status
	if p.approved == approvedBefore {
		f.goOn(t, asked, r)
	}
	asked, answered, again := f.request(t, asked, r, p.request)
	pid := ""
	if held != nil {
		pid = held.await(t)
	} else {
		r.follower.await(t, p.events)
	}
	victim := asked
	if worker, holder := f.holder(t, r.id); holder != nil {
		victim, r.worker = holder, worker
	}
	for _, s := range f.alive {
		if s != victim {
			r.follower.turnTo(s.url)
		}
	}
	r.at, r.pid = f.kill(t, victim), victim.cmd.Process.Pid
	if held != nil {
		held.end(t, pid, p.lose)
	}
	// First, since the others soon take over what the dead one had.
	if again != nil && <-answered != nil {
		err := again(t.Context(), f.alive[0])
		if p.status == "cancelled" && connect.CodeOf(err) == connect.CodeFailedPrecondition {
			t.Log("the run has ended by itself before anybody cancelled it again")
			r.status, err = "", nil
		}
		if err != nil {
			t.Fatalf("asked again: %v", err)
		}
		r.follower = follow(t, f.alive[0].url, r.session, r.after)
	}
	f.spawn(t)
	if p.approved == approvedAfter {
		f.goOn(t, f.alive[0], r)
	}
	f.finish(t, r)
	return r
}

// request lets a client ask the process that has the run, or else at, and
// returns the process, where the answer is, and the same request.
func (f *fleet) request(t *testing.T, at *server, r *killedRun, of clientRequest) (asked *server, answered <-chan error, again func(context.Context, *server) error) {
	t.Helper()
	if of == nil {
		return at, nil, nil
	}
	again = of(t, f, r)
	if _, holder := f.holder(t, r.id); holder != nil {
		at = holder
	}
	answer := make(chan error, 1)
	go func() { answer <- again(t.Context(), at) }()
	return at, answer, again
}

// goOn approves the call for which the run waits. The stream has ended there,
// or will, so that another one tells of the whole run.
func (f *fleet) goOn(t *testing.T, at *server, r *killedRun) {
	t.Helper()
	f.approve(t, at, r.id)
	r.follower = follow(t, at.url, r.session, r.after)
}

// finish waits for the end of the run and looks at what holds for all.
func (f *fleet) finish(t *testing.T, r *killedRun) {
	t.Helper()
	want, end := cmp.Or(r.status, "completed"), event.TypeRunCompleted
	if want == "cancelled" {
		end = event.TypeRunCancelled
	}
	if status := f.awaitEnd(t, r.id); status != want {
		t.Errorf("run %s is %s, want %s", r.name, status, want)
	}
	all := stored(t, f.db, r.session)
	told, cuts := r.follower.all(t)
	sameStory(t, "SSE, cut off and resumed", told, above(all, r.after))
	f.cuts += cuts
	r.facts = ofRun(all, r.id)
	checkEnd(t, r.facts, end)
	checkAnswers(t, r.facts)
	if end == event.TypeRunCompleted {
		checkWriters(t, r.facts) // a sweeper cancels runs that nobody holds any more
	}
	f.timeTakeover(t, r)
}

// timeTakeover notes how long others took to notice the death.
func (f *fleet) timeTakeover(t *testing.T, r *killedRun) {
	t.Helper()
	freed := false
	for _, e := range events(t, r.facts) {
		if !strings.HasPrefix(e.Actor.ID, workerActor) || e.Actor.ID == workerActor+r.worker || e.At.Before(r.at) {
			continue
		}
		switch e.Type {
		case event.TypeRunReleased, event.TypeRunQueued:
			if !freed {
				f.released = append(f.released, e.At.Sub(r.at))
			}
			freed = true
		default:
			if freed {
				f.resumed = append(f.resumed, e.At.Sub(r.at))
			}
			return
		}
	}
}

// killAll kills one of two processes again and again.
func killAll(t *testing.T, points func(i int) killPoint, check func(t *testing.T, f *fleet, p killPoint, r *killedRun)) {
	f := newFleet(t)
	f.spawn(t)
	f.spawn(t)
	f.ready(t)
	session := newSession(t, f.alive[0])
	began := time.Now()
	for i := range kills() {
		p := points(i)
		r := f.killDuring(t, i, session, p)
		check(t, f, p, r)
		r.stopIfFailed(t)
	}
	f.sum(t, began, session)
}

// stopIfFailed says what the log has.
func (r *killedRun) stopIfFailed(t *testing.T) {
	t.Helper()
	if t.Failed() {
		for _, f := range r.facts {
			t.Logf("%+v", f)
		}
		t.FailNow()
	}
}

// sum looks at whole sessions, and says how long things took.
func (f *fleet) sum(t *testing.T, began time.Time, sessions ...string) {
	t.Helper()
	took := time.Since(began)
	f.ready(t)
	for _, session := range sessions {
		facts := checkSession(t, f, session)
		told, _ := follow(t, f.alive[0].url, session, 0).all(t)
		sameStory(t, "SSE from the start", told, facts)
	}
	f.verify(t)
	t.Logf("%d kills in %s, %d event streams were cut; lease %s: runs released after %s; resumed after %s",
		f.killed, took.Round(time.Millisecond), f.cuts, killLease, percentiles(f.released), percentiles(f.resumed))
}

func TestKillBeforeTheClaim(t *testing.T) {
	t.Parallel()
	committed := 0
	killAll(t, func(i int) killPoint {
		p := killPoint{say: "say", hold: event.TypeRunStarted, lose: i%3 == 1}
		if i%3 == 0 {
			p.hold = "" // the moment that the run has been started
		}
		return p
	}, func(t *testing.T, _ *fleet, p killPoint, r *killedRun) {
		t.Helper()
		if got := textOf(only[event.AssistantCompleted](t, r.facts).Parts); got != "Said "+r.name+"." {
			t.Errorf("the answer is %q", got)
		}
		switch claimed := r.has(event.TypeRunStarted, 0); {
		case claimed && p.lose:
			t.Error("the claim was lost, and is there")
		case claimed && p.hold != "":
			committed++
		}
	})
	t.Logf("%d claims were committed by the dead", committed)
}

// TestKillInTheModelsStreamAndInTools: the process has a run in each.
func TestKillInTheModelsStreamAndInTools(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	victim := f.add(t)
	var sessions [3]string
	for i := range sessions {
		sessions[i] = newSession(t, victim)
	}
	began := time.Now()
	for i := range kills() {
		name := fmt.Sprintf("r%d", i)
		hold := []string{holdBefore, holdAfter}[i%2]
		stream := f.begin(t, victim, sessions[0], name, "stream")
		charge := f.begin(t, victim, sessions[1], name, toolCharge+" "+hold)
		put := f.begin(t, victim, sessions[2], name, toolPut+" "+hold)
		stream.follower.await(t, 7+rand.IntN(2)) // six of the start, and a part of each lane
		awaitEffect(t, f.effects, charge.id)
		awaitEffect(t, f.effects, put.id)
		next := f.add(t)
		runs := []*killedRun{stream, charge, put}
		for _, r := range runs {
			r.worker, _ = f.holder(t, r.id)
			r.follower.turnTo(next.url)
		}
		at := f.kill(t, victim)
		for _, r := range runs {
			r.at = at
			f.finish(t, r)
		}
		checkStreamed(t, stream)
		// What the dead one did is done; only put is done again.
		checkEffects(t, f, charge, i%2, false)
		checkEffects(t, f, put, i%2+1, true)
		for _, r := range runs {
			r.stopIfFailed(t)
		}
		victim = next
	}
	f.sum(t, began, sessions[:]...)
}

func checkStreamed(t *testing.T, r *killedRun) {
	t.Helper()
	done := only[event.AssistantCompleted](t, r.facts)
	if got := textOf(done.Parts); got != "Streamed "+r.name+"." || done.Attempt < 2 {
		t.Errorf("the answer is %q in attempt %d", got, done.Attempt)
	}
	if !r.has(event.TypeAssistantDelta, 1) {
		t.Error("no part of the first attempt was durable")
	}
}

func checkEffects(t *testing.T, f *fleet, r *killedRun, effects int, executed bool) {
	t.Helper()
	if s := checkTool(t, f, r.facts); s.effects != effects || s.executed != executed {
		t.Errorf("%s: %+v, want %d effects, executed: %t", r.name, s, effects, executed)
	}
}

func TestKillBetweenSteps(t *testing.T) {
	t.Parallel()
	fates := map[string]int{}
	killAll(t, betweenSteps, func(t *testing.T, f *fleet, p killPoint, r *killedRun) {
		t.Helper()
		if p.hold == "" {
			checkTool(t, f, r.facts)
			return
		}
		committed := r.has(p.hold, p.turn)
		if p.lose && committed {
			t.Errorf("%s was lost, and is there", p.hold)
		}
		fates[fmt.Sprintf("%s of turn %d, committed: %t", p.hold, p.turn, committed)]++
		checkBetween(t, f, p, committed, r)
	})
	t.Logf("appends in flight: %v", fates)
}

// betweenSteps are the appends of a run with a tool call, each lost or not. A
// fifth of them is a random moment.
func betweenSteps(i int) killPoint {
	p := killPoint{say: toolCharge + " " + holdNever, lose: i/10%2 == 1}
	if i/5%2 == 1 {
		p.say = toolPut + " " + holdNever
	}
	switch i % 5 {
	case 0: // the answer, its calls, and the start of the tool
		p.hold, p.turn = event.TypeAssistantCompleted, 1
	case 1: // the tool's outcome and result, the end of the turn and the next model call
		p.hold, p.turn = event.TypeToolExecuted, 1
	case 2: // the same, when most of it is written
		p.hold, p.turn = event.TypeModelRequested, 2
	case 3: // the answer and the end of the run
		p.hold, p.turn = event.TypeAssistantCompleted, 2
	default:
		p.events = 1 + rand.IntN(20)
	}
	return p
}

// checkBetween says how often a tool that is not held takes effect.
func checkBetween(t *testing.T, f *fleet, p killPoint, committed bool, r *killedRun) {
	t.Helper()
	effects, executed := 1, true
	charge := strings.HasPrefix(p.say, toolCharge)
	outcome := p.hold == event.TypeToolExecuted || p.hold == event.TypeModelRequested
	switch {
	case p.hold == event.TypeAssistantCompleted && p.turn == 1 && committed && charge:
		effects, executed = 0, false // its start is durable, so nobody may try
	case outcome && !committed && charge:
		executed = false
	case outcome && !committed:
		effects = 2
	}
	checkEffects(t, f, r, effects, executed)
}
