// Command ticket-tool is a plugin with a tool that says how far it is.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"github.com/seed-2ca4966b/agentd/hooks/plugin"
)

const schema = `{
  "type": "object",
  "properties": {"title": {"type": "string", "minLength": 1}},
  "required": ["title"],
  "additionalProperties": false
}`

// desk keeps the tickets, for as long as the plugin runs.
type desk struct {
	mu sync.Mutex
	// numbers of tickets by the call that has opened them: a call that comes again
	// opens no second one.
	numbers map[string]int
}

func (d *desk) open(_ context.Context, in plugin.ToolInput, progress func(string)) (plugin.ToolOutput, error) {
	var arguments struct {
		Title string `json:"title"`
	}
	if err := json.Unmarshal(in.Arguments, &arguments); err != nil {
		return plugin.ToolOutput{}, err
	}
	progress("looking for a free number")
	d.mu.Lock()
	defer d.mu.Unlock()
	n, ok := d.numbers[in.CallID]
	if !ok {
		n = len(d.numbers) + 1
		d.numbers[in.CallID] = n
	}
	progress(fmt.Sprintf("writing ticket %d", n))
	return plugin.ToolOutput{Content: fmt.Sprintf("Ticket %d: %s", n, arguments.Title)}, nil
}

func main() {
	d := &desk{numbers: map[string]int{}}
	err := plugin.Serve(plugin.Config{
		ID: "ticket-tool", Version: "1",
		Tools: []plugin.Tool{{
			Name: "open_ticket", Description: "Opens a ticket and says its number.", Schema: json.RawMessage(schema),
			Idempotent: true, Run: d.open,
		}},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
