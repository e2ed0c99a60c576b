package worker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/riverqueue/river"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

var errBroken = errors.New("broken")

// fakes are the table of workers, the commands and the engine, each of whose
// methods can be told to fail.
type fakes struct {
	broken string

	mu    sync.Mutex
	asked []string
}

func (f *fakes) ask(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, name)
	if name == f.broken {
		return errBroken
	}
	return nil
}

func (f *fakes) Join(context.Context, loop.Joining, time.Duration) (loop.Orders, error) {
	return loop.Orders{}, f.ask("Join")
}
func (f *fakes) Beat(context.Context, string, time.Duration) (bool, loop.Orders, error) {
	return true, loop.Orders{}, f.ask("Beat")
}
func (f *fakes) Leave(context.Context, string) error { return f.ask("Leave") }
func (f *fakes) Close()                              {}
func (f *fakes) Wake(...string)                      {}
func (f *fakes) DeclareDead(context.Context, string, time.Duration, time.Duration) ([]string, error) {
	return []string{"dead"}, f.ask("DeclareDead")
}
func (f *fakes) Orphans(context.Context, time.Duration, int) ([]loop.Release, error) {
	return []loop.Release{{RunID: "orphan 1"}, {RunID: "orphan 2"}}, f.ask("Orphans")
}
func (f *fakes) Due(context.Context, loop.Pauses, int) ([]loop.Job, error) {
	return []loop.Job{{RunID: "due"}}, f.ask("Due")
}
func (f *fakes) Expired(context.Context, int) ([]loop.ApprovalRef, error) {
	return []loop.ApprovalRef{{ApprovalID: "open"}}, f.ask("Expired")
}
func (f *fakes) ExpireApproval(_ context.Context, _, approvalID string) (bool, error) {
	return true, f.ask("expire " + approvalID)
}
func (f *fakes) Lost(context.Context, time.Duration, loop.Pauses, int) ([]loop.Job, error) {
	return []loop.Job{{RunID: "lost"}}, f.ask("Lost")
}
func (f *fakes) Passed(context.Context, int) ([]loop.Job, error) {
	return []loop.Job{{SessionID: "passed"}}, f.ask("Passed")
}
func (f *fakes) Held(context.Context, string, []string) ([]loop.Release, error) {
	return []loop.Release{{RunID: "held"}, {RunID: "in hand"}}, f.ask("Held")
}
func (f *fakes) Fetched(context.Context, string, []string) ([]loop.Job, error) {
	return []loop.Job{{RunID: "fetched"}, {RunID: "in hand"}}, f.ask("Fetched")
}
func (f *fakes) Forget(context.Context, time.Duration) error { return f.ask("Forget") }
func (f *fakes) ReleaseDead(_ context.Context, r loop.Release) (bool, error) {
	return true, f.ask("release " + r.RunID)
}
func (f *fakes) Requeue(_ context.Context, j loop.Job, cause string, _ event.Actor) (bool, error) {
	return true, f.ask("requeue " + j.RunID + " " + cause)
}
func (f *fakes) BeginNext(_ context.Context, j loop.Job, _ event.Actor) (bool, error) {
	return true, f.ask("begin next " + j.SessionID)
}

func (f *fakes) Advance(context.Context, loop.Job, loop.Holder) error {
	if f.broken == "panic" {
		panic("a bug")
	}
	if f.broken == "lease" {
		return loop.ErrLeaseLost
	}
	if strings.HasPrefix(f.broken, "crowded") || f.broken == "requeue r crowded" {
		return loop.ErrCrowded
	}
	return f.ask("Advance")
}

func newFakeIncarnation(f *fakes) *incarnation {
	inc := &incarnation{
		cfg: Config{Leases: f, Commands: f, Engine: f, Heartbeat: time.Second, Lease: 0, Sweep: time.Millisecond},
		id:  "me", log: slog.New(slog.DiscardHandler), lost: make(chan struct{}),
		paused: newPaused(), drain: make(chan struct{}),
	}
	ctx, cancel := context.WithCancel(context.Background())
	inc.cancel, inc.over = cancel, ctx.Done()
	return inc
}

func TestASweepAsksForEverything(t *testing.T) {
	t.Parallel()
	f := &fakes{}
	inc := newFakeIncarnation(f)
	inc.runs.enter("in hand")
	if err := newSweeper(inc).sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"DeclareDead", "Due", "Expired", "Fetched", "Forget", "Held", "Lost", "Orphans", "Passed", "begin next passed", "expire open",
		"release held", "release orphan 1", "release orphan 2",
		"requeue due due", "requeue fetched job_lost", "requeue lost job_lost",
	}
	slices.Sort(f.asked)
	if !slices.Equal(f.asked, want) {
		t.Errorf("asked for %q, want %q", f.asked, want)
	}
}

func TestASweepThatFailsSaysSo(t *testing.T) {
	t.Parallel()
	for _, broken := range []string{
		"DeclareDead", "Orphans", "release orphan 1", "Due", "requeue due due", "Expired", "expire open", "Lost", "requeue lost job_lost",
		"Passed", "begin next passed", "Held", "release held", "Fetched", "requeue fetched job_lost", "Forget",
	} {
		f := &fakes{broken: broken}
		if err := newSweeper(newFakeIncarnation(f)).sweep(t.Context()); !errors.Is(err, errBroken) {
			t.Errorf("%s failed and the sweep says %v", broken, err)
		}
		if broken == "release orphan 1" && !slices.Contains(f.asked, "release orphan 2") {
			t.Error("one run that cannot be released kept another one from its turn")
		}
	}
}

