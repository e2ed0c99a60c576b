package observed_test

import (
	"context"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/observe"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/loop/model/observed"
)

// TestARunIsTheSameWithPlugins in its whole log, whatever the plugins do, with hooks
// at the provider gates and without them.
func TestARunIsTheSameWithPlugins(t *testing.T) {
	t.Parallel()
	passes := func(context.Context, hooks.AfterProviderResponse) (hooks.AfterProviderResponseResult, error) {
		return hooks.AfterProviderResponseResult{Action: hooks.ActionContinue}, nil
	}
	for name, h := range map[string]hooks.Hooks{"NoHooks": {}, "Hooks": {AfterProviderResponse: hooks.Named("passes", "1", passes)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var logs [][]string
			for _, r := range []*observe.Registry{nil, registry(t, nil, &keeping{}), registry(t, nil, failing{}, &keeping{}), registry(t, nil, hanging{})} {
				synctest.Test(t, func(t *testing.T) {
					logs = append(logs, logOf(t, observed.Wrap(&looptest.Provider{Plays: paced}, r), h))
				})
			}
			if len(logs[0]) < 10 {
				t.Errorf("the run came to no more than %q", logs[0])
			}
			for _, got := range logs[1:] {
				if !slices.Equal(got, logs[0]) {
					t.Errorf("with plugins:\n got %s\nwant %s", got, logs[0])
				}
			}
		})
	}
}

// hanging takes longer than it may, wherever it is asked.
type hanging struct{}

func (hanging) BeforeRequest(observe.Request) error { <-time.After(time.Second); return nil }
func (hanging) OnComplete(observe.Completion) error { <-time.After(time.Second); return nil }

// paced is a model whose chunks come one by one, so that each is an event of its own.
func paced(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
	looptest.Answers(
		looptest.Answer(looptest.Reasoning("hm"), looptest.Text("let me "), looptest.Text("look"), looptest.ToolCall("p", "look", `{"a":1}`), looptest.Finish(stream.FinishToolCalls)),
		looptest.Answer(looptest.Text("done"), looptest.Finish(stream.FinishStop)),
	)(ctx, req, func(c stream.Chunk, err error) bool {
		<-time.After(time.Second)
		return yield(c, err)
	})
}

// made is what no two runs have in common: ids, and the head of the ledger, which is
// made of them.
var made = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}|"ledger_head":"[0-9a-f]+"`)

// logOf is the log of a run with m.
func logOf(t *testing.T, m loop.Model, h hooks.Hooks) (lines []string) {
	t.Helper()
	b := looptest.NewBench(looptest.NewLog(), m, looptest.Says("look", "there"))
	b.Use(h)
	session := b.Session(t)
	b.Advance(t, b.Start(t, session, "go"))
	for _, e := range b.Events(t, session) {
		lines = append(lines, string(e.Type)+" "+made.ReplaceAllString(string(e.Payload), "…"))
	}
	<-time.After(time.Minute) // until those that hang have come back
	return lines
}
