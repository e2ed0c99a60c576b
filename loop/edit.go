package loop

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

// MaxArguments is the most that a person may give a call for arguments, in
// bytes.
const MaxArguments = 256 << 10

// checkEdit refuses arguments that hooks and tools are not handed. What fits
// here is checked again where the call runs: the tools may be others there.
func (c *Commands) checkEdit(agent string, call Call, arguments string) error {
	refuse := func(format string, args ...any) error {
		return &InvalidError{Field: "arguments", Problem: fmt.Sprintf(format, args...)}
	}
	switch {
	case len(arguments) > MaxArguments:
		return refuse("have %d bytes: give at most %d", len(arguments), MaxArguments)
	case !utf8.ValidString(arguments) || !json.Valid([]byte(arguments)):
		return refuse("are not whole JSON")
	case !strings.HasPrefix(strings.TrimLeft(arguments, " \t\r\n"), "{"):
		return refuse("are no JSON object")
	case arguments == call.final():
		return refuse("are those that were asked about: approve them")
	}
	asks, done := c.inForce()
	defer done()
	tool, ok := (Agent{Tools: asks.tools(c.Tools[agent])}).tool(call.Name)
	if !ok {
		return nil
	}
	if err := tool.Validate(json.RawMessage(arguments)); err != nil {
		text, _ := event.CleanText(err.Error())
		return refuse("do not fit the tool: %s", event.Shorten(text, 2000))
	}
	return nil
}

// noted is a result of c as the model is told it: the call in its history has
// the arguments that it wrote, so that a person made them others, and perhaps a
// hook after that, is said here.
func (c Call) noted(content string) string {
	if c.Edits == 0 || c.Final == nil {
		return content
	}
	return "[The arguments of this call were changed to: " + event.Shorten(*c.Final, 2000) + "]\n" + content
}

// noted is [Call.noted] for the call that res is of.
func (r *runner) noted(res event.ToolResult) event.ToolResult {
	t, _ := r.run().Turn()
	if i := t.callIndex(res.CallID); i >= 0 {
		res.Content = t.Calls[i].noted(res.Content)
	}
	return res
}
