package observe

import "time"

// Request is what a plugin is told before a request is sent.
type Request struct {
	Method MethodClass
	// BodyBytes is the length of what is sent, 0 if it is not known.
	BodyBytes uint64
}

// Event is what a plugin is told of one event of an answer, once it was handed on.
type Event struct {
	// Number is 1 for the first event of the request, and so on.
	Number uint64
	Type   EventType
	// Bytes is the length of its text, or of its arguments.
	Bytes uint64
	// Elapsed is the time from the beginning of the request until it was there.
	Elapsed time.Duration
}

// Completion is what a plugin is told of a request whose answer was whole.
type Completion struct {
	Exchange
	Class CompletionClass
}

// Failure is what a plugin is told of a request that did not bring a whole answer.
type Failure struct {
	Exchange
	Class ErrorClass
}

// Exchange is what there is to say of a request that has ended, however it did.
type Exchange struct {
	Method MethodClass
	// Status is the status of the response, 0 if there was none, or it is not
	// known, or it is no status.
	Status      uint16
	StatusClass StatusClass
	// Events is how many there were, Bytes the length of them all.
	Events uint64
	Bytes  uint64
	Usage  Usage
	// Elapsed is the time that the request took, reading by its consumer included.
	Elapsed time.Duration
	// FirstEvent is the time until the first event was there, 0 if there was none.
	FirstEvent time.Duration
}
