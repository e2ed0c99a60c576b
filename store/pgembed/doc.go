// Package pgembed finds, starts, recovers and stops a private Postgres, for
// `agentd dev` and for tests. It runs no SQL and knows nothing of agentd's
// schema.
//
// # Life and death
//
// The postmaster is a direct child and never outlives the process that called
// Start by more than a moment: on Linux the kernel sends it SIGQUIT when that
// process dies, kill -9 included. SIGQUIT is Postgres's immediate shutdown: the
// postmaster takes its backends with it, busy ones too, and removes its shared
// memory. SIGKILL would leave backends behind that hold the shared memory, and
// the next start would have to wait for them. Nothing that was committed is
// lost; the next start replays the log. Other systems have no such signal, so
// there the postmaster stays behind and the next Start on the same data
// directory stops it.
//
// # Files
//
// Beside a data directory D lie D.lock (held by the owning process for as long
// as it lives), D.log (Postgres's own output), D.password and D.sock (the
// directory of the unix socket). A cluster is made in D.init-* and renamed to D
// when it is complete, so a D with a PG_VERSION file is always a whole one.
//
// # Who can connect
//
// Over TCP, on the loopback address only, the role "agentd" needs a random
// password: every user of a machine can reach a loopback port, and that role is
// a superuser, who may run programs as the user Postgres runs as. The password
// is kept in D.password (mode 0600) and is part of Server.URL, so that the URL
// works pasted into psql. The socket directory has mode 0700, which already
// proves the caller to be the user Postgres runs as, or root; there the server
// trusts. Peer authentication would add nothing but a mapping of names, and it
// would refuse root.
package pgembed
