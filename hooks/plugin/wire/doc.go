// Package wire is what the two sides of agentd.plugin.v1 have to agree on beside
// the messages themselves: the handshake, the limits, and how the inputs and
// results of hooks become messages and back. Plugin authors use package plugin,
// which uses this.
package wire
