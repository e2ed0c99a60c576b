package main

import (
	"log/slog"
	"testing"

	"connectrpc.com/connect"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/loop/worker"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// work starts a worker that takes the runs of the stack's database.
func (s *stack) work(t *testing.T) {
	t.Helper()
	w, err := worker.New(worker.Config{
		Pool: s.pool, Engine: s.Engine, Commands: s.Commands, Leases: store.NewLeases(s.store),
		NewID: looptest.NewID, Logger: slog.New(slog.NewTextHandler(s.logged, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := stopping(t.Context(), patience)
		defer cancel()
		if err := w.Stop(ctx); err != nil {
			t.Errorf("stop worker: %v", err)
		}
	})
}

// start starts a run over HTTP and returns its answer.
func (s *stack) start(t *testing.T, req *agentdv1.StartRunRequest) *agentdv1.StartRunResponse {
	t.Helper()
	res, err := s.runs.StartRun(t.Context(), connect.NewRequest(req))
	if err != nil {
		t.Fatal(err)
	}
	return res.Msg
}

func TestOneRunIsToldAlikeByStreamsAndListsAndSQL(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	model := looptest.Answers(
		looptest.Answer(
			looptest.Reasoning("Two tools, <then> I answer & \"quote\" \u2028 them."), looptest.Text("Let me look. "),
			looptest.ToolCall("a", "clock", `{ "zone" : "UTC", "n": 9007199254740993 }`),
			looptest.ToolCall("b", "weather", `{"city":"Zürich 🌦️"}`),
			looptest.Finish(stream.FinishToolCalls),
		),
		looptest.Answer(looptest.Reasoning("Now."), looptest.Text("It is noon; "), looptest.Text("日本は晴れ 🌞\r\n\tdone"), looptest.Finish(stream.FinishStop)),
	)
	clock, weather := looptest.Says("clock", `{"time": "12:00",  "exact": 1.0}`), looptest.Says("weather", "☀\nsunny\ttoday")
	here, there := newStack(t, db, playing(model, clock, weather)), newStack(t, db)
	id := here.Session(t)
	run := here.start(t, &agentdv1.StartRunRequest{SessionId: id, Text: "time & <weather>?\r\n"})

	// Nobody works yet, so these are live; the second ones are in another process.
	live, liveThere := here.listen(t, id, "?until=idle", fromStart), there.listen(t, id, "?until=idle", fromStart)
	watching, watchingThere := here.watch(t, id, 0), there.watch(t, id, 0)
	here.work(t)
	tellings := map[string][]fact{
		"live stream": live.facts(t, toTheEnd), "live stream elsewhere": liveThere.facts(t, toTheEnd),
		"live watch": watched(t, watching), "live watch elsewhere": watched(t, watchingThere),
		"replayed stream": there.replay(t, id, fromStart), "list": here.listed(t, id, 0, 500),
		"list in pages": there.listed(t, id, 0, 3),
	}
	want := stored(t, db, id)
	for teller, got := range tellings {
		sameStory(t, teller, got, want)
	}

	count := map[event.Type]int{}
	for i, f := range want {
		if f.Seq != int64(i+1) {
			t.Errorf("event %d has seq %d", i+1, f.Seq)
		}
		if f.RunID != "" && f.RunID != run.GetRunId() {
			t.Errorf("seq %d is of run %s", f.Seq, f.RunID)
		}
		count[f.Type]++
	}
	for kind, n := range map[event.Type]int{
		event.TypeAssistantCompleted: 2, event.TypeToolProposed: 2, event.TypeToolStarted: 2,
		event.TypeToolExecuted: 2, event.TypeToolResult: 2, event.TypeRunCompleted: 1,
	} {
		if count[kind] != n {
			t.Errorf("%d of %s, want %d", count[kind], kind, n)
		}
	}
	if count[event.TypeAssistantDelta] < 4 {
		t.Errorf("%d deltas, want one for each lane of each answer at least", count[event.TypeAssistantDelta])
	}
	// After a watch has ended at a cursor, a watch from there has nothing to say.
	if got := watched(t, there.watch(t, id, int64(len(want)))); len(got) != 0 {
		t.Errorf("%d events after the last", len(got))
	}
}
