package event

// Policy says what becomes of a message that comes while a run of its session
// is active. Values are stored. "" is the default of whoever reads it.
type Policy string

// The policies.
const (
	// PolicyReject refuses the message.
	PolicyReject Policy = "reject"
	// PolicyEnqueue lets the message's run begin when those before it have
	// ended.
	PolicyEnqueue Policy = "enqueue"
)

// Policies are all of them, the default first.
func Policies() []Policy {
	return []Policy{PolicyReject, PolicyEnqueue}
}
