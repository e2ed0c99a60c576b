package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// findings are what was wrong, by what it is. Runs and sessions that are named
// in a line are told of in the report.
type findings struct {
	lines map[string][]string
	// sessions are those in which something is broken.
	sessions map[string]bool
}

func (f *findings) add(what, sessionID, format string, args ...any) {
	f.lines[what] = append(f.lines[what], fmt.Sprintf(format, args...))
	if sessionID != "" {
		f.sessions[sessionID] = true
	}
}

// A run is given up when so many workers in a row died with it, which a schedule
// with many kills may do to an honest one.
const (
	poisoned       = "poisoned"
	deathsToPoison = 5
)

// What must be zero.
const (
	lostMessages    = "lost messages"
	repeatedMessage = "messages twice"
	duplicates      = "duplicate effects"
	lostEffects     = "lost effects"
	unasked         = "effects without a start"
	otherBytes      = "effects of other arguments"
	lostEvents      = "lost events"
	holes           = "holes"
	notEnded        = "runs not ended"
	failedRuns      = "runs failed"
	invalidRequests = "invalid provider requests"
	brokenChains    = "broken chains"
	mismatches      = "fold mismatches"
	refusedLogs     = "logs that the tables refuse"
	mixedAnswers    = "answers of two attempts"
	transcripts     = "transcripts that differ"
	openApprovals   = "open approvals under ended runs"
	wrongAnswers    = "answers nobody should get"
)

var mustBeZero = []string{
	lostMessages, repeatedMessage, duplicates, lostEffects, unasked, otherBytes, lostEvents, holes, notEnded, failedRuns, invalidRequests,
	brokenChains, mismatches, refusedLogs, mixedAnswers, transcripts, openApprovals, wrongAnswers,
}

// examination looks at everything once all is over.
type examination struct {
	findings
	conn    *pgx.Conn
	effects map[string][]effect
	load    *load
	// deaths, and when there was no database.
	deaths []death
	downs  []span

	runs, events int
	// givenUp are runs that ended as poisoned, rightly.
	givenUp int
	// takeovers are times by what took the worker away.
	takeovers map[faultKind][]time.Duration
}

func (x *examination) run(ctx context.Context) error {
	x.lines, x.sessions, x.takeovers = map[string][]string{}, map[string]bool{}, map[faultKind][]time.Duration{}
	for _, step := range []func(context.Context) error{x.ofRuns, x.ofSessions, x.ofMessages, x.ofTakeovers} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	for _, w := range x.load.wrong {
		x.add(wrongAnswers, "", "%s", w)
	}
	return nil
}

func (x *examination) ofRuns(ctx context.Context) error {
	rows, _ := x.conn.Query(ctx, `
		SELECT r.id::text, r.session_id::text, r.status, coalesce(r.reason, ''), coalesce(r.error, ''),
			(SELECT count(*) FROM agentd.approvals a WHERE a.run_id = r.id AND a.status = 'pending'),
			(SELECT count(*) FROM agentd.events e WHERE e.run_id = r.id AND e.type = 'run.released' AND e.payload ->> 'cause' = 'worker_dead')
		FROM agentd.runs r`) // rows has the error
	_, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
		var id, session, status, reason, message string
		var open, deaths int
		if err := row.Scan(&id, &session, &status, &reason, &message, &open, &deaths); err != nil {
			return struct{}{}, err
		}
		x.runs++
		switch {
		case status == "completed", status == "cancelled":
		case status == "failed" && reason == poisoned && deaths >= deathsToPoison:
			x.givenUp++
		case status == "failed":
			x.add(failedRuns, session, "run %s of session %s: %s: %s", id, session, reason, message)
		default:
			x.add(notEnded, session, "run %s of session %s is %s", id, session, status)
			return struct{}{}, nil
		}
		if open > 0 {
			x.add(openApprovals, session, "run %s of session %s is %s and has %d open approvals", id, session, status, open)
		}
		return struct{}{}, nil
	})
	if err != nil {
		return fmt.Errorf("read the runs: %w", err)
	}
	return nil
}

