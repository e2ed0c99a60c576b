package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/loop/model/openai/openaitest"
)

// chaos decides, from one seed, what a provider, tools, hooks, people and
// machines do to a session. It is safe for concurrent use; what goes on side by
// side takes its turns in any order, so a seed does not give the same session
// twice.
type chaos struct {
	mu  sync.Mutex
	rng *rand.Rand
	// die kills the worker; nil while there is none.
	die func()
	// cancel asks the run to stop.
	cancel func()
	calls  int
}

var errKilled = errors.New("the worker was killed")

func newChaos(seed uint64) *chaos { return &chaos{rng: rand.New(rand.NewPCG(seed, seed))} }

// one is true once in n times.
func (c *chaos) one(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.IntN(n) == 0
}

func pick[T any](c *chaos, list ...T) T {
	c.mu.Lock()
	defer c.mu.Unlock()
	return list[c.rng.IntN(len(list))]
}

// arm names the worker and the run that may be hit.
func (c *chaos) arm(die, cancel func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.die, c.cancel = die, cancel
}

// kill kills the worker, if there is one, and reports whether it did.
func (c *chaos) kill() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.die == nil {
		return false
	}
	c.die()
	return true
}

func (c *chaos) stop() {
	c.mu.Lock()
	cancel := c.cancel
	c.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// append kills the worker in one append of forty.
func (c *chaos) append(loop.Append) error {
	if c.one(40) && c.kill() {
		return errKilled
	}
	return nil
}

// answer is what the provider does.
func (c *chaos) answer(openaitest.Request) openaitest.Answer {
	hold := openaitest.NewHold()
	switch {
	case c.one(40):
		return pick(c, openaitest.Page(502), openaitest.RateLimited(""), openaitest.Error(400, "invalid_request_error", "", "no"), openaitest.Answer{})
	case c.one(41):
		c.stop()
	case c.one(42):
		c.kill()
	case c.one(60):
		// Silent until somebody stops the run.
		go func() { <-hold.Reached(); c.stop() }()
		return c.script().Answer().Hold(pick(c, openaitest.BeforeHeaders, 0, 300, openaitest.AtEnd), hold)
	}
	if c.one(3) {
		return c.script().Answer(pick(c, openaitest.Quirks()...))
	}
	return c.script().Answer()
}

var (
	oddTexts     = []string{"", "\n", "Hi.", "Well, \U0001F9ED.", "a\x00b", " "}
	oddIDs       = []string{"call_0", "", "tool:0", "call_1", "an id with spaces", "fresh"}
	oddNames     = []string{"work", "work", "pay", "pay", "ask", "forbidden", "nowhere", "a.b/c d", "wörk", strings.Repeat("long", 30), ""}
	oddArguments = []string{"{}", "", " ", `{"n":1}`, `{"n": 9007199254740993, "s":"\ud800"}`, `{"n":`, "[1]", "null", `"x"`, "{}{}", `{"n":1}`}
)

func (c *chaos) script() openaitest.Script {
	s := openaitest.Script{Text: []string{pick(c, oddTexts...), pick(c, oddTexts...)}}
	if c.one(4) {
		s.Reasoning = "hm"
	}
	if c.one(6) {
		s.Finish = pick(c, "length", "content_filter", "stop", "odd")
	}
	for !c.one(3) && len(s.Calls) < 4 {
		id := pick(c, oddIDs...)
		if id == "fresh" {
			c.mu.Lock()
			c.calls++
			id += strconv.Itoa(c.calls)
			c.mu.Unlock()
		}
		s.Calls = append(s.Calls, openaitest.Call{ID: id, Name: pick(c, oddNames...), Arguments: pick(c, oddArguments...)})
	}
	return s
}

// tools are what the names stand for, those that are something.
func (c *chaos) tools() (list []loop.Tool) {
	for _, name := range []string{"work", "pay", "ask", "forbidden"} {
		list = append(list, looptest.Tool{Name: name, Idempotent: name == "work", Run: func(ctx context.Context, _ loop.ToolInput) (loop.ToolOutput, error) {
			switch {
			case c.one(25) && c.kill(), c.one(50):
				c.stop()
				<-ctx.Done()
				return loop.ToolOutput{}, ctx.Err()
			case c.one(30):
				c.stop()
			case c.one(20):
				return loop.ToolOutput{}, errors.New("it did not work")
			case c.one(31):
				panic("it broke")
			}
			return loop.ToolOutput{Content: pick(c, oddTexts...)}, nil
		}})
	}
	return list
}

// permissions deny and ask by name, hooks at random.
func (c *chaos) permissions() []loop.Permission {
	return []loop.Permission{{Tools: "forbidden", Mode: loop.PermissionDeny}, {Tools: "ask", Mode: loop.PermissionAsk}}
}

func (c *chaos) hooks() hooks.Hooks {
	return hooks.Hooks{
		BeforeToolCall: hooks.Named("moody", "1", func(context.Context, hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
			switch {
			case c.one(8):
				return hooks.BeforeToolCallResult{Action: hooks.ActionBlock, Reason: hooks.Reason{Text: "not today"}}, nil
			case c.one(12):
				arguments := pick(c, `{"n":2}`, "{}", "[2]")
				return hooks.BeforeToolCallResult{Action: hooks.ActionTransform, Arguments: &arguments}, nil
			case c.one(15):
				return hooks.BeforeToolCallResult{Action: hooks.ActionAsk, Reason: hooks.Reason{Text: "sure?"}}, nil
			case c.one(40):
				return hooks.BeforeToolCallResult{Action: hooks.ActionTerminate, Reason: hooks.Reason{Text: "enough"}}, nil
			case c.one(41):
				c.stop()
			case c.one(42):
				return hooks.BeforeToolCallResult{}, errors.New("no idea")
			}
			return hooks.BeforeToolCallResult{Action: hooks.ActionContinue}, nil
		}),
		AfterToolCall: hooks.Named("shy", "1", func(context.Context, hooks.AfterToolCall) (hooks.AfterToolCallResult, error) {
			switch blank := " \n"; {
			case c.one(8):
				return hooks.AfterToolCallResult{Action: hooks.ActionWithhold}, nil
			case c.one(9):
				return hooks.AfterToolCallResult{Action: hooks.ActionTransform, Content: &blank}, nil
			}
			return hooks.AfterToolCallResult{Action: hooks.ActionContinue}, nil
		}),
	}
}
