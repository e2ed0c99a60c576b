package hooks

import (
	"errors"
	"fmt"
	"net/textproto"
	"slices"
	"strings"
)

// Header is one line of an HTTP header. Values are never stored, only names.
type Header struct {
	// Name is in canonical form, such as X-Trace-Id.
	Name  string `json:"name"`
	Value string `json:"value"`
}

const (
	// MaxHeaders is how many headers hooks may make of a request.
	MaxHeaders = 64
	// MaxHeaderName bounds a name, in bytes.
	MaxHeaderName = 128
	// MaxHeaderValue bounds a value, in bytes.
	MaxHeaderValue = 8 << 10
)

// reserved are the headers that hooks may not set or remove: what the
// transport decides, what names the connection, and what carries credentials.
var reserved = map[string]bool{
	"Accept-Encoding": true, "Connection": true, "Content-Encoding": true, "Content-Length": true, "Expect": true, "Host": true,
	"Http2-Settings": true, "Keep-Alive": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
	"Api-Key": true, "Authorization": true, "Cookie": true, "Set-Cookie": true, "X-Api-Key": true, "X-Goog-Api-Key": true,
}

// CheckHeader says whether a hook may set h: a token that is not reserved, and
// a value of printable ASCII, within the limits. The error names the header,
// if it can be named, and never shows the value.
func CheckHeader(h Header) error {
	if err := checkHeaderName(h.Name); err != nil {
		return err
	}
	if len(h.Value) > MaxHeaderValue {
		return fmt.Errorf("header %s: the value has %d bytes, of %d allowed", h.Name, len(h.Value), MaxHeaderValue)
	}
	for i := range len(h.Value) {
		if b := h.Value[i]; (b < ' ' || b > '~') && b != '\t' {
			return fmt.Errorf("header %s: the value has a byte that is no printable ASCII", h.Name)
		}
	}
	return nil
}

var errHeaderName = errors.New("a header's name must be 1 to 128 letters, digits or any of !#$%&'*+-.^_`|~")

func checkHeaderName(name string) error {
	if name == "" || len(name) > MaxHeaderName {
		return errHeaderName
	}
	for i := range len(name) {
		b := name[i]
		letter := 'a' <= b|0x20 && b|0x20 <= 'z'
		if !letter && (b < '0' || b > '9') && strings.IndexByte("!#$%&'*+-.^_`|~", b) < 0 {
			return errHeaderName
		}
	}
	// Some servers read an underscore as a hyphen.
	if n := textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-")); reserved[n] || strings.HasPrefix(n, "Proxy-") {
		return fmt.Errorf("header %s belongs to the transport or carries credentials: hooks may not change it", n)
	}
	return nil
}

// changeHeaders is headers with what a hook wants of them: first names are
// removed, then set, and of two values for one name the last holds. What
// differs is told by name, without the value.
func changeHeaders(headers, set []Header, remove []string) ([]Header, []change, error) {
	out := slices.Clone(headers)
	for _, name := range remove {
		if err := checkHeaderName(name); err != nil {
			return nil, nil, err
		}
		out = slices.DeleteFunc(out, ofName(textproto.CanonicalMIMEHeaderKey(name)))
	}
	for _, h := range set {
		if err := CheckHeader(h); err != nil {
			return nil, nil, err
		}
		h.Name, h.Value = textproto.CanonicalMIMEHeaderKey(h.Name), strings.Trim(h.Value, " \t")
		switch i := slices.IndexFunc(out, ofName(h.Name)); {
		case i >= 0:
			out[i] = h
		case len(out) >= MaxHeaders:
			return nil, nil, fmt.Errorf("the request would have more than %d headers", MaxHeaders)
		default:
			out = append(out, h)
		}
	}
	slices.SortFunc(out, func(a, b Header) int { return strings.Compare(a.Name, b.Name) })
	return out, diffHeaders(headers, out), nil
}

func ofName(name string) func(Header) bool {
	return func(h Header) bool { return h.Name == name }
}

// diffHeaders says which headers b has otherwise than a.
func diffHeaders(a, b []Header) []change {
	var changes []change
	note := func(op, name string) {
		changes = append(changes, change{field: "headers", op: op, path: "/headers/" + escapePointer(name), untold: true})
	}
	set, remove := headerDifference(a, b)
	for _, name := range remove {
		note(opRemove, name)
	}
	for _, h := range set {
		if slices.ContainsFunc(a, ofName(h.Name)) {
			note(opReplace, h.Name)
		} else {
			note(opAdd, h.Name)
		}
	}
	return changes
}

// headerDifference is what has to be set and removed to get from a to b.
func headerDifference(a, b []Header) (set []Header, remove []string) {
	for _, h := range b {
		if !slices.Contains(a, h) {
			set = append(set, h)
		}
	}
	for _, h := range a {
		if !slices.ContainsFunc(b, ofName(h.Name)) {
			remove = append(remove, h.Name)
		}
	}
	return set, remove
}
