// Package loop is the agent loop: the state of a run folded from its events,
// the table of allowed transitions, the engine that takes one step at a time,
// and the commands that people give.
//
// Everything that happened is an event in a [Log]; everything that is true
// follows from [Fold]. An engine that takes up a run folds its log and goes
// on at the first step that has no outcome, so resuming after a crash is the
// normal path and not a special one.
//
// The package knows no database, no HTTP and no provider: it declares the
// interfaces [Log], [Model] and [Tool], and others implement them.
package loop
