package loop_test

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// TestWhoEndsTheGoroutineThatReadsAnAnswerEndsTheAnswer: runtime.Goexit in an
// observer, or in the model, leaves nobody waiting, and what was held is not shown.
func TestWhoEndsTheGoroutineThatReadsAnAnswerEndsTheAnswer(t *testing.T) {
	t.Parallel()
	registered := func(of func(stream.Call) stream.Observer) stream.Registration {
		r := watches("gone", nil)
		r.New = of
		return r
	}
	for name, c := range map[string]struct {
		gone   stream.Registration
		model  func(looptest.Model) looptest.Model
		said   string
		status string
		rows   []string
	}{
		"in a chunk": {
			gone: watches("gone", ofText(func(c stream.Chunk) stream.Verdict {
				switch c.Text {
				case "no ":
					return stream.Hold()
				case "more":
					runtime.Goexit()
				}
				return stream.Continue()
			})), said: "I say ", status: "completed stopped", rows: []string{"OnEnd other continue ok", "OnEnd gone transform panic", "OnChunk gone stop panic"},
		},
		"when it is made": {
			gone:   registered(func(stream.Call) stream.Observer { runtime.Goexit(); return nil }),
			status: "failed model_error",
		},
		"at the end": {
			gone: registered(func(stream.Call) stream.Observer { return goneInTheEnd{} }),
			said: "I say no more", status: "completed stop",
		},
		"the model": {
			gone: watches("gone", ofText(func(stream.Chunk) stream.Verdict { return stream.Continue() })),
			model: func(m looptest.Model) looptest.Model {
				return func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
					m(ctx, req, func(c stream.Chunk, err error) bool {
						if c.Text == "more" {
							runtime.Goexit()
						}
						return yield(c, err)
					})
				}
			}, said: "I say no ", status: "failed model_error", rows: []string{"OnEnd other continue ok", "OnEnd gone continue ok"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := (&scriptedTurns{say: []string{"I say no more"}}).model(t)
				if c.model != nil {
					m = c.model(m)
				}
				b := looptest.NewBench(looptest.NewLog(), m)
				b.Observe(t, watches("other", ofText(func(stream.Chunk) stream.Verdict { return stream.Continue() })), c.gone)
				j := b.Start(t, b.Session(t), "hi")
				run := b.Advance(t, j)
				if got := string(run.Status) + " " + run.Reason; got != c.status {
					t.Errorf("the run is %s %q; want %s", got, run.Error, c.status)
				}
				_, s := checked(t, b, j.SessionID)
				said := ""
				for _, m := range s.Messages[1:] {
					said += m.Text()
				}
				if said != c.said {
					t.Errorf("the conversation has %q; want %q", said, c.said)
				}
				var got []string
				for _, d := range ledger(b, j.SessionID) {
					got = append(got, string(d.Gate)+" "+d.HookID+" "+string(d.Action)+" "+string(d.Outcome))
				}
				if !slices.Equal(got, c.rows) {
					t.Errorf("the ledger has %q; want %q", got, c.rows)
				}
			})
		})
	}
}

type goneInTheEnd struct{}

func (goneInTheEnd) OnChunk(stream.Chunk) stream.Verdict { return stream.Continue() }

func (goneInTheEnd) OnEnd(stream.Summary) { runtime.Goexit() }
