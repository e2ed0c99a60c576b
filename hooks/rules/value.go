package rules

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// celOf is JSON as expressions see it. An integer is an int, or a uint where only
// that holds it; a number that is written with a fraction or an exponent is a
// double, unless it is an integer that a double may not have. A number that none
// of them holds is the text of its digits: no number is ever another one than was
// written, but for the digits that a fraction loses.
func celOf(v value, object func(*object, map[string]any) ref.Val) ref.Val {
	switch {
	case v.object != nil:
		m := make(map[string]any, len(v.object.members))
		for _, one := range v.object.members {
			m[one.name] = celOf(one.value, object)
		}
		return object(v.object, m)
	case v.isArray:
		list := make([]ref.Val, len(v.array))
		for i, e := range v.array {
			list[i] = celOf(e, object)
		}
		return types.NewRefValList(adapter, list)
	case v.raw == "true", v.raw == "false":
		return types.Bool(v.raw == "true")
	case v.isNull():
		return types.NullValue
	}
	if s, ok := v.text(); ok {
		return types.String(s)
	}
	return numberOf(v.raw)
}

func numberOf(digits string) ref.Val {
	if strings.ContainsAny(digits, ".eE") {
		f, err := strconv.ParseFloat(digits, 64)
		if err != nil {
			return types.String(digits)
		}
		whole, ok := wholeDigits(digits, f)
		if !ok {
			return types.Double(f)
		}
		digits = whole
	}
	if i, err := strconv.ParseInt(digits, 10, 64); err == nil {
		return types.Int(i)
	}
	if u, err := strconv.ParseUint(digits, 10, 64); err == nil {
		return types.Uint(u)
	}
	return types.String(digits)
}

// exactDoubles is where doubles begin to leave out integers.
const exactDoubles = 1 << 53

// wholeDigits writes an integer that has a point or an exponent, such as
// 9007199254740993.0, as a tool may read it: f, its double, would be another one.
func wholeDigits(digits string, f float64) (string, bool) {
	// Larger ones no type of integers has.
	if math.Abs(f) < exactDoubles || math.Abs(f) > 1<<64 {
		return "", false
	}
	if len(digits) > maxWholeDigits {
		return digits, true // what cannot be said of it is a text
	}
	r, ok := new(big.Rat).SetString(digits)
	if !ok || !r.IsInt() {
		return "", false
	}
	return r.Num().String(), true
}

// maxWholeDigits is more than anybody writes an integer of 64 bits with.
const maxWholeDigits = 100

// writer puts what an expression came to as JSON. Lists can be far longer than
// what they are made of, so it counts.
type writer struct {
	b     strings.Builder
	limit int
}

var (
	errLong      = fmt.Errorf("what the expressions come to has more than %d bytes", maxOutputBytes)
	errNotFinite = errors.New("a number that is infinite or none cannot be written")
)

func (w *writer) put(s string) error {
	if w.b.Len()+len(s) > w.limit {
		return errLong
	}
	w.b.WriteString(s)
	return nil
}

func (w *writer) value(v ref.Val, depth int) error {
	if depth > maxJSONNesting {
		return errDeep
	}
	switch v := v.(type) {
	case types.String:
		return w.put(quote(string(v)))
	case traits.Mapper:
		return w.mapping(v, depth)
	case traits.Lister:
		return w.list(v, depth)
	}
	s, quoted, err := scalar(v)
	if err != nil {
		return err
	}
	if quoted {
		s = quote(s)
	}
	return w.put(s)
}

// scalar is v as it stands in a text; quoted says that it is one in JSON too.
func scalar(v ref.Val) (s string, quoted bool, err error) {
	switch v := v.(type) {
	case types.String:
		return string(v), true, nil
	case types.Bool:
		return strconv.FormatBool(bool(v)), false, nil
	case types.Int:
		return strconv.FormatInt(int64(v), 10), false, nil
	case types.Uint:
		return strconv.FormatUint(uint64(v), 10), false, nil
	case types.Double:
		f := float64(v)
		if math.IsInf(f, 0) || math.IsNaN(f) {
			return "", false, errNotFinite
		}
		return strconv.FormatFloat(f, 'g', -1, 64), false, nil
	case types.Null:
		return "null", false, nil
	case types.Timestamp:
		return v.UTC().Format(time.RFC3339Nano), true, nil
	case types.Duration:
		return v.String(), true, nil
	}
	return "", false, fmt.Errorf("a value of type %s cannot be written", v.Type().TypeName())
}

func (w *writer) list(l traits.Lister, depth int) error {
	if err := w.put("["); err != nil {
		return err
	}
	for it, i := l.Iterator(), 0; it.HasNext() == types.True; i++ {
		if i > 0 {
			if err := w.put(","); err != nil {
				return err
			}
		}
		if err := w.value(it.Next(), depth+1); err != nil {
			return err
		}
	}
	return w.put("]")
}

func (w *writer) mapping(m traits.Mapper, depth int) error {
	if c, ok := m.(cased); ok {
		m = c.Mapper // all members are written: none is looked for
	}
	names := map[string]ref.Val{}
	var order []string
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, _, err := scalar(key)
		if err != nil {
			return err
		}
		names[name] = m.Get(key)
		order = append(order, name)
	}
	slices.Sort(order)
	if err := w.put("{"); err != nil {
		return err
	}
	for i, name := range order {
		sep := ","
		if i == 0 {
			sep = ""
		}
		if err := w.put(sep + quote(name) + ":"); err != nil {
			return err
		}
		if err := w.value(names[name], depth+1); err != nil {
			return err
		}
	}
	return w.put("}")
}

// jsonOf is what an expression came to as JSON.
func jsonOf(v ref.Val) (value, error) {
	w := writer{limit: maxOutputBytes}
	if err := w.value(v, 0); err != nil {
		return value{}, err
	}
	// What was written is JSON, but for a key that stands twice as 1 and "1".
	return decode(w.b.String())
}

// textOf is what an expression came to as it stands in a text.
func textOf(v ref.Val, limit int) (string, error) {
	switch v.(type) {
	case traits.Mapper, traits.Lister:
		w := writer{limit: limit}
		err := w.value(v, 0)
		return w.b.String(), err
	}
	s, _, err := scalar(v)
	if err == nil && len(s) > limit {
		return "", errLong
	}
	return s, err
}
