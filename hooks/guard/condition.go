package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-2ca4966b/agentd/hooks/pattern"
	"github.com/seed-2ca4966b/agentd/hooks/setting"
)

// Condition is about one argument of a call. Exactly one of the comparisons is
// given.
//
// It holds if the comparison does, and also if nobody can say: the arguments
// are no JSON or have a member twice, the argument is not there or there is one
// whose name has the same letters in another case, or it is nothing that can be
// compared so, such as a text for a number. A guard must not be passed by leaving
// something out, nor by what a tool reads and the guard does not.
type Condition struct {
	// Argument is where it stands: a JSON pointer (RFC 6901) such as /amount or
	// /items/0/price.
	Argument string `json:"argument" yaml:"argument"`
	// Equals is a text, a number, true or false. Numbers are compared by value,
	// exactly: 1 is 1.0 and 1e0. A text that writes a number, true or false is
	// equal to that, and the reverse: so many tools read it.
	Equals any `json:"equals,omitempty" yaml:"equals"`
	// OneOf are such values, of which one has to be equal.
	OneOf []any `json:"one_of,omitempty" yaml:"one_of"`
	// GreaterThan is a number, of any size.
	GreaterThan json.Number `json:"greater_than,omitempty" yaml:"greater_than"`
	// Matches is a regular expression (RE2) that is found in a text.
	Matches string `json:"matches,omitempty" yaml:"matches"`
}

// condition is a [Condition] that was found good.
type condition struct {
	path   []string
	about  string // for reasons
	holds  func(v any) (holds, known bool)
	argues string // what it says of the argument
}

func (c Condition) compile(guard, field string) (condition, error) {
	bad := func(f, format string, args ...any) (condition, error) {
		return condition{}, setting.Errorf(guard, field+f, format, args...)
	}
	out := condition{about: c.Argument}
	if !strings.HasPrefix(c.Argument, "/") || len(c.Argument) > maxText {
		return bad(".argument", "%q is no JSON pointer such as /amount", shorten(c.Argument, maxShown))
	}
	for step := range strings.SplitSeq(c.Argument[1:], "/") {
		out.path = append(out.path, strings.NewReplacer("~1", "/", "~0", "~").Replace(step))
	}
	given := 0
	for _, is := range []bool{c.Equals != nil, c.OneOf != nil, c.GreaterThan != "", c.Matches != ""} {
		if is {
			given++
		}
	}
	if given != 1 {
		return bad("", "has %d comparisons; expected one of equals, one_of, greater_than and matches", given)
	}
	switch {
	case c.GreaterThan != "":
		limit, ok := parseDecimal(c.GreaterThan.String())
		if !ok {
			return bad(".greater_than", "%q is no number", shorten(c.GreaterThan.String(), maxShown))
		}
		out.argues = "more than " + shorten(c.GreaterThan.String(), maxShown)
		out.holds = func(v any) (bool, bool) {
			n, ok := v.(decimal)
			return n.compare(limit) > 0, ok
		}
	case c.Matches != "":
		re, err := pattern.Compile(c.Matches)
		if err != nil {
			return bad(".matches", "%v", err)
		}
		out.argues, out.holds = "what is looked for", matcher(re)
	default:
		wanted, at := c.OneOf, ".one_of"
		if c.Equals != nil {
			wanted, at = []any{c.Equals}, ".equals"
		}
		return out.equal(wanted, func(i int) error {
			if c.Equals == nil {
				at += fmt.Sprintf("[%d]", i)
			}
			return setting.Errorf(guard, field+at, "expected a text, a number, true or false")
		}, func() error {
			return setting.Errorf(guard, field+at, "has %d values; expected 1 to %d", len(wanted), maxListed)
		})
	}
	return out, nil
}

func matcher(re *regexp.Regexp) func(any) (bool, bool) {
	return func(v any) (bool, bool) {
		s, ok := v.(string)
		return re.MatchString(s), ok
	}
}

