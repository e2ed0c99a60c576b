// Package observed puts lifecycle plugins in front of a model: they are told of
// each request, of each chunk of its answer and of how it ended, and whoever reads
// the model gets what it would get without them, in the same order.
//
// It is the one place where what a request is about and what plugins are told of it
// meet: numbers, lengths and words of closed sets go on, and nothing else.
package observed
