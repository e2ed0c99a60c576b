// Package hooks holds the words that an extension of agentd speaks: the
// messages of a conversation, the gates where the loop asks before it acts,
// and the Hooks struct of functions that the loop calls.
//
// A hook at a gate is a [Func]. [Named] gives it an identity, a phase and
// limits, [Compose] joins several, and [Ask] asks them on behalf of the loop:
// it yields what the loop goes on with and a [Decision] per hook, for the
// ledger. A hook that fails never counts as one that has no objection.
//
// It imports only the standard library, so a hook author depends on nothing
// of the loop, the store or the API.
package hooks
