package wire

import (
	"encoding/json"
	"strconv"
)

// LenientText is a string, the digits of a number, or nothing if the provider
// sent something else.
type LenientText string

// UnmarshalJSON keeps strings and numbers.
func (t *LenientText) UnmarshalJSON(data []byte) error {
	switch c := data[0]; {
	case c == '"':
		return json.Unmarshal(data, (*string)(t))
	case c == '-' || '0' <= c && c <= '9':
		*t = LenientText(data)
	}
	return nil
}

// Count is a whole number, or 0 if the provider sent something else.
type Count int64

// UnmarshalJSON keeps whole numbers.
func (c *Count) UnmarshalJSON(data []byte) error {
	if n, err := strconv.ParseInt(string(data), 10, 64); err == nil && n > 0 {
		*c = Count(n)
	}
	return nil
}
