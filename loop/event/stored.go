package event

import (
	"encoding/json"
	"reflect"
	"time"
)

// AsStored is [Decode] of an event that [New] has made of p. Almost always that
// is p again: then nothing is decoded, and p must not be changed any more.
func AsStored(e Event, p Payload) (Payload, error) {
	if asIs(reflect.ValueOf(p)) {
		return p, nil
	}
	return Decode(e)
}

// asIs says that v is decoded as it was before it was encoded. When in doubt it
// is not.
func asIs(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String:
		return clean(v.String())
	case reflect.Bool, reflect.Int, reflect.Int64:
		return true
	case reflect.Pointer:
		// One to a nil slice would become nil.
		return v.IsNil() || v.Elem().Kind() != reflect.Slice && asIs(v.Elem())
	case reflect.Struct:
		if v.Type() == timeType {
			return false // it may have a zone, or a reading of the monotonic clock
		}
		for i := range v.NumField() {
			if !asIs(v.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Slice:
		if v.Type() == rawType {
			return false // white space is left out, and nil becomes null
		}
		if v.Len() == 0 {
			return v.IsNil() // an empty one may become nil
		}
		for i := range v.Len() {
			if !asIs(v.Index(i)) {
				return false
			}
		}
		return true
	default:
		return false
	}
}

var (
	timeType = reflect.TypeFor[time.Time]()
	rawType  = reflect.TypeFor[json.RawMessage]()
)
