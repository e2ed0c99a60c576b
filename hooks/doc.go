// Package hooks holds the words that an extension of agentd speaks: the
// messages of a conversation, and the Hooks struct of functions that the loop
// calls at fixed places.
//
// It imports only the standard library, so a hook author depends on nothing
// of the loop, the store or the API.
package hooks
