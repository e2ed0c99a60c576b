package main

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/seed-2ca4966b/agentd/loop/model/openai/openaitest"
)

// provider is a fake provider that outlives everything that is killed. It speaks
// the bytes of Chat Completions and refuses what a strict one refuses.
type provider struct{ *openaitest.Provider }

func newProvider(s *stage) provider {
	p := openaitest.Config{MayRefuse: true}.New(s)
	p.Respond(answer)
	return provider{p}
}

const (
	slowPause = 40 * time.Millisecond
	pace      = 5 * time.Millisecond
	// busyEvery is how many requests there are to one that is told to come back.
	busyEvery = 40
)

// answer is what the model says. Every word has the number of its request, so
// that no two answers can be taken for one.
func answer(r openaitest.Request) openaitest.Answer {
	if r.N%busyEvery == 0 {
		return openaitest.Error(503, "server_error", "overloaded", "come back later")
	}
	said, stage := conversationOf(r.Chat)
	m := asked.FindStringSubmatch(said)
	if m == nil {
		return openaitest.Error(400, "invalid_request_error", "", "nobody has asked for anything: "+said)
	}
	kind, name := m[1], m[2]
	words := func(n int) (pieces []string) {
		for i := range n {
			pieces = append(pieces, "r"+strconv.Itoa(r.N)+"-"+strconv.Itoa(i)+" ")
		}
		return append(pieces, "r"+strconv.Itoa(r.N)+"-"+name)
	}
	script := openaitest.Script{Text: words(4)}
	slow := pace
	tools := toolsOf[kind]
	switch {
	case kind == "long":
		script.Text, slow = words(40), slowPause
	case len(tools) > 0 && stage == 0:
		for i, tool := range tools {
			script.Calls = append(script.Calls, openaitest.Call{
				// Ids that come again, as those of some providers do.
				ID: "call_" + strconv.Itoa(i), Name: tool,
				Arguments: fmt.Sprintf(`{"before_ms": %d, "after_ms": %d}`, rand.N(150), rand.N(150)),
			})
		}
	}
	a := script.Answer()
	a.Every, a.Pause = 190, slow // about one frame
	return a
}

// toolsOf says which tools a message makes the model ask for.
var toolsOf = map[string][]string{
	"charge": {"charge"}, "put": {"put"}, "both": {"charge", "put", "put"},
	"pay": {"pay"}, "refuse": {"pay", "charge"}, "denied": {"denied"},
}

var asked = regexp.MustCompile(`(text|long|charge|put|both|pay|refuse|denied) (\S+)`)

// conversationOf returns the last thing that was asked for, and how many answers
// there have been to it. Messages of a user in a row may have become one.
func conversationOf(c openaitest.Chat) (said string, stage int) {
	for _, m := range c.Messages {
		switch m.Role {
		case "user":
			all := asked.FindAllString(m.Text(), -1)
			if len(all) > 0 {
				said, stage = all[len(all)-1], 0
			}
		case "assistant":
			stage++
		}
	}
	return strings.TrimSpace(said), stage
}
