// Package agentd is the root of the module and holds no code: only the test of
// who may import whom. agentd is a chat backend for agents, a Go service over
// one Postgres; the program is cmd/agentd, the vocabulary that hooks are written
// in is hooks, the engine is loop, all SQL is in store and the front doors are
// in api.
package agentd
