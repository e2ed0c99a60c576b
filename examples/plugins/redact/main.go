// Command redact is a plugin of stream rules: what they match in the answer of a
// model is gone before it is stored or shown. They are data, and agentd carries
// them out.
package main

import (
	"fmt"
	"os"

	"github.com/seed-2ca4966b/agentd/hooks/plugin"
)

var rules = []plugin.StreamRule{
	{ID: "ticket-ids", Redact: &plugin.Redact{
		Patterns: []string{`\bACME-[0-9]{6}\b`}, Sets: []string{"secrets"}, Replacement: "[removed]",
	}},
	{ID: "canary", Halt: &plugin.Halt{
		Pattern: `canary-[0-9a-f]{8}`, Reason: "The answer repeats what only the system prompt says.", OnStop: "fail",
	}},
}

func main() {
	err := plugin.Serve(plugin.Config{ID: "redact", Version: "1", StreamRules: rules})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
