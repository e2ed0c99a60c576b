package wire

import (
	"encoding/json"
	"strings"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// NoOutput stands for a blank tool result: providers refuse blank text, and a
// result that is left out makes the history invalid.
const NoOutput = "(no output)"

// Arguments returns argument text that a provider can parse.
func Arguments(text string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return "{}"
	}
	if text[0] == '{' && json.Valid([]byte(text)) {
		return text
	}
	wrapped, _ := json.Marshal(map[string]string{"invalid_arguments": text}) // strings always have a JSON form
	return string(wrapped)
}

// CallIDs gives every call of a request an id of its own: the provider's, unless
// it gave none or an earlier call has the same one, and then agentd's.
type CallIDs struct {
	used map[string]bool
	wire map[string]string // by agentd's id
}

// NewCallIDs returns the ids of a request without calls.
func NewCallIDs() CallIDs {
	return CallIDs{used: make(map[string]bool), wire: make(map[string]string)}
}

// Call returns the id of a call, and takes it.
func (c CallIDs) Call(tc hooks.ToolCall) string {
	id := tc.ProviderID
	if id == "" || c.used[id] {
		id = tc.ID
	}
	c.used[id] = true
	c.wire[tc.ID] = id
	return id
}

// Result returns the id of the call that a result belongs to, by agentd's. One
// of a call that is not in the request keeps agentd's.
func (c CallIDs) Result(callID string) string {
	if id, ok := c.wire[callID]; ok {
		return id
	}
	return callID
}

// Blank reports whether s is nothing but white space.
func Blank(s string) bool { return strings.TrimSpace(s) == "" }
