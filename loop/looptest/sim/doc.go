// Package sim plays schedules: the engine and the commands as they ship, on the
// Log in memory, with processes that die, stall and come back, answers that are
// lost, clocks that jump, and people, models, tools and hooks that do what they
// may do. A seed decides everything. Each call of the log, chunk of a model, entry
// of a tool and call of a hook is a point at which its goroutine waits; whenever
// nothing else can happen, one of them is let go. So a seed is a schedule, and
// the same seed gives the same log, byte for byte.
//
// While a schedule is played the package compares what happens with what
// docs/durability.md promises; see [Violation]. One that breaks a promise is made
// shorter as long as it still does ([Shrink]), and told in words.
package sim
