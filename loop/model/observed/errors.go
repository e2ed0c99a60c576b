package observed

import (
	"context"
	"errors"

	"github.com/seed-2ca4966b/agentd/hooks/observe"
	"github.com/seed-2ca4966b/agentd/loop"
)

// modelError finds the model's error in err, nil if there is none. Errors of a
// foreign model may have methods that panic: then there is none either, since a
// plugin must not break what goes well without it.
func modelError(err error) (me *loop.ModelError) {
	defer func() {
		if recover() != nil {
			me = nil
		}
	}()
	if !errors.As(err, &me) {
		return nil
	}
	return me
}

// is is errors.Is for errors of which nothing is known.
func is(err, target error) (yes bool) {
	defer func() {
		if recover() != nil {
			yes = false
		}
	}()
	return errors.Is(err, target)
}

// errorClass says what an error is. over is that the context of the call has ended.
func errorClass(err error, over bool) observe.ErrorClass {
	me := modelError(err)
	switch {
	case me != nil && me.Status >= 400:
		return statusError(me.Status)
	case me != nil:
		return codeError(me)
	case over, is(err, context.Canceled):
		return observe.ErrorCancelled
	case is(err, context.DeadlineExceeded):
		return observe.ErrorTimeout
	}
	return observe.ErrorOther
}

func statusError(status int) observe.ErrorClass {
	switch {
	case status == 401 || status == 403:
		return observe.ErrorAuth
	case status == 408 || status == 504:
		return observe.ErrorTimeout
	case status == 429:
		return observe.ErrorRateLimit
	case status < 500:
		return observe.ErrorInvalidRequest
	case status < 600:
		return observe.ErrorServer
	}
	return observe.ErrorOther
}

// codeError is about what goes wrong without a status that says so. The codes are
// those of the adapters; a provider's own word is in none of the classes.
func codeError(me *loop.ModelError) observe.ErrorClass {
	switch me.Code {
	case "first_byte_timeout", "idle_timeout", "data_timeout":
		return observe.ErrorTimeout
	case "network_error":
		return observe.ErrorNetwork
	case "client_panic":
		return observe.ErrorPanic
	case "invalid_request":
		return observe.ErrorInvalidRequest
	}
	if me.Status == 200 {
		return observe.ErrorStream
	}
	return observe.ErrorOther
}
