// Package rules makes hooks of policies that are written as data: YAML files of
// rules, each a condition in CEL at one gate and what becomes of what it meets.
// docs/rules.md has the format.
//
// [Load] reads files and refuses, with every place that is wrong, what could
// not be evaluated. [Set.Hooks] are the rules as hooks, one per rule, and
// [Set.Test] runs the examples that stand beside them.
//
// Rules come from whoever may configure the process, and are nevertheless
// bounded: in size when they are loaded, and in cost, memory and time when they
// are asked. One that meets a limit fails like any hook, and harms no other.
package rules
