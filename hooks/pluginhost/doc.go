// Package pluginhost starts plugins and keeps them: programs that other people wrote,
// of which nothing is taken for granted.
//
// [Discover] finds what is installed. A [Host] copies each bundle to a directory of
// its own, compares it with plugins.lock, starts the copy and asks who it is; what
// comes up together is a [Generation], and [Host.Reload] puts another one in its
// place. Between the host and each process stands a keeper, see [Keep], so that
// nothing of a plugin is left, whoever of the two dies first and how.
//
// A plugin that dies is started again, a while later each time, and after some deaths
// not at all. As long as it is not up [Plugin.Process] says so, and whoever is to ask
// it has no answer: that never means yes.
//
// A [Notifier] tells those that listen what has happened, until they have taken it.
//
// None of this holds against a plugin that means harm: it runs as the same user. Its
// mistakes are kept from the host, and it gets none of the host's variables, files
// and sockets that it was not given.
package pluginhost
