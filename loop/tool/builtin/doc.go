// Package builtin holds the tools that agentd brings along, and [Define],
// which makes a tool from a Go function.
//
// The schema of a tool's arguments comes from the Go type that receives them,
// and what does not fit it is refused before anything runs: a property that
// the type does not have, one that is missing, a value of another type.
//
// Numbers keep every digit. No number is decoded into a float64 on its way to
// a tool, and [Define] refuses a type that would do so. Where an object has
// the same key twice the last one counts, whole, at every depth: for the
// check as well as for the tool. The order of keys means nothing. A tool that
// needs the very bytes finds them in ToolInput.Arguments.
package builtin