// ofSessions reads one log after the other.
func (x *examination) ofSessions(ctx context.Context) error {
	rows, err := x.conn.Query(ctx, `SELECT id::text FROM agentd.sessions ORDER BY id`)
	if err != nil {
		return fmt.Errorf("read the sessions: %w", err)
	}
	sessions, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("read the sessions: %w", err)
	}
	followers := map[string][]*follower{}
	for _, f := range x.load.followers {
		followers[f.sessionID] = append(followers[f.sessionID], f)
	}
	for _, session := range sessions {
		log, err := x.log(ctx, session)
		if err != nil {
			return err
		}
		x.events += len(log)
		x.ofLog(session, log)
		seen := make([]sighting, 0, len(log))
		for _, e := range log {
			seen = append(seen, sighting{seq: e.Seq, sum: eventSum(string(e.Type), e.Payload)})
		}
		for _, f := range followers[session] {
			x.ofFollower(f, seen)
		}
	}
	for call, effects := range x.effects { // of what no log knows
		x.add(unasked, "", "call %s of run %s, %d effects, is in no log", call, effects[0].run, len(effects))
	}
	return nil
}

func (x *examination) log(ctx context.Context, session string) ([]event.Event, error) {
	rows, err := x.conn.Query(ctx, `
		SELECT seq, type, coalesce(run_id::text, ''), coalesce(turn_no, 0), payload::text, actor_kind, actor_id, at
		FROM agentd.events WHERE session_id = $1 ORDER BY seq`, session)
	if err != nil {
		return nil, fmt.Errorf("read session %s: %w", session, err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (event.Event, error) {
		e := event.Event{SessionID: session}
		var payload string
		err := row.Scan(&e.Seq, &e.Type, &e.RunID, &e.Turn, &payload, &e.Actor.Kind, &e.Actor.ID, &e.At)
		e.Payload = json.RawMessage(payload)
		return e, err
	})
}

func (x *examination) ofLog(session string, log []event.Event) {
	for i, e := range log {
		if e.Seq != int64(i+1) {
			x.add(holes, session, "session %s: event %d has seq %d", session, i+1, e.Seq)
			break
		}
	}
	if err := looptest.CheckLog(log); err != nil {
		x.add(refusedLogs, session, "session %s: %v", session, err)
	}
	x.ofCalls(session, log)
	for _, e := range log {
		if e.Type != event.TypeAssistantCompleted {
			continue
		}
		p, err := event.Decode(e)
		if err != nil {
			continue // said already
		}
		if mixed(p.(event.AssistantCompleted).Parts) {
			x.add(mixedAnswers, session, "session %s, seq %d: %s", session, e.Seq, e.Payload)
		}
	}
}

// mixed reports whether words of more than one request are in a text.
func mixed(parts []hooks.Part) bool {
	first := ""
	for word := range strings.FieldsSeq(hooks.Message{Parts: parts}.Text()) {
		request, _, _ := strings.Cut(word, "-")
		if first == "" {
			first = request
		}
		if request != first {
			return true
		}
	}
	return false
}

// calls compares what the log says of tools with the effects that they had.
func (x *examination) ofCalls(session string, log []event.Event) {
	type story struct {
		tool     string
		starts   int
		sum      string // of the arguments that it was started with
		executed bool
	}
	stories := map[string]*story{}
	of := func(call string) *story {
		if stories[call] == nil {
			stories[call] = &story{}
		}
		return stories[call]
	}
	for _, e := range log {
		p, err := event.Decode(e)
		if err != nil {
			continue // said already
		}
		switch p := p.(type) {
		case event.ToolProposed:
			of(p.CallID).tool = p.Name
		case event.ToolStarted:
			of(p.CallID).starts++
			of(p.CallID).sum = p.ArgumentsSHA256
		case event.ToolExecuted:
			of(p.CallID).executed = true
		}
	}
	for call, s := range stories {
		n := len(x.effects[call])
		for _, e := range x.effects[call] {
			if sum := sha256.Sum256([]byte(e.arguments)); s.sum != "" && hex.EncodeToString(sum[:]) != s.sum {
				x.add(otherBytes, session, "session %s: %s %s took effect with %s", session, s.tool, call, e.arguments)
			}
		}
		delete(x.effects, call)
		switch {
		case n > s.starts:
			x.add(unasked, session, "session %s: %s %s took effect %d times and was started %d times", session, s.tool, call, n, s.starts)
		case n > 1 && s.tool != "put":
			x.add(duplicates, session, "session %s: %s %s took effect %d times", session, s.tool, call, n)
		case n == 0 && s.executed:
			x.add(lostEffects, session, "session %s: %s %s was executed and took no effect", session, s.tool, call)
		}
	}
}

func (x *examination) ofFollower(f *follower, stored []sighting) {
	if f.wrong != "" {
		x.add(wrongAnswers, f.sessionID, "%s", f.wrong)
	}
	lost, other, err := f.compare(stored)
	switch {
	case err != nil:
		x.add(lostEvents, f.sessionID, "session %s: %v", f.sessionID, err)
	case other > 0:
		x.add(transcripts, f.sessionID, "session %s: %d clients saw something else than is stored", f.sessionID, other)
	case lost > 0:
		x.add(lostEvents, f.sessionID, "session %s: a client missed %d events at the end", f.sessionID, lost)
	}
}

// ofMessages: what was accepted is there once.
func (x *examination) ofMessages(ctx context.Context) error {
	rows, _ := x.conn.Query(ctx, `
		SELECT payload -> 'parts' -> 0 ->> 'text', count(*) FROM agentd.events WHERE type = 'message.created' AND payload ->> 'role' = 'user' GROUP BY 1`) // rows has the error
	found := map[string]int{}
	_, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
		var text string
		var n int
		err := row.Scan(&text, &n)
		found[text] = n
		return struct{}{}, err
	})
	if err != nil {
		return fmt.Errorf("read the messages: %w", err)
	}
	for text, n := range found {
		if n > 1 {
			x.add(repeatedMessage, "", "%q is there %d times", text, n)
		}
	}
	for _, a := range x.load.accepted {
		if found[a.text] == 0 {
			x.add(lostMessages, a.session, "session %s: %q was accepted as run %s", a.session, a.text, a.run)
		}
	}
	return nil
}

