package observe

import "slices"

// Hook is where a plugin is asked. The values are the names of the methods.
type Hook string

// The hooks.
const (
	HookBeforeRequest Hook = "BeforeRequest"
	HookAfterEvent    Hook = "AfterEvent"
	HookOnComplete    Hook = "OnComplete"
	HookOnError       Hook = "OnError"
)

// MethodClass is what kind of an HTTP request it is.
type MethodClass string

// The method classes.
const (
	// MethodNone: the model speaks no HTTP, as far as is known.
	MethodNone  MethodClass = "none"
	MethodRead  MethodClass = "read"
	MethodWrite MethodClass = "write"
	MethodOther MethodClass = "other"
)

// EventType is what an event of an answer is.
type EventType string

// The event types.
const (
	EventText          EventType = "text"
	EventReasoning     EventType = "reasoning"
	EventToolCall      EventType = "tool_call"
	EventToolArguments EventType = "tool_arguments"
	EventFinish        EventType = "finish"
	// EventOther is what this version has no word for, such as a type that was
	// added later.
	EventOther EventType = "other"
)

// StatusClass is the first digit of an HTTP status.
type StatusClass string

// The status classes.
const (
	// StatusNone: there was no response, or its status is not known.
	StatusNone        StatusClass = "none"
	StatusInformation StatusClass = "1xx"
	StatusSuccess     StatusClass = "2xx"
	StatusRedirect    StatusClass = "3xx"
	StatusClientError StatusClass = "4xx"
	StatusServerError StatusClass = "5xx"
	// StatusOther is a number that is no HTTP status.
	StatusOther StatusClass = "other"
)

// CompletionClass is why a whole answer ended.
type CompletionClass string

// The completion classes.
const (
	CompletionStop          CompletionClass = "stop"
	CompletionLength        CompletionClass = "length"
	CompletionToolCalls     CompletionClass = "tool_calls"
	CompletionContentFilter CompletionClass = "content_filter"
	// CompletionUnknown: the provider gave no reason, or one without a word here.
	CompletionUnknown CompletionClass = "unknown"
)

// ErrorClass is why there is no whole answer.
type ErrorClass string

// The error classes.
const (
	// ErrorCancelled: whoever asked was told to end.
	ErrorCancelled ErrorClass = "cancelled"
	// ErrorStopped: whoever read the answer wanted no more of it.
	ErrorStopped ErrorClass = "stopped"
	// ErrorRejected: a hook did not want the answer read.
	ErrorRejected ErrorClass = "rejected"
	// ErrorTimeout: the provider was silent for too long, or said that it was late.
	ErrorTimeout ErrorClass = "timeout"
	// ErrorNetwork: no response came.
	ErrorNetwork ErrorClass = "network"
	// ErrorRateLimit, ErrorAuth, ErrorInvalidRequest and ErrorServer are what the
	// status says: 429; 401 and 403; any other 4xx; 5xx.
	ErrorRateLimit      ErrorClass = "rate_limit"
	ErrorAuth           ErrorClass = "auth"
	ErrorInvalidRequest ErrorClass = "invalid_request"
	ErrorServer         ErrorClass = "server"
	// ErrorStream: the answer began well, and was nonsense or an error then.
	ErrorStream ErrorClass = "stream"
	// ErrorIncomplete: the answer ended in the middle, without a word.
	ErrorIncomplete ErrorClass = "incomplete"
	// ErrorPanic: what reads the provider, or its answer, broke.
	ErrorPanic ErrorClass = "panic"
	ErrorOther ErrorClass = "other"
)

// Reason is why a plugin is left out for the rest of a request.
type Reason string

// The reasons.
const (
	ReasonError   Reason = "error"
	ReasonPanic   Reason = "panic"
	ReasonTimeout Reason = "timeout"
)

var (
	methods     = []MethodClass{MethodNone, MethodRead, MethodWrite, MethodOther}
	eventTypes  = []EventType{EventText, EventReasoning, EventToolCall, EventToolArguments, EventFinish, EventOther}
	completions = []CompletionClass{CompletionStop, CompletionLength, CompletionToolCalls, CompletionContentFilter, CompletionUnknown}
	errorKinds  = []ErrorClass{
		ErrorCancelled, ErrorStopped, ErrorRejected, ErrorTimeout, ErrorNetwork, ErrorRateLimit, ErrorAuth,
		ErrorInvalidRequest, ErrorServer, ErrorStream, ErrorIncomplete, ErrorPanic, ErrorOther,
	}
	statusClasses = []StatusClass{StatusInformation, StatusSuccess, StatusRedirect, StatusClientError, StatusServerError}
)

// Completions are all completion classes, for a plugin that counts by them.
func Completions() []CompletionClass { return slices.Clone(completions) }

// Errors are all error classes, for a plugin that counts by them.
func Errors() []ErrorClass { return slices.Clone(errorKinds) }

// closed returns v if it is one of the set, and otherwise what stands for all else:
// whoever asks cannot hand on a text in the place of a word.
func closed[T ~string](v T, set []T, other T) T {
	for _, known := range set {
		if v == known {
			return known // and not v, whose bytes may be a part of something long
		}
	}
	return other
}

// statusOf is what plugins are told of a status.
func statusOf(code int) (uint16, StatusClass) {
	switch {
	case code == 0:
		return 0, StatusNone
	case code < 100 || code > 599:
		return 0, StatusOther
	}
	return uint16(code), statusClasses[code/100-1]
}
