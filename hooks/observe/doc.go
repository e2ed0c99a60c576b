// Package observe has lifecycle plugins: values that are told, for metrics and
// for debugging, how each request to a model's provider goes. They can neither
// replace nor refuse, neither reorder nor cancel anything.
//
// What they are told is flat: numbers, lengths and words out of closed sets. No
// text, no reasoning, no signature, no name or argument of a tool, no id, no name
// of a model, no URL, query, source or header and no error message is among it, and
// no context is handed over, since a context carries values. So there is nothing to
// redact: a payload has no place for it.
//
// A plugin is any value with one or more of the methods of [RequestHook],
// [EventHook], [CompletionHook] and [ErrorHook]. It is registered once, under an
// id, and used by all requests at once, so its methods are safe for concurrent
// use. Who asks begins a [Session] per request; where no plugin is registered
// there is none, and a nil one costs nothing.
//
// Plugins run in the process of whoever asks: one that calls os.Exit or writes to
// a map from two goroutines takes the process with it.
package observe
