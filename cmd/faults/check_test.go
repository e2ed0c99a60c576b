package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

func newExamination() *examination {
	return &examination{
		load: &load{}, effects: map[string][]effect{},
		findings: findings{lines: map[string][]string{}, sessions: map[string]bool{}},
	}
}

// logOf is a log with these payloads, which no table has looked at.
func logOf(t *testing.T, payloads ...event.Payload) (log []event.Event) {
	t.Helper()
	for i, p := range payloads {
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		log = append(log, event.Event{SessionID: "s", Seq: int64(i + 1), Type: p.EventType(), RunID: "r", Turn: 1, Payload: text})
	}
	return log
}

func TestEffectsAreComparedWithTheLog(t *testing.T) {
	t.Parallel()
	proposed := func(tool string) event.Payload { return event.ToolProposed{CallID: "c", Name: tool} }
	sum := sha256.Sum256([]byte("{}"))
	started, executed := event.ToolStarted{CallID: "c", ArgumentsSHA256: hex.EncodeToString(sum[:])}, event.ToolExecuted{CallID: "c"}
	for name, test := range map[string]struct {
		log     []event.Payload
		effects int
		want    string
	}{
		"once":             {[]event.Payload{proposed("charge"), started, executed}, 1, ""},
		"unknown":          {[]event.Payload{proposed("charge"), started}, 0, ""},
		"unknown, but did": {[]event.Payload{proposed("charge"), started}, 1, ""},
		"repeated":         {[]event.Payload{proposed("put"), started, started, executed}, 2, ""},
		"twice":            {[]event.Payload{proposed("charge"), started, started, executed}, 2, duplicates},
		"not started":      {[]event.Payload{proposed("charge")}, 1, unasked},
		"other bytes":      {[]event.Payload{proposed("charge"), event.ToolStarted{CallID: "c", ArgumentsSHA256: "00"}, executed}, 1, otherBytes},
		"never":            {[]event.Payload{proposed("charge"), started, executed}, 0, lostEffects},
	} {
		x := newExamination()
		if test.effects > 0 {
			x.effects["c"] = slices.Repeat([]effect{{arguments: "{}"}}, test.effects)
		}
		x.ofCalls("s", logOf(t, test.log...))
		x.only(t, name, test.want)
		if len(x.effects) > 0 {
			t.Errorf("%s: %v is taken for an effect of no log", name, x.effects)
		}
	}
}

// only fails if anything but this was found; "" is nothing.
func (x *examination) only(t *testing.T, name, want string) {
	t.Helper()
	for what, lines := range x.lines {
		if what != want {
			t.Errorf("%s: %s: %q", name, what, lines)
		}
	}
	if want != "" && len(x.lines[want]) == 0 {
		t.Errorf("%s: want %s", name, want)
	}
}

func TestAnAnswerOfTwoAttemptsIsSeen(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"": false, "r7-0 r7-1 r7-u1-s1-m1": false, "r7-0 r8-1": true} {
		if got := mixed([]hooks.Part{{Type: hooks.PartText, Text: text}}); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}

func TestHolesAndWhatTheTablesRefuseAreSeen(t *testing.T) {
	t.Parallel()
	x := newExamination()
	log := logOf(t, event.SessionCreated{TenantID: "t"}, event.RunCompleted{Reason: "stop"})
	log[1].Seq = 3
	x.ofLog("s", log)
	if len(x.lines[holes]) != 1 || len(x.lines[refusedLogs]) != 1 || !x.sessions["s"] {
		t.Errorf("found %v in %v", x.lines, x.sessions)
	}
}

func TestWhatAClientHasSeenIsComparedWithWhatIsStored(t *testing.T) {
	t.Parallel()
	stored := []sighting{{1, 11}, {2, 12}, {3, 13}}
	for name, test := range map[string]struct {
		joins []join
		want  string
	}{
		"all":           {[]join{{0, stored}}, ""},
		"from a cursor": {[]join{{0, stored[:1]}, {1, stored[1:]}}, ""},
		"cut off":       {[]join{{0, stored[:2]}}, lostEvents},
		"hole":          {[]join{{0, []sighting{{1, 11}, {3, 13}}}}, transcripts},
		"twice":         {[]join{{0, []sighting{{1, 11}, {1, 11}, {2, 12}, {3, 13}}}}, transcripts},
		"other bytes":   {[]join{{0, []sighting{{1, 11}, {2, 99}, {3, 13}}}}, transcripts},
		"not stored":    {[]join{{0, append(stored[:3:3], sighting{4, 14})}}, transcripts},
		"a hole first":  {[]join{{0, []sighting{{2, 12}}}, {2, stored[2:]}}, transcripts},
		"from nowhere":  {[]join{{9, nil}}, lostEvents},
	} {
		x := newExamination()
		x.ofFollower(&follower{sessionID: "s", joins: test.joins}, stored)
		x.only(t, name, test.want)
	}
}

func TestTheReportEndsWithWhatIsBroken(t *testing.T) {
	t.Parallel()
	x := newExamination()
	x.runs, x.takeovers = 5, map[faultKind][]time.Duration{kill: {time.Second}}
	r := &report{examination: x, settings: settings{Seed: 4, Duration: time.Minute}, faults: [faultKinds]int{kill: 3, cut: 2}}
	var out bytes.Buffer
	if r.print(&out, "/kept") {
		t.Error("nothing is broken")
	}
	want := "faults: seed 4, 1m0s: 5 runs, 3 kills, 5 faults in all, take-over p50 1s, p99 1s, max 1s of 1: nothing lost, nothing twice\n"
	if !strings.HasSuffix(out.String(), want) {
		t.Errorf("the end is not %q:\n%s", want, &out)
	}
	for _, what := range mustBeZero {
		x := newExamination()
		x.add(what, "s", "see %s", what)
		r.examination = x
		out.Reset()
		broken := r.print(&out, "/kept")
		if end := "BROKEN: 1 " + what + "; everything is kept in /kept\n"; !broken || !strings.HasSuffix(out.String(), end) || !strings.Contains(out.String(), "    see "+what) {
			t.Errorf("%s: broken %t, printed\n%s", what, broken, &out)
		}
	}
}