// TestTheEndOfAPauseMakesJobs: for what this worker has held back, and for what
// others have that may be gone. What fails is done at the next sweep.
func TestTheEndOfAPauseMakesJobs(t *testing.T) {
	t.Parallel()
	f := &fakes{}
	inc := newFakeIncarnation(f)
	s := newSweeper(inc)
	all, other := loop.Pause{}, loop.Pause{TenantID: "t", Agent: "other"}
	inc.paused.set(loop.Pauses{all, other})
	inc.paused.hold(loop.Job{TenantID: "t", RunID: "mine"}, "demo")
	inc.paused.hold(loop.Job{TenantID: "t", RunID: "still paused"}, "other")
	resumes := func() (out []string) {
		t.Helper()
		f.asked = nil
		if err := s.resume(t.Context()); err != nil && f.broken == "" {
			t.Fatal(err)
		}
		for _, what := range f.asked {
			if what != "Lost" {
				out = append(out, what)
			}
		}
		slices.Sort(out)
		return out
	}
	if got := resumes(); len(got) != 0 {
		t.Errorf("in a pause: %q", got)
	}
	inc.paused.set(loop.Pauses{other})
	select {
	case <-inc.paused.over:
		s.resumed = true // as run does
	default:
		t.Fatal("nobody was told of the end of a pause")
	}
	for _, step := range []struct {
		comes, broken string
		want          []string
	}{
		{"", "requeue lost resumed", []string{"requeue lost resumed", "requeue mine resumed"}},
		{"", "", []string{"requeue lost resumed"}},
		{"late", "requeue late resumed", []string{"requeue late resumed"}},
		{"", "", []string{"requeue late resumed"}},
		{"", "", nil},
	} {
		if f.broken = step.broken; step.comes != "" {
			inc.paused.hold(loop.Job{TenantID: "t", RunID: step.comes}, "demo")
		}
		if got := resumes(); !slices.Equal(got, step.want) {
			t.Errorf("asked for %q, want %q", got, step.want)
		}
	}
	inc.paused.set(loop.Pauses{other})
	select {
	case <-inc.paused.over:
		t.Error("the same pauses count as an end")
	default:
	}
}

// TestOnlyWhatLastsIsTakenForLeftBehind: between a fetch and the claim, and
// between the last append and the end of the job, a run looks left behind.
func TestOnlyWhatLastsIsTakenForLeftBehind(t *testing.T) {
	t.Parallel()
	f := &fakes{}
	inc := newFakeIncarnation(f)
	inc.cfg.Lease = time.Hour
	s := newSweeper(inc)
	for range 2 {
		if err := s.sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if slices.Contains(f.asked, "release held") || slices.Contains(f.asked, "requeue fetched job_lost") {
		t.Error("a run was taken away at once")
	}
	s.left["held"] = time.Now().Add(-2 * time.Hour)
	s.fetched["fetched/0"] = time.Now().Add(-2 * time.Hour)
	if err := s.sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(f.asked, "release held") || !slices.Contains(f.asked, "requeue fetched job_lost") {
		t.Error("a run that was left behind for long is left behind")
	}
}

// TestWorkNeverFails: River would try again.
func TestWorkNeverFails(t *testing.T) {
	t.Parallel()
	for _, broken := range []string{"", "Advance", "lease", "panic", "crowded", "requeue r crowded"} {
		f := &fakes{broken: broken}
		inc := newFakeIncarnation(f)
		job := &river.Job[Args]{Args: Args{RunID: "r"}}
		if err := (&advance{inc: inc}).Work(t.Context(), job); err != nil {
			t.Errorf("%q: %v", broken, err)
		}
		if inc.runs.has("r") {
			t.Errorf("%q: the run still counts as running", broken)
		}
		if again := slices.Contains(f.asked, "requeue r crowded"); again != strings.Contains(broken, "crowded") {
			t.Errorf("%q: asked for %q", broken, f.asked)
		}
	}
	f := &fakes{}
	inc := newFakeIncarnation(f)
	inc.cancel()
	if err := (&advance{inc: inc}).Work(t.Context(), &river.Job[Args]{}); err != nil || len(f.asked) > 0 {
		t.Errorf("a worker that is over asked the engine (%v), error %v", f.asked, err)
	}
}

func TestOneAtATimeIsApart(t *testing.T) {
	t.Parallel()
	inc := newFakeIncarnation(&fakes{})
	inc.cfg.Lease, inc.cfg.place, inc.leaving = time.Hour, make(chan struct{}, 1), make(chan struct{})
	first, ok := inc.alone(t.Context())
	if !ok {
		t.Fatal("nobody is there, and it is kept out")
	}
	inc.cfg.Lease = time.Nanosecond
	if _, ok := inc.alone(t.Context()); ok {
		t.Error("two are apart at the same time")
	}
	inc.cfg.Lease = time.Hour
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok := inc.alone(ended); ok {
		t.Error("two are apart at the same time, and one has ended")
	}
	first()
	first() // it may be said twice, and frees no other's place
	second, ok := inc.alone(t.Context())
	if !ok {
		t.Error("the first has left, and the second is kept out")
	}
	close(inc.leaving)
	if done, ok := inc.alone(t.Context()); !ok {
		t.Error("a worker that leaves keeps its runs")
	} else {
		done()
	}
	if len(inc.cfg.place) != 1 {
		t.Error("the second has lost its place")
	}
	second()
}
