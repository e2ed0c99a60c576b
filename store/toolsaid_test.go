package store_test

import (
	"slices"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// TestTheTimelineTellsWhatToolsSaid, and who has left the run which of them, which a run
// that is loaded knows too.
func TestTheTimelineTellsWhatToolsSaid(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	id, run := calling(t, s)
	call := looptest.NewID()
	in := func(p event.Payload) event.Event { return encode(t, id, run, 1, p) }
	mustAppend(t, s, appendOf(id, headOf(t, s, id).LastSeq,
		in(event.AssistantCompleted{Attempt: 1, MessageID: looptest.NewID(), Finish: stream.FinishToolCalls}),
		in(event.ToolProposed{CallID: call, Number: 1, Name: "look", Arguments: `{}`}), in(event.ToolStarted{CallID: call, Attempt: 1}),
		in(event.ToolProgress{CallID: call, Attempt: 1, Number: 1, Text: "half"}), in(event.ToolProgress{CallID: call, Attempt: 1, Number: 4, Withheld: true}),
		in(event.ToolExecuted{CallID: call, Attempt: 1, Success: true}),
		in(event.ToolsNarrowed{Required: true, By: "look", CallID: call, Tools: []string{"ping"}}),
	))
	wantLines(t, "timeline", lines(t, db, `SELECT summary FROM agentd.timeline WHERE session_id = $1 AND type IN ('tool.progress', 'tools.narrowed') ORDER BY seq`, id), []string{
		"look 1: half", "look 4: (withheld)", `look leaves ["ping"]`,
	})
	state, err := s.Load(t.Context(), looptest.Tenant, id, run)
	r, _ := state.Run(run)
	if err != nil || len(r.Narrowed) != 1 || r.Narrowed[0].Turn != 1 || !slices.Equal(r.Narrowed[0].Tools, []string{"ping"}) || !r.MayCall("look") {
		t.Errorf("loaded %+v, %v", r, err)
	}
	if turn, _ := r.Turn(); turn.Calls[0].Status != loop.CallExecuted {
		t.Errorf("the call is %s", turn.Calls[0].Status)
	}
}
