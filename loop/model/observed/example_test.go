package observed_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/seed-2ca4966b/agentd/hooks/observe"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/loop/model/observed"
)

// refusals counts the answers that a provider's filter has ended.
type refusals struct{ n atomic.Int64 }

// OnComplete implements [observe.CompletionHook].
func (r *refusals) OnComplete(c observe.Completion) error {
	if c.Class == observe.CompletionContentFilter {
		r.n.Add(1)
	}
	return nil
}

func ExampleWrap() {
	model := looptest.Answers(looptest.Answer(looptest.Text("I …"), looptest.Finish(stream.FinishContentFilter)))

	plugins := observe.NewRegistry(func(r observe.Report) { fmt.Println("left out:", r) })
	count := &refusals{}
	if err := plugins.Register("refusals", count); err != nil {
		fmt.Println(err)
		return
	}
	agent := loop.Agent{Name: "helpdesk", Model: observed.Wrap(model, plugins)}

	for _, err := range agent.Model.Stream(context.Background(), loop.ModelRequest{}) { // as the engine does
		if err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(count.n.Load())
	// Output: 1
}
