package main

import "github.com/seed-2ca4966b/agentd/loop/event"

// policyFlags say what becomes of a message that comes while a run of its
// session is active.
type policyFlags struct {
	DoubleTexting event.Policy `default:"reject" enum:"reject,enqueue,interrupt,rollback" env:"AGENTD_DOUBLE_TEXTING" placeholder:"POLICY" help:"What becomes of a message that comes while a run of its session is active, unless its request says it: reject it, enqueue its run, interrupt the active one, or rollback, which also forgets what that was asked and has answered."`
}

// policies are those of the agents.
func (f policyFlags) policies() map[string]event.Policy {
	return map[string]event.Policy{demoAgent: f.DoubleTexting}
}
