package store

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-2ca4966b/agentd/loop"
)

// waiting returns a committer that is not started, with requests in its queue;
// a small letter is an append of deltas to that session, a capital one of
// something else.
func waiting(sessions string) *committer {
	c := newCommitter(&Store{opts: Options{}}, nil)
	c.accepting = true
	for _, letter := range sessions {
		r := &request{answer: make(chan answer, 1)}
		r.append.Deltas = letter >= 'a'
		r.append.SessionID = string(letter | 0x20)
		r.sessionID = pgtype.UUID{Bytes: [16]byte{byte(letter | 0x20)}, Valid: true}
		c.pending = append(c.pending, r)
	}
	return c
}

func sessionsOf(requests []*request) (s string) {
	for _, r := range requests {
		s += r.append.SessionID
	}
	return s
}

func TestGroupTakesOneAppendPerSession(t *testing.T) {
	t.Parallel()
	c := waiting("ABACBA")
	for _, want := range []string{"abc", "ab", "a"} {
		group, _, _ := c.next(time.Now())
		if got := sessionsOf(group); got != want {
			t.Errorf("group %q; want %q", got, want)
		}
	}
	if group, wait, over := c.next(time.Now()); group != nil || wait != 0 || over {
		t.Errorf("empty queue: %v, %v, %t; want to wait for a signal", group, wait, over)
	}
	c.accepting = false
	if _, _, over := c.next(time.Now()); !over {
		t.Error("stopped and empty: not over")
	}
}

func TestGroupLeavesOutSessionsThatAreAside(t *testing.T) {
	t.Parallel()
	c := waiting("ABA")
	a := c.pending[0].sessionID
	c.alone[a] = struct{}{}
	if group, _, _ := c.next(time.Now()); sessionsOf(group) != "b" {
		t.Errorf("group %q; want b", sessionsOf(group))
	}
	c.accepting = false
	if group, wait, over := c.next(time.Now()); len(group) > 0 || wait != 0 || over {
		t.Errorf("only a session that is aside: %v, %v, %t; want to wait for a signal", group, wait, over)
	}
	delete(c.alone, a)
	if group, _, _ := c.next(time.Now()); sessionsOf(group) != "a" {
		t.Errorf("group %q; want a", sessionsOf(group))
	}
}

func TestGroupIsBounded(t *testing.T) {
	t.Parallel()
	c := waiting("")
	for i := range maxGroup + 1 {
		c.pending = append(c.pending, &request{sessionID: pgtype.UUID{Bytes: [16]byte{byte(i), byte(i >> 8), 1}}})
	}
	if group, _, _ := c.next(time.Now()); len(group) != maxGroup || len(c.pending) != 1 {
		t.Errorf("group of %d, %d left; want %d and 1", len(group), len(c.pending), maxGroup)
	}

	c = waiting("ABAC")
	c.pending[0].bytes = 1
	c.pending[1].bytes = maxGroupBytes + 1 // too large for company, not too large
	c.pending[3].bytes = maxGroupBytes
	for _, want := range []string{"a", "b", "ac"} {
		if group, _, _ := c.next(time.Now()); sessionsOf(group) != want {
			t.Errorf("group %q; want %q", sessionsOf(group), want)
		}
	}
}

func TestGroupOfDeltasWaitsForTheWindow(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, test := range map[string]struct {
		queue string
		since time.Duration // the last commit
		took  time.Duration // the last commit
		wait  time.Duration
	}{
		"FirstAfterAPauseGoesAtOnce":     {"a", time.Hour, time.Second, 0},
		"SecondWaitsForTheRest":          {"a", 2 * time.Millisecond, time.Second, 3 * time.Millisecond},
		"SomethingElseEndsTheWait":       {"abC", time.Millisecond, time.Second, 0},
		"SomethingElseAloneDoesNotWait":  {"C", 0, time.Second, 0},
		"AtTheEndOfTheWindowTheyGo":      {"ab", defaultCommitWindow, time.Second, 0},
		"AfterACommitTheWholeWindowLies": {"ab", 0, time.Second, defaultCommitWindow},
		"AQuickCommitIsNotWaitedForLong": {"ab", time.Millisecond, 6 * time.Millisecond, 2 * time.Millisecond},
		"HalfOfWhatItTook":               {"ab", 3 * time.Millisecond, 6 * time.Millisecond, 0},
		"AFullGroupDoesNotWait":          {strings.Repeat("a", maxGroup), 0, time.Second, 0},
	} {
		c := waiting(test.queue)
		c.lastCommit, c.took = now.Add(-test.since), test.took
		group, wait, _ := c.next(now)
		if wait != test.wait || (len(group) > 0) != (test.wait == 0) {
			t.Errorf("%s: group %q, wait %v; want %v", name, sessionsOf(group), wait, test.wait)
		}
	}
	c := waiting("a")
	c.lastCommit, c.took, c.accepting = now, time.Second, false
	if group, wait, _ := c.next(now); len(group) != 1 || wait != 0 {
		t.Errorf("stopping: wait %v; want none", wait)
	}
}

