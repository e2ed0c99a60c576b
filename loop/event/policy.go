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
	// PolicyInterrupt cancels the active run, and the message's run begins when
	// that has ended, before all that are enqueued.
	PolicyInterrupt Policy = "interrupt"
	// PolicyRollback is PolicyInterrupt, and what the cancelled run was asked and
	// has answered leaves the conversation.
	PolicyRollback Policy = "rollback"
)

// Policies are all of them, the default first.
func Policies() []Policy {
	return []Policy{PolicyReject, PolicyEnqueue, PolicyInterrupt, PolicyRollback}
}

// First says that the run begins before all that are enqueued.
func (p Policy) First() bool { return p == PolicyInterrupt || p == PolicyRollback }