// ofTakeovers measures from the death of a worker to the next claim of each run
// that it held. What is left out says nothing about it: deaths while the
// database was away, or about to be, and runs that are made to wait since
// their workers die one after the other.
func (x *examination) ofTakeovers(ctx context.Context) error {
	for _, d := range x.deaths {
		if x.near(d.at) || d.kind == freeze && d.lasts < longFreeze {
			continue
		}
		rows, err := x.conn.Query(ctx, `
			WITH held AS (
				SELECT DISTINCT ON (run_id) run_id, session_id, seq, type, payload ->> 'worker_id' AS worker
				FROM agentd.events
				WHERE at < $2 AND type IN ('run.started', 'run.resumed', 'run.released', 'run.suspended', 'run.completed', 'run.failed', 'run.cancelled')
				ORDER BY run_id, seq DESC)
			SELECT resumed.at FROM held h
			CROSS JOIN LATERAL (SELECT e.* FROM agentd.events e WHERE e.run_id = h.run_id AND e.seq > h.seq AND e.type = 'run.released' ORDER BY seq LIMIT 1) AS released
			CROSS JOIN LATERAL (SELECT e.* FROM agentd.events e WHERE e.run_id = h.run_id AND e.seq > h.seq AND e.type = 'run.resumed' ORDER BY seq LIMIT 1) AS resumed
			WHERE h.type IN ('run.started', 'run.resumed') AND h.worker = $1
				AND released.payload ->> 'cause' = 'worker_dead' AND released.payload ->> 'not_before' IS NULL`, d.worker, d.at)
		if err != nil {
			return fmt.Errorf("measure take-overs: %w", err)
		}
		times, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
		if err != nil {
			return fmt.Errorf("measure take-overs: %w", err)
		}
		for _, at := range times {
			x.takeovers[d.kind] = append(x.takeovers[d.kind], at.Sub(d.at))
		}
	}
	return nil
}

// longFreeze is longer than a lease and a take-over: a process that is back
// earlier keeps its runs.
const longFreeze = 4500 * time.Millisecond

// near reports whether the database was away then or within the time in which
// a take-over is expected.
func (x *examination) near(at time.Time) bool {
	for _, s := range x.downs {
		if at.After(s.from.Add(-5*time.Second)) && at.Before(s.to.Add(5*time.Second)) {
			return true
		}
	}
	return false
}

// tool runs a command of agentd, whose exit code says whether it is content.
func (x *examination) tool(ctx context.Context, what, binary, url string, args ...string) {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(cmd.Environ(), "AGENTD_DATABASE_URL="+url)
	if out, err := cmd.CombinedOutput(); err != nil {
		x.add(what, "", "agentd %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
