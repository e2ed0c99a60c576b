// Package builtin has the observers that come with agentd. Each is made by a
// constructor that takes its config and returns the registration; what cannot be
// meant is a [setting.Error].
package builtin
