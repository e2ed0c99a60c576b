package looptest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// CheckRequest says what a strict provider would dislike about a request: a
// history that does not begin with a user, a message that says nothing, an
// answer whose calls are not followed at once by one result each, in call
// order, a result without its call, an id that stands twice.
func CheckRequest(req loop.ModelRequest) error {
	if len(req.Messages) == 0 || req.Messages[0].Role != hooks.RoleUser {
		return fmt.Errorf("the history does not begin with a user message")
	}
	seen := map[string]bool{}
	var open []string
	for i, m := range req.Messages {
		if seen[m.ID] || m.ID == "" {
			return fmt.Errorf("message %d: id %q is empty or stands twice", i, m.ID)
		}
		seen[m.ID] = true
		calls, results, err := tools(m)
		if err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		if m.Role == hooks.RoleTool {
			if len(results) != 1 || len(open) == 0 || results[0] != open[0] {
				return fmt.Errorf("message %d: results for %q where %q are open", i, results, open)
			}
			open = open[1:]
			continue
		}
		if len(open) > 0 {
			return fmt.Errorf("message %d: a %s message where results for %q are missing", i, m.Role, open)
		}
		open = calls
	}
	if len(open) > 0 {
		return fmt.Errorf("results for %q are missing at the end", open)
	}
	return nil
}

// tools returns the ids of the calls and of the results in m.
func tools(m hooks.Message) (calls, results []string, err error) {
	if len(m.Parts) == 0 {
		return nil, nil, fmt.Errorf("a %s message says nothing", m.Role)
	}
	for _, p := range m.Parts {
		switch {
		case p.Type == hooks.PartToolCall && p.ToolCall != nil && m.Role == hooks.RoleAssistant:
			calls = append(calls, p.ToolCall.ID)
		case p.Type == hooks.PartToolResult && p.ToolResult != nil && m.Role == hooks.RoleTool:
			results = append(results, p.ToolResult.CallID)
		case p.Type == hooks.PartText && p.Text != "":
		case p.Type == hooks.PartReasoning && p.Text != "" && m.Role == hooks.RoleAssistant:
		default:
			return nil, nil, fmt.Errorf("a %s message has the part %+v", m.Role, p)
		}
	}
	return calls, results, nil
}

// CheckLog says what is wrong with the log of one session: a hole in seq, an
// event that the tables refuse, text in a message that its attempt did not
// show (or text shown that is not in it), a call of an ended run without
// exactly one result, a start with other bytes than the log says, a suspension
// that does not name what is waited for, an enqueued run that no other keeps
// waiting.
func CheckLog(events []event.Event) error {
	var s loop.State
	shown := map[answerKey][]loop.PartialBlock{}
	results := map[string]int{}
	for i, e := range events {
		if e.Seq != int64(i+1) {
			return fmt.Errorf("event %d has seq %d", i+1, e.Seq)
		}
		if err := loop.Allows(s, e); err != nil {
			return fmt.Errorf("seq %d: %w", e.Seq, err)
		}
		p, err := event.Decode(e)
		if err != nil {
			return err
		}
		switch p := p.(type) {
		case event.AssistantDelta:
			k := answerKey{e.RunID, e.Turn, p.Attempt}
			shown[k] = addText(shown[k], loop.PartialBlock{Lane: p.Lane, BlockID: p.BlockID, Text: p.Text})
		case event.AssistantCompleted:
			err = sameText(p.Parts, shown[answerKey{e.RunID, e.Turn, p.Attempt}])
		case event.AssistantStopped:
			err = sameText(p.Parts, shown[answerKey{e.RunID, e.Turn, p.Attempt}])
		case event.ToolResult:
			results[p.CallID]++
		}
		s = loop.Fold(s, e)
		if err == nil {
			err = checkCalls(s, e, p)
		}
		if err != nil {
			return fmt.Errorf("seq %d: %w", e.Seq, err)
		}
	}
	if err := checkQueue(s); err != nil {
		return err
	}
	for _, r := range s.Runs {
		for _, t := range r.Turns {
			for _, c := range t.Calls {
				if r.Status.Terminal() && results[c.ID] != 1 {
					return fmt.Errorf("call %s of run %s has %d results", c.ID, r.ID, results[c.ID])
				}
			}
		}
	}
	return nil
}

// checkCalls says whether what runs and what is waited for is what the calls of
// s say.
// checkQueue says whether somebody waits for nobody.
func checkQueue(s loop.State) error {
	waits := ""
	for _, r := range s.Runs {
		if r.Status.Active() {
			return nil
		}
		if r.Status == loop.RunEnqueued {
			waits = r.ID
		}
	}
	if waits != "" || len(s.Enqueued) > 0 {
		return fmt.Errorf("run %s is enqueued behind no run, messages %v", waits, s.Enqueued)
	}
	return nil
}

func checkCalls(s loop.State, e event.Event, p event.Payload) error {
	r, _ := s.Run(e.RunID)
	t, _ := r.Turn()
	final, awaiting := map[string]string{}, []string{}
	questions := map[string]loop.Question{}
	for _, c := range t.Calls {
		final[c.ID] = c.Arguments
		if c.Final != nil {
			final[c.ID] = *c.Final
		}
		questions[c.ApprovalID] = c.Question
		if c.Status == loop.CallAwaiting {
			awaiting = append(awaiting, c.ApprovalID)
		}
	}
	bytes := func(callID, sum string) error {
		if want := sha256.Sum256([]byte(final[callID])); sum != "" && sum != hex.EncodeToString(want[:]) {
			return fmt.Errorf("%s of call %s is about other bytes than %s", p.EventType(), callID, final[callID])
		}
		return nil
	}
	switch p := p.(type) {
	case event.ToolStarted:
		return bytes(p.CallID, p.ArgumentsSHA256)
	case event.ApprovalRequested:
		return bytes(p.CallID, p.ArgumentsSHA256)
	case event.ApprovalDecided:
		if q := questions[p.ApprovalID]; p.ArgumentsSHA256 != q.ArgumentsSHA256 {
			return fmt.Errorf("the answer to %s is about other bytes than the question", p.ApprovalID)
		}
		return bytes(p.CallID, p.EditedSHA256)
	case event.RunSuspended:
		if !slices.Equal(p.ApprovalIDs, awaiting) {
			return fmt.Errorf("suspended for %q where %q are open", p.ApprovalIDs, awaiting)
		}
	}
	return nil
}

type answerKey struct {
	runID         string
	turn, attempt int
}

func addText(blocks []loop.PartialBlock, b loop.PartialBlock) []loop.PartialBlock {
	i := slices.IndexFunc(blocks, func(o loop.PartialBlock) bool { return o.Lane == b.Lane && o.BlockID == b.BlockID })
	if i < 0 {
		return append(blocks, b)
	}
	blocks[i].Text += b.Text
	return blocks
}

// sameText compares the texts of a message with what was shown, block by
// block.
func sameText(parts []hooks.Part, shown []loop.PartialBlock) error {
	lanes := map[hooks.PartType]stream.Lane{hooks.PartText: stream.LaneText, hooks.PartReasoning: stream.LaneReasoning}
	type text struct {
		lane stream.Lane
		text string
	}
	var stored, streamed []text
	for _, p := range parts {
		if lane, ok := lanes[p.Type]; ok {
			stored = append(stored, text{lane, p.Text})
		}
	}
	for _, b := range shown {
		streamed = append(streamed, text{b.Lane, b.Text})
	}
	if !reflect.DeepEqual(stored, streamed) {
		return fmt.Errorf("the message says %q, its deltas %q", stored, streamed)
	}
	return nil
}
