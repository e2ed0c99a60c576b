// Package worker makes runs go on: it takes jobs from River and hands each to
// the engine, keeps the lease of the runs that this process holds, and takes
// away those that dead workers hold.
//
// River is only the queue. Which job may claim a run is decided by the run's
// ticket, and who may write by its epoch, both in the log. So a job that comes
// twice, late, or for a run that has ended does nothing, and nothing here
// depends on how River finishes, rescues or deletes its rows.
//
// The lease is one row per start of a worker, kept alive by a heartbeat on a
// connection of its own. A worker that is declared dead, or that cannot reach
// the database for longer than its lease, stops all its runs at once and begins
// anew under a fresh id; the process lives on.
package worker
