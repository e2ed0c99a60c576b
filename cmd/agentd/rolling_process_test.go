package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// deployment is processes behind a balancer, and people who talk all the time.
type deployment struct {
	*fleet
	front *balancer
	roles [][]string // of the processes, those in f.alive and in the same order
	over  atomic.Bool
	// again is how many requests got no answer and were made again.
	again atomic.Int64

	mu    sync.Mutex
	talks []*talkOfOne
}

// talkOfOne is what one person has said, and was told.
type talkOfOne struct {
	session string
	said    []string
	runs    []string
	told    []*follower
	after   []int64
}

func newDeployment(t *testing.T, roles ...string) *deployment {
	t.Helper()
	d := &deployment{fleet: newFleet(t), front: newBalancer(t)}
	for _, r := range roles {
		d.roles = append(d.roles, []string{"--roles", r})
		d.spawn(t, "--roles", r)
	}
	d.ready(t)
	d.balance(t)
	return d
}

// balance tells the balancer of the processes that people can ask.
func (d *deployment) balance(t *testing.T) {
	t.Helper()
	var asked []*server
	for i, s := range d.alive {
		if d.roles[i][1] != "worker" {
			asked = append(asked, s)
		}
	}
	d.front.set(t, asked...)
}

// replace stops the i-th process, and starts another one in its place. A
// deployment that waits for that has as many as before in the meantime.
func (d *deployment) replace(t *testing.T, i int, with syscall.Signal) {
	t.Helper()
	was := d.alive[i]
	d.add(t, d.roles[i]...)
	d.alive[i] = d.alive[len(d.alive)-1]
	d.alive = d.alive[:len(d.alive)-1]
	was.signal(t, with)
	if code := was.wait(t); with == syscall.SIGTERM && code != 0 {
		t.Errorf("exit code %d", code)
	}
	d.balance(t) // it learns late, as balancers do
}

// insist makes a request until it is answered.
func (d *deployment) insist(ctx context.Context, ask func(context.Context) error) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask(ctx)
		if code := connect.CodeOf(err); err == nil || code != connect.CodeUnavailable && code != connect.CodeUnknown {
			return err
		}
		d.again.Add(1)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// talk says one thing after the other in a session, each when the last one is
// answered, until the restarts are over. What it says goes round.
func (d *deployment) talk(t *testing.T, name string, sayings ...string) {
	t.Helper()
	c := &talkOfOne{}
	ctx := patient(t)
	err := d.insist(ctx, func(ctx context.Context) error {
		res, err := agentdv1connect.NewSessionServiceClient(freshClient(), d.front.url).
			CreateSession(ctx, connect.NewRequest(&agentdv1.CreateSessionRequest{ExternalId: name}))
		if err == nil {
			c.session = res.Msg.GetSessionId()
		}
		return err
	})
	if err != nil {
		t.Errorf("%s: create a session: %v", name, err)
		return
	}
	d.mu.Lock()
	d.talks = append(d.talks, c)
	d.mu.Unlock()
	for i := 0; !d.over.Load() || i < len(sayings); i++ {
		text := fmt.Sprintf("%s %sx%d", sayings[i%len(sayings)], name, i)
		err := d.insist(ctx, func(ctx context.Context) error {
			res, err := agentdv1connect.NewRunServiceClient(freshClient(), d.front.url).
				StartRun(ctx, connect.NewRequest(&agentdv1.StartRunRequest{SessionId: c.session, Text: text, IdempotencyKey: text}))
			if err == nil {
				c.said, c.runs, c.after = append(c.said, text), append(c.runs, res.Msg.GetRunId()), append(c.after, int64(res.Msg.GetAfter()))
			}
			return err
		})
		if err != nil {
			t.Errorf("%s: %q: %v", name, text, err)
			return
		}
		f := followBack(t, d.front.url, c.session, c.after[i])
		c.told = append(c.told, f)
		select {
		case <-f.done:
		case <-ctx.Done():
			t.Errorf("%s: %q is not answered", name, text)
			return
		}
	}
}

// check: everything that was said is there once, in order, and was answered; and
// everybody was told everything once.
func (d *deployment) check(t *testing.T, c *talkOfOne, with syscall.Signal) (runs int) {
	t.Helper()
	all := checkSession(t, d.fleet, c.session)
	said := scalar[[]string](t, d.db, `
		SELECT coalesce(array_agg(parts #>> '{0,text}' ORDER BY position), '{}') FROM agentd.messages
		WHERE session_id = $1 AND role = 'user' AND replaced_seq IS NULL`, c.session)
	if !slices.Equal(said, c.said) {
		t.Errorf("stored is %q, said was %q", said, c.said)
	}
	for i, run := range c.runs {
		facts := ofRun(all, run)
		checkRun(t, facts)
		told, _ := c.told[i].all(t)
		want := above(all, c.after[i])
		if i+1 < len(c.runs) {
			want = want[:len(want)-len(above(all, c.after[i+1]))]
		}
		sameStory(t, c.said[i], told, want)
		for _, call := range decoded[event.ToolProposed](t, facts) {
			story := checkCall(t, d.fleet, facts, call)
			if with == syscall.SIGTERM && (story.effects != 1 || story.result.Reason == hooks.ReasonOutcomeUnknown) {
				t.Errorf("%s: the tool took effect %d times: %+v", c.said[i], story.effects, story.result)
			}
		}
		if n := len(decoded[event.AssistantDiscarded](t, facts)); with == syscall.SIGTERM && n > 0 {
			t.Errorf("%s: %d answers were cut off", c.said[i], n)
		}
	}
	return len(c.runs)
}

// TestARollingRestartUnderLoad: each process in turn is replaced, in order or by
// kill -9. No run fails, and nobody misses anything or is told it twice.
func TestARollingRestartUnderLoad(t *testing.T) {
	t.Parallel()
	rounds, people, roles := 1, 4, []string{"api,worker", "api,worker", "worker"}
	if fullSize() {
		rounds, people, roles = 4, 24, []string{"api,worker", "api,worker", "api,worker", "api", "worker", "worker"}
	}
	for name, with := range map[string]syscall.Signal{"in order": syscall.SIGTERM, "by kill -9": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if with == syscall.SIGKILL {
				takesLong(t)
			}
			d := newDeployment(t, roles...)
			var talking sync.WaitGroup
			for i := range people {
				sayings := []string{"say", "both", toolCharge + " " + holdNever, toolPut + " " + holdNever}
				talking.Go(func() { d.talk(t, fmt.Sprintf("p%d", i), append(sayings[i%4:], sayings[:i%4]...)...) })
			}
			for range rounds {
				for i := range roles {
					// It is in the middle of something.
					awaitRow(t, d.db, `SELECT 'x' FROM agentd.runs WHERE status = 'running' LIMIT 1`)
					d.replace(t, i, with)
				}
			}
			d.over.Store(true)
			talking.Wait()
			runs, cuts := 0, 0
			for _, c := range d.talks {
				runs += d.check(t, c, with)
				for _, f := range c.told {
					_, n := f.all(t)
					cuts += n
				}
			}
			statuses := scalar[string](t, d.db, `SELECT string_agg(DISTINCT status, ' ') FROM agentd.runs`)
			if statuses != "completed" {
				t.Errorf("runs are %s, want all completed", statuses)
			}
			d.verify(t)
			t.Logf("%d processes were replaced under %d runs; %d requests were made again, and %d streams were cut and came back", rounds*len(roles), runs, d.again.Load(), cuts-runs)
		})
	}
}
