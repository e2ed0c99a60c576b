package hooks_test

import (
	"context"
	"reflect"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
)

func TestDecisionIDIsTheSameWhenAskedAgainAndOnlyThen(t *testing.T) {
	t.Parallel()
	type question struct {
		p  hooks.Position
		id string
		// before is how many hooks stand before it.
		before   int
		validate bool
	}
	ask := func(q question) string {
		opts := []hooks.Option{}
		if q.validate {
			opts = append(opts, hooks.InPhase(hooks.PhaseValidate))
		}
		chain := hooks.Named(q.id, "1", continues(), opts...)
		for range q.before {
			chain = hooks.Compose(hooks.Named("x", "1", continues()), chain)
		}
		_, ds, err := hooks.Ask(t.Context(), &hooks.Asker{}, chain, q.p, zone("-"), nil)
		if err != nil {
			t.Fatal(err)
		}
		return ds[len(ds)-1].ID
	}
	base := question{p: at(), id: "a"}
	questions := map[string]func(*question){
		"session":       func(q *question) { q.p.SessionID = "s2" },
		"run":           func(q *question) { q.p.RunID = "r2" },
		"turn":          func(q *question) { q.p.Turn++ },
		"subject":       func(q *question) { q.p.Subject = "c2" },
		"attempt":       func(q *question) { q.p.Attempt++ },
		"hook":          func(q *question) { q.id = "b" },
		"chain index":   func(q *question) { q.before = 1 },
		"phase":         func(q *question) { q.validate = true },
		"shifted parts": func(q *question) { q.p.SessionID, q.p.RunID = "sr", "" },
	}
	want := ask(base)
	if !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(want) {
		t.Errorf("id %q is no UUID of version 5", want)
	}
	if got := ask(base); got != want {
		t.Errorf("asked again it is %s; want %s", got, want)
	}
	seen := map[string]string{want: "nothing"}
	for name, change := range questions {
		q := base
		change(&q)
		id := ask(q)
		if other, ok := seen[id]; ok {
			t.Errorf("another %s gives the same id as another %s", name, other)
		}
		seen[id] = name
	}
	// Computed with Python's uuid.uuid5: stored ids must not change.
	if want != "e91d52fc-7851-54f4-87bd-c4b460588781" {
		t.Errorf("id %s", want)
	}
}

func TestDecisionTellsWhoWasAskedWhenAndHow(t *testing.T) {
	t.Parallel()
	clock := time.Date(2026, 11, 29, 20, 0, 0, 123456789, time.FixedZone("", 3600))
	a := hooks.Asker{Now: func() time.Time { return clock }, HookSet: "set"}
	f := hooks.Named("a", "7", continues(), hooks.OfKind(hooks.KindPlugin), hooks.WithDigest("d"), hooks.TimeLimit(time.Second), hooks.InPhase(hooks.PhaseValidate))
	_, ds, err := hooks.Ask(t.Context(), &a, f, at(), zone("-"), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := ds[0]
	want := hooks.Decision{
		ID: got.ID, At: time.Date(2026, 11, 29, 19, 0, 0, 123456000, time.UTC), Position: at(),
		Phase: hooks.PhaseValidate, Index: 1, ChainLength: 1,
		HookID: "a", HookKind: hooks.KindPlugin, HookVersion: "7", HookDigest: "d", HookSetDigest: "set",
		Action: hooks.ActionContinue, Effective: true, Outcome: hooks.OutcomeOK, FailurePolicy: hooks.FailClosed,
		InputSHA256: got.InputSHA256, OutputSHA256: got.InputSHA256, InputBytes: got.InputBytes, OutputBytes: got.InputBytes,
		Deadline: time.Second,
	}
	want.Gate = hooks.GateBeforeToolCall
	if !reflect.DeepEqual(got, want) {
		t.Errorf("decision\n got %+v\nwant %+v", got, want)
	}
}

func TestTimesAreMeasured(t *testing.T) {
	t.Parallel()
	var now time.Time
	a := hooks.Asker{Now: func() time.Time { return now }}
	f := func(context.Context, call) (callResult, error) {
		now = now.Add(40 * time.Millisecond)
		return callResult{Action: hooks.ActionContinue}, nil
	}
	_, ds, err := hooks.Ask(t.Context(), &a, f, at(), zone("-"), nil)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "times", []time.Duration{ds[0].Queue, ds[0].Latency}, []time.Duration{0, 40 * time.Millisecond})
}

func TestHookIsToldTheIDOfItsDecision(t *testing.T) {
	t.Parallel()
	if id := hooks.DecisionID(t.Context()); id != "" {
		t.Errorf("outside a gate the id is %q", id)
	}
	var told []string
	tell := func(ctx context.Context, _ hooks.BeforeExecute) (hooks.BeforeExecuteResult, error) {
		told = append(told, hooks.DecisionID(ctx))
		return hooks.BeforeExecuteResult{Action: hooks.ActionContinue}, nil
	}
	f := hooks.Compose(hooks.Named("a", "1", tell), hooks.Named("b", "1", tell, hooks.InPhase(hooks.PhaseValidate)), tell)
	position := hooks.Position{TenantID: "t", SessionID: "s", RunID: "r", Turn: 1, Subject: "c", Attempt: 1}
	var stored []string
	for range 2 { // as after an answer that was lost
		_, decisions, err := hooks.Ask(t.Context(), &hooks.Asker{}, f, position, hooks.BeforeExecute{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range decisions {
			stored = append(stored, d.ID)
		}
	}
	if len(told) != 6 || !slices.Equal(told, stored) || !slices.Equal(told[:3], told[3:]) {
		t.Errorf("told %q, stored %q; want the same ids, and the same again", told, stored)
	}
}
