// Package wire is what the adapters of providers over HTTP have in common: it
// reads server-sent events however the network cut them, waits no longer than
// it may, keeps credentials out of what is shown, and makes names, ids and
// arguments that providers take.
package wire
