package worker_test

import (
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// callsTool asks for one tool and then answers.
func callsTool(name string) loop.Model {
	return looptest.Answers(
		looptest.Answer(looptest.ToolCall("c1", name, `{}`), looptest.Finish(stream.FinishToolCalls)),
		looptest.Answer(looptest.Text("done"), looptest.Finish(stream.FinishStop)),
	)
}

func TestARunIsTakenUpAndEnds(t *testing.T) {
	t.Parallel()
	p := setup(t, storetest.New(t), callsTool("look"), looptest.Says("look", "seen"))
	w := p.work(t)
	j := p.Start(t, p.Session(t), "hello")
	if r := p.await(t, j, ended); r.Status != loop.RunCompleted {
		t.Fatalf("run is %s (%s %s), want completed", r.Status, r.Reason, r.Error)
	}
	if got := payload[event.RunStarted](t, p, j.SessionID).WorkerID; got != w.ID() {
		t.Errorf("claimed by %q, want the worker's id %q", got, w.ID())
	}
}
