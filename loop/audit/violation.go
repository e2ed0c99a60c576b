package audit

import "fmt"

// Rule is something that every log keeps to.
type Rule string

// The rules.
const (
	// RuleSeq: seqs count from 1 without holes, but for deltas that were removed.
	RuleSeq Rule = "seq"
	// RuleTransition: the tables allow each event where it stands. So at most one
	// run is active, epochs and tickets grow, and every call has one result.
	RuleTransition Rule = "transition"
	// RuleQueue: nobody is enqueued behind no run.
	RuleQueue Rule = "queue"
	// RuleLease: what takes a run on is written by the worker that holds it, and
	// nobody releases a run that another holds.
	RuleLease Rule = "lease"
	// RuleIdentity: no id of a message, a call or an approval stands twice.
	RuleIdentity Rule = "identity"
	// RuleAnswer: an answer has the text of its own attempt, all of it and no
	// other, and its calls are proposed behind it, in its order.
	RuleAnswer Rule = "answer"
	// RuleRequest: a model is sent the conversation, in which every call has its
	// one result.
	RuleRequest Rule = "request"
	// RuleAttempt: a tool is started once per attempt, in order, and executed in
	// the attempt that was started last. What it says of how far it is, it says in
	// that, in order.
	RuleAttempt Rule = "attempt"
	// RuleArguments: what runs, and what people are asked about, are the bytes
	// that the log says.
	RuleArguments Rule = "arguments"
	// RuleResult: a call's result has the reason that what became of it is.
	RuleResult Rule = "result"
	// RuleApproval: a question is answered once, by an answer about the same
	// call, none is open when its run ends, and who waits says for which.
	RuleApproval Rule = "approval"
	// RuleStop: after an answer that an observer has stopped comes what the event
	// says, and a run is asked again for that reason once.
	RuleStop Rule = "stop"
	// RuleTools: no model is told of a tool that a hook or a tool has taken from its
	// run in an earlier turn, none is started, and it says who has taken it.
	RuleTools Rule = "tools"
	// RuleDecision: a decision is recorded once, with an event of its run, under
	// the lease that the run had then. That of a shadow has no effect.
	RuleDecision Rule = "decision"
)

// Violation is a place where a log breaks a rule.
type Violation struct {
	Rule Rule
	// Seq is the event at which it shows, LedgerSeq the decision; one is 0.
	Seq       int64
	LedgerSeq int64
	// Problem is half a sentence for people, without anything that was said.
	Problem string
}

// String names the place, the rule and the problem.
func (v Violation) String() string {
	if v.LedgerSeq > 0 {
		return fmt.Sprintf("decision %d: %s: %s", v.LedgerSeq, v.Rule, v.Problem)
	}
	return fmt.Sprintf("seq %d: %s: %s", v.Seq, v.Rule, v.Problem)
}
