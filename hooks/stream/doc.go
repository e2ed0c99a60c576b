// Package stream holds the vocabulary of a model's answer while it arrives,
// the chunks that every provider adapter yields, and observers: functions that
// see each chunk before anything of it is stored or shown, and say what becomes
// of it.
//
// The way of a chunk is: provider, parser, observers in the order of
// registration, coalescer, commit, push. What an observer was handed exists in
// the goroutine that reads the provider and nowhere else.
package stream
