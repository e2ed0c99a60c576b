package loop_test

import (
	"testing"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

func TestTransitionGuards(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		scene string
		turn  int
		event event.Payload
	}{
		"a ticket that does not grow":                     {"queued", 0, event.RunQueued{Ticket: 1}},
		"a claim with an old ticket":                      {"queued", 0, event.RunStarted{WorkerID: "w", Epoch: 1, Ticket: 0}},
		"a claim that does not raise the epoch":           {"queued", 0, event.RunStarted{WorkerID: "w", Epoch: 0, Ticket: 1}},
		"a first claim of a started run":                  {"queued again with an open call", 0, event.RunStarted{WorkerID: "w", Epoch: 3, Ticket: 2}},
		"a resume of a fresh run":                         {"queued", 0, event.RunResumed{WorkerID: "w", Epoch: 1, Ticket: 1}},
		"a resume with an old ticket":                     {"queued again with an open call", 0, event.RunResumed{WorkerID: "w", Epoch: 3, Ticket: 1}},
		"a resume that does not raise the epoch":          {"queued again with an open call", 0, event.RunResumed{WorkerID: "w", Epoch: 2, Ticket: 2}},
		"a release that does not raise the epoch":         {"running", 0, event.RunReleased{WorkerID: "w", Epoch: 1, Ticket: 2}},
		"a release that keeps the ticket":                 {"running", 0, event.RunReleased{WorkerID: "w", Epoch: 2, Ticket: 1}},
		"a turn that is skipped":                          {"running", 2, event.TurnStarted{}},
		"a turn that is repeated":                         {"turn completed", 1, event.TurnStarted{}},
		"an attempt that is skipped":                      {"turn open", 1, event.ModelRequested{Attempt: 2}},
		"a delta of another attempt":                      {"turn calling", 1, event.AssistantDelta{Attempt: 2, Text: "x"}},
		"an emission of another attempt":                  {"turn calling", 1, event.Emission{Attempt: 2, Envelope: []byte("{}")}},
		"tools that are left in another turn":             {"turn answered", 2, event.ToolsNarrowed{Tools: []string{"look"}}},
		"tools that are left of a run that nobody holds":  {"waiting", 1, event.ToolsNarrowed{Tools: []string{"look"}}},
		"progress of another attempt":                     {"call started", 1, event.ToolProgress{CallID: "c1", Attempt: 2, Number: 1}},
		"progress of what was not started":                {"call approved", 1, event.ToolProgress{CallID: "c1", Number: 1}},
		"progress behind the end":                         {"call executed", 1, event.ToolProgress{CallID: "c1", Attempt: 1, Number: 1}},
		"a turn behind one that was stopped for good":     {"turn stopped to fail", 2, event.TurnStarted{}},
		"a turn behind one that is still stopped":         {"turn stopped to be asked again", 2, event.TurnStarted{}},
		"the end of a stopped turn in whose place one is": {"taken up again in the place of a stop", 1, event.TurnCompleted{}},
		"success behind a stop":                           {"turn stopped to end", 0, completed},
		"a discard of another attempt":                    {"turn calling", 1, event.AssistantDiscarded{Attempt: 2}},
		"an answer of another attempt":                    {"turn calling", 1, event.AssistantCompleted{Attempt: 2}},
		"a stop of another attempt":                       {"turn calling", 1, event.AssistantStopped{Attempt: 2}},
		"a delta of another turn":                         {"turn calling", 2, event.AssistantDelta{Attempt: 1, Text: "x"}},
		"the end of another turn":                         {"turn answered", 2, event.TurnCompleted{}},
		"the end of a turn with an open call":             {"call started", 1, event.TurnCompleted{}},
		"a result for a call that never was":              {"call started", 1, event.ToolResult{CallID: "c9"}},
		"a start of a call that never was":                {"call started", 1, event.ToolStarted{CallID: "c9"}},
		"an end with an open call":                        {"call started", 0, cancelled},
		"a second preparation":                            {"prepared", 0, prepared},
		"a preparation after the first turn":              {"turn open", 0, prepared},
		"a suspension with nothing to wait for":           {"call done", 0, suspended},
		"a suspension with something to do":               {"call approved", 0, suspended},
		"a wake-up with an open approval":                 {"waiting", 0, event.RunQueued{Ticket: 2}},
		"a wake-up with an old ticket":                    {"waiting and approved", 0, event.RunQueued{Ticket: 1}},
		"a second answer":                                 {"call approved", 1, denied},
		"an answer to a question never asked":             {"call proposed", 1, approved},
		"a question whether a started call may run":       {"call started", 1, asked},
		"a question what became of what was not started":  {"call proposed", 1, unsure},
		"a yes where the question is what became of it":   {"call of unknown outcome", 1, approved},
		"a no where the question is what became of it":    {"call of unknown outcome", 1, denied},
		"an edit without arguments":                       {"call awaiting", 1, event.ApprovalDecided{ApprovalID: "ap1", CallID: "c1", Decision: event.DecisionEdited}},
		"a yes with other arguments":                      {"call awaiting", 1, event.ApprovalDecided{ApprovalID: "ap1", CallID: "c1", Decision: event.DecisionApproved, EditedArguments: new("{}")}},
		"an edit of what became of it":                    {"call of unknown outcome", 1, edited},
		"an end of the time to say what became of it":     {"call of unknown outcome", 1, expired},
		"a suspension with an edit to look at":            {"call edited", 0, suspended},
		"an outcome where the question is another":        {"call awaiting", 1, happened},
		"a start of what has happened":                    {"call confirmed", 1, event.ToolStarted{CallID: "c1", Attempt: 2}},
		"a start that waits for people":                   {"call awaiting", 1, toolStart},
		"a start against a no":                            {"call denied", 1, toolStart},
		"a start against a block":                         {"call blocked", 1, toolStart},
		"a result that waits for people":                  {"call awaiting", 1, result},
		"an end with an open approval":                    {"call awaiting", 0, cancelled},
		"success in the middle of a turn":                 {"turn answered", 0, completed},
		"deleting a session with an active run":           {"running", 0, event.SessionDeleted{}},
		"a failed run that is only queued":                {"failed", 0, event.RunQueued{Ticket: 2}},
		"a retry with an old ticket":                      {"failed", 0, event.RunQueued{Ticket: 1, Cause: event.QueuedForRetry}},
		"a retry of a run that has not failed":            {"completed", 0, retried},
		"a retry of a run that was queued":                {"queued", 0, retried},
		"a retry of a run that a check refused":           {"refused by a check", 0, retried},
		"a turn behind one that was cut off":              {"turn stopped", 2, event.TurnStarted{}},
		"a turn that was cut off, once more":              {"taken up again", 1, event.TurnStarted{}},
		"replacing under a run":                           {"turn answered", 0, replaced},
		"replacing a message that never was":              {"completed", 0, event.MessagesReplaced{FromMessageID: "x", MessageIDs: []string{"x"}}},
		"replacing nothing":                               {"completed", 0, event.MessagesReplaced{}},
		"replacing from the middle":                       {"completed", 0, event.MessagesReplaced{FromMessageID: "a", MessageIDs: []string{"a"}}},
		"replacing in another order":                      {"completed", 0, event.MessagesReplaced{FromMessageID: "a", MessageIDs: []string{"t", "a"}}},
		"beginning under a run":                           {"enqueued behind a run", 0, begins},
		"beginning without a message":                     {"withdrawn behind a run", 0, begins},
		"beginning as if nothing had been before":         {"the next one", 0, queued},
		"beginning behind no run":                         {"enqueued", 0, begins},
		"beginning twice":                                 {"queued behind a run", 0, event.RunQueued{Ticket: 2, Cause: event.QueuedNext}},
		"cancelling what is still to be said":             {"enqueued behind a run", 0, cancelled},
		"withdrawing more than one":                       {"enqueued behind a run", 0, event.MessagesReplaced{FromMessageID: "m", MessageIDs: []string{"m", "m"}}},
		"replacing twice":                                 {"queued for a retry", 0, replaced},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := scenes()[c.scene].build(t)
			refused(t, base, numbered(fact(t, c.turn, c.event), base.LastSeq+1))
		})
	}
}
