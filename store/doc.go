// Package store is the log in Postgres, and the only package with SQL on
// agentd's tables.
//
// # Writing
//
// [Store.Append] is the one write path. A process has one committer, which
// gathers what its callers append into groups and commits one group at a time:
// what arrives while a commit is in flight goes into the next. A group is a
// fixed number of set-based statements in one transaction. The first is a
// compare-and-set on the session rows; everything after it (events,
// projections) touches only the sessions that it won, so each append succeeds
// or conflicts by itself, whole. Nothing else locks a session row, and nothing
// but a suspended or dead process holds one for long.
//
// A transaction says nothing to anybody before it is durable. After the commit
// the group is handed to who waits in this process, and announced to other
// processes with one notification.
//
// # Reading
//
// sessions, runs, turns, messages and tool_calls are projections of the
// events. [Verify] folds the log again and compares.
package store