func TestGroupOfDeltasWaitsForWhoWasRefused(t *testing.T) {
	t.Parallel()
	c := waiting("Aab")
	c.lastCommit = time.Now().Add(-time.Hour)
	first := c.pending[0]
	c.pending = c.pending[1:]
	c.refuse(first)
	if got := <-first.answer; !errors.Is(got.err, loop.ErrConflict) {
		t.Errorf("refused with %v", got.err)
	}
	now := time.Now()
	if group, wait, _ := c.next(now); sessionsOf(group) != "b" || wait != 0 {
		t.Errorf("group %q, wait %v; want b, at once", sessionsOf(group), wait)
	}
	if group, wait, _ := c.next(now); len(group) > 0 || wait <= 0 || wait > courtesy {
		t.Errorf("group %q, wait %v; want to wait for the one that was refused", sessionsOf(group), wait)
	}
	// It comes again, behind the deltas, and goes first; then they need not wait.
	c.pending = append(c.pending, first)
	for _, want := range []bool{false, true} {
		group, _, _ := c.next(now)
		if sessionsOf(group) != "a" || group[0].append.Deltas != want {
			t.Errorf("group %q; want a, with deltas %t", sessionsOf(group), want)
		}
	}
	// It does not come again.
	c = waiting("a")
	c.lastCommit = now.Add(-time.Hour)
	c.refuse(first)
	if group, _, _ := c.next(time.Now().Add(courtesy)); sessionsOf(group) != "a" || len(c.refused) != 0 {
		t.Errorf("group %q, still waiting %v; want a", sessionsOf(group), c.refused)
	}
	// Deltas that were refused have nobody to wait for, and who stops does not wait.
	deltas := waiting("a").pending[0]
	if c.refuse(deltas); len(c.refused) != 0 {
		t.Error("deltas wait for deltas")
	}
	c = waiting("a")
	<-first.answer
	c.refuse(first)
	c.accepting = false
	if group, _, _ := c.next(time.Now()); sessionsOf(group) != "a" {
		t.Errorf("stopping: group %q; want a", sessionsOf(group))
	}
}

func TestGroupForgetsCallersThatLeft(t *testing.T) {
	t.Parallel()
	c := waiting("AB")
	left := make(chan struct{})
	close(left)
	c.pending[0].left = left
	if group, _, _ := c.next(time.Now()); sessionsOf(group) != "b" {
		t.Errorf("group %q; want b", sessionsOf(group))
	}
}

func TestGroupTakesBackInFront(t *testing.T) {
	t.Parallel()
	c := waiting("AAB")
	group, _, _ := c.next(time.Now())
	c.again(group...)
	if got := sessionsOf(c.pending); got != "aba" {
		t.Errorf("queue %q; want aba: the first append of a before the second", got)
	}
}

func TestOptionsCommitWindow(t *testing.T) {
	t.Parallel()
	for given, want := range map[time.Duration]time.Duration{
		0: defaultCommitWindow, -1: 0, time.Millisecond: time.Millisecond, 50 * time.Millisecond: 50 * time.Millisecond, time.Hour: MaxCommitWindow,
	} {
		if got := (Options{CommitWindow: given}).window(time.Second); got != want {
			t.Errorf("window of %v is %v; want %v", given, got, want)
		}
	}
}
