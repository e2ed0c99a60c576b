package wire

import "github.com/seed-2ca4966b/agentd/hooks"

// How long messages may be, in bytes. A side that is sent a longer one does not
// read it and answers resource_exhausted.
const (
	// MaxRequest is for everything that a plugin is asked or told.
	MaxRequest = 64 << 20
	// MaxBootstrap is for what it says it is and does.
	MaxBootstrap = 4 << 20
	// MaxToolMessage is for each message of a tool's execution; of an output agentd
	// stores 1 MiB.
	MaxToolMessage = 2 << 20
	// MaxSmall is for the answers to Notify, Health and Drain.
	MaxSmall = 64 << 10
	// MaxHostRequest is for what a plugin asks its host, MaxHostReply for the
	// answers.
	MaxHostRequest = 1 << 20
	MaxHostReply   = 8 << 20
	// MaxProgress is for the text of a tool's progress.
	MaxProgress = 4 << 10

	// framing is what an answer may have beside what hooks count of it.
	framing  = 64 << 10
	text     = 1 << 20
	messages = 8 << 20

	// MaxReply is the longest that any gate takes: see [MaxAnswer].
	MaxReply = messages + framing
)

// MaxAnswer is how long an answer may be at a gate: its reply limit, and room for
// what the limit does not count.
func MaxAnswer(g hooks.Gate) int {
	if g == hooks.GateTransformContext || g == hooks.GateBeforeProviderRequest {
		return MaxReply
	}
	return text + framing
}

// What one side may have sent of a stream, and of all streams of a connection, before
// the other has read it, in bytes. Where nobody says them gRPC finds out sizes by
// itself, with a ping for what it reads: that is half of all writes of a small call.
const (
	StreamWindow = 256 << 10
	ConnWindow   = 1 << 20
)
