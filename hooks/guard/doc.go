// Package guard holds the checks that agentd brings along: hooks that need a
// configuration and no programming. Each is made by a function of its config,
// which refuses one that cannot be meant with a [setting.Error].
//
// Those that only look at what they are handed are declared pure. Those that
// count do so in the database, by an interface that is declared beside each:
// [Slots] and [Spending]. What they are sure of, and by how much a limit can be
// passed, stands with each.
//
// Where options
// are given they come after the guard's own, so that a host can give a guard
// another id, a scope or a time limit.
//
// It imports hooks, hooks/pattern, hooks/setting and the standard library.
package guard