// equal completes a condition that compares with one of some values.
func (c condition) equal(wanted []any, none func(int) error, many func() error) (condition, error) {
	if len(wanted) == 0 || len(wanted) > maxListed {
		return condition{}, many()
	}
	values := make([]any, len(wanted))
	for i, w := range wanted {
		v, ok := scalar(w)
		if !ok {
			return condition{}, none(i)
		}
		values[i] = v
	}
	c.argues = "one of what people are asked about"
	c.holds = func(v any) (bool, bool) {
		return slices.ContainsFunc(values, func(w any) bool { return equal(v, w) || equal(w, v) }), v != nil
	}
	return c, nil
}

// equal reports whether v is w, or a text that writes it.
func equal(v, w any) bool {
	text, isText := v.(string)
	switch w := w.(type) {
	case decimal:
		n, ok := v.(decimal)
		if isText {
			n, ok = parseDecimal(strings.TrimPrefix(strings.TrimSpace(text), "+"))
		}
		return ok && n.compare(w) == 0
	case bool:
		return v == any(w) || isText && strings.EqualFold(strings.TrimSpace(text), strconv.FormatBool(w))
	}
	return v == w
}

// scalar is a value of a config as arguments are compared with it: a text, a
// decimal or a bool.
func scalar(w any) (any, bool) {
	switch w := w.(type) {
	case json.Number:
		return parsed(w.String())
	case string, bool:
		return w, true
	case float64:
		return parsed(strconv.FormatFloat(w, 'g', -1, 64))
	}
	switch v := reflect.ValueOf(w); {
	case v.CanInt():
		return parsed(strconv.FormatInt(v.Int(), 10))
	case v.CanUint():
		return parsed(strconv.FormatUint(v.Uint(), 10))
	}
	return nil, false
}

func parsed(s string) (any, bool) {
	d, ok := parseDecimal(s)
	return d, ok
}

// met says whether the condition holds of arguments that lookup has read.
// Unknown is why nobody can say, in which case it holds.
func (c condition) met(arguments string) (holds bool, unknown error) {
	v, err := lookup(arguments, c.path)
	if err != nil {
		return true, err
	}
	holds, known := c.holds(v)
	if !known {
		return true, errNotComparable
	}
	return holds, nil
}

var (
	errNotThere      = errors.New("it is not there")
	errNotComparable = errors.New("it is nothing that can be compared so")
	errNotJSON       = errors.New("the arguments are no JSON")
	errTwice         = errors.New("the arguments have a member twice")
	errCase          = errors.New("the arguments have a member of that name in other letters")
)

// lookup is the value at a path in a piece of JSON: a string, a decimal, a bool,
// and nil for null, an object or an array. Of a member that stands twice one
// reader takes this and another that, so there is no saying what it is; nor is
// there where a name differs from a step in case only, since many readers, those
// of Go among them, take it for that.
func lookup(text string, path []string) (any, error) {
	for _, step := range path {
		raw, err := child(text, step)
		if err != nil {
			return nil, err
		}
		text = string(raw)
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	token, err := d.Token()
	if err != nil {
		return nil, errNotJSON
	}
	switch v := token.(type) {
	case string, bool:
		return v, nil
	case json.Number:
		n, _ := parseDecimal(v.String())
		return n, nil
	}
	return nil, nil
}

// child is the member or the element of that name.
func child(text, step string) (json.RawMessage, error) {
	if !json.Valid([]byte(text)) {
		return nil, errNotJSON
	}
	d := json.NewDecoder(strings.NewReader(text))
	begin, _ := d.Token() // it is valid: nothing fails from here on
	object := begin == json.Delim('{')
	if !object && begin != json.Delim('[') {
		return nil, errNotThere
	}
	var found json.RawMessage
	seen := map[string]bool{}
	for i := 0; d.More(); i++ {
		name := strconv.Itoa(i)
		if object {
			token, _ := d.Token()
			name, _ = token.(string)
		}
		switch {
		case seen[name]:
			return nil, errTwice
		case object && name != step && strings.EqualFold(name, step):
			return nil, errCase
		}
		seen[name] = true
		var value json.RawMessage
		_ = d.Decode(&value)
		if name == step {
			found = value
		}
	}
	if found == nil {
		return nil, errNotThere
	}
	return found, nil
}
