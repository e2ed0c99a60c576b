package observe

import (
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// RequestHook is told of requests.
type RequestHook interface {
	// BeforeRequest is called before a request is sent.
	BeforeRequest(Request) error
}

// EventHook is told of events.
type EventHook interface {
	// AfterEvent is called after an event of an answer was handed on.
	AfterEvent(Event) error
}

// CompletionHook is told of requests that went well.
type CompletionHook interface {
	// OnComplete is called once an answer is whole.
	OnComplete(Completion) error
}

// ErrorHook is told of requests that did not.
type ErrorHook interface {
	// OnError is called once there will be no whole answer. A request has either
	// this or OnComplete, once.
	OnError(Failure) error
}

// Why a plugin is refused.
var (
	ErrID        = errors.New("the id " + hooks.NameRule)
	ErrDuplicate = errors.New("the id is taken")
	ErrNil       = errors.New("the plugin is nil")
	ErrNoHook    = errors.New("the plugin has none of the methods BeforeRequest, AfterEvent, OnComplete and OnError")
	// ErrPointer: only a pointer to the plugin has the methods.
	ErrPointer = errors.New("the methods need a pointer")
	// ErrSignature: a method has the name of a hook and is none.
	ErrSignature = errors.New("the method is no hook")
	// ErrSealed: requests were asked about before, and would know nothing of it.
	ErrSealed = errors.New("the registry is in use: register plugins before")
)

// maxHung is how many goroutines of one plugin may be hung at once. Beyond it the
// plugin is not asked, so that one that never comes back does not take all memory.
const maxHung = 100

// plugin is a registered one. A hook that it does not have is nil.
type plugin struct {
	id         string
	request    RequestHook
	event      EventHook
	completion CompletionHook
	failure    ErrorHook
	// hung is how many goroutines it has kept.
	hung atomic.Int64
}

func (p *plugin) has(h Hook) bool {
	switch h {
	case HookBeforeRequest:
		return p.request != nil
	case HookAfterEvent:
		return p.event != nil
	case HookOnComplete:
		return p.completion != nil
	case HookOnError:
		return p.failure != nil
	}
	return false
}

// newPlugin checks v, so that nothing which looks like a hook is silently left
// unasked.
func newPlugin(id string, v any) (*plugin, error) {
	if v == nil {
		return nil, ErrNil
	}
	value := reflect.ValueOf(v)
	switch value.Kind() { //nolint:exhaustive // the others are never nil
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Func, reflect.Chan, reflect.UnsafePointer:
		if value.IsNil() {
			return nil, fmt.Errorf("%w: a %T that points to nothing", ErrNil, v)
		}
	}
	p := &plugin{id: id}
	p.request, _ = v.(RequestHook)
	p.event, _ = v.(EventHook)
	p.completion, _ = v.(CompletionHook)
	p.failure, _ = v.(ErrorHook)
	for _, h := range []Hook{HookBeforeRequest, HookAfterEvent, HookOnComplete, HookOnError} {
		if p.has(h) {
			continue
		}
		if m, ok := value.Type().MethodByName(string(h)); ok {
			return nil, fmt.Errorf("%w: %s of %T is a %s", ErrSignature, h, v, m.Type)
		}
		if _, ok := reflect.PointerTo(value.Type()).MethodByName(string(h)); ok {
			return nil, fmt.Errorf("%w: %s is a method of *%T, so pass &T and not T", ErrPointer, h, v)
		}
	}
	if p.request == nil && p.event == nil && p.completion == nil && p.failure == nil {
		return nil, fmt.Errorf("%w: it is a %T", ErrNoHook, v)
	}
	return p, nil
}
