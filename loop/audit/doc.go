// Package audit says what is wrong with the log of a session: what the
// transition tables refuse, and what they cannot see since it is about two
// events, or about an event and a decision. It looks at a log as anybody may who
// has the events, knows nothing of the process that wrote them, and changes
// nothing. `agentd verify --strict` and the simulation of the loop ask the same
// rules.
package audit
