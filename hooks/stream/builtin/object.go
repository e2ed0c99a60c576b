package builtin

import "strings"

// maxDepth is how deep objects and lists in arguments may lie in each other.
const maxDepth = 1_000

// object reads one JSON object byte by byte and tells at the first byte that it
// is none. The zero value has read nothing. It looks at the grammar alone: bytes
// that are no UTF-8 it lets through.
type object struct {
	// open are the brackets that are open: { or [.
	open []byte
	at   place
	// key says that the text which is being read is a key.
	key bool
	// rest is what is missing of true, false or null, hex how many digits of a \u.
	rest string
	hex  int
}

// place is what may come next in an object.
type place uint8

const (
	atStart    place = iota // the { of the object
	atFirstKey              // a key or the end of an object
	atKey
	atColon
	atFirstValue // a value or the end of a list
	atValue
	afterValue // a comma or the end of what is open
	inText
	inEscape
	inHex
	inWord
	// In a number, behind:
	atMinus
	atZero
	atDigits
	atPoint
	atDecimals
	atE
	atSign
	atExponent
	atEnd
)

// next takes in a byte. Ok says that it may stand there; done that the object
// ends with it.
func (o *object) next(b byte) (done, ok bool) {
	switch o.at {
	case inText, inEscape, inHex:
		return false, o.text(b)
	case inWord:
		if o.rest[0] != b {
			return false, false
		}
		if o.rest = o.rest[1:]; o.rest == "" {
			o.at = afterValue
		}
		return false, true
	case atMinus, atZero, atDigits, atPoint, atDecimals, atE, atSign, atExponent:
		if more, ok := o.number(b); more || !ok {
			return false, ok
		}
		o.at = afterValue // and b follows it
	default:
	}
	if blank(b) && o.at != atStart {
		return false, true
	}
	switch o.at {
	case atStart:
		return false, b == '{' && o.enter(b)
	case atFirstKey, atKey:
		if b == '}' && o.at == atFirstKey {
			return o.leave(b)
		}
		o.at, o.key = inText, true
		return false, b == '"'
	case atColon:
		o.at = atValue
		return false, b == ':'
	case atFirstValue:
		if b == ']' {
			return o.leave(b)
		}
		return false, o.value(b)
	case atValue:
		return false, o.value(b)
	case afterValue:
		if b == ',' {
			o.at = atValue
			if o.open[len(o.open)-1] == '{' {
				o.at = atKey
			}
			return false, true
		}
		return o.leave(b)
	default:
		return false, false
	}
}

func blank(b byte) bool { return b == ' ' || b == '\t' || b == '\n' || b == '\r' }

func digit(b byte) bool { return '0' <= b && b <= '9' }

func (o *object) enter(bracket byte) bool {
	o.open = append(o.open, bracket)
	o.at = atFirstKey
	if bracket == '[' {
		o.at = atFirstValue
	}
	return len(o.open) <= maxDepth
}

func (o *object) leave(bracket byte) (done, ok bool) {
	last := len(o.open) - 1
	if bracket != '}' && bracket != ']' || (o.open[last] == '{') != (bracket == '}') {
		return false, false
	}
	o.open = o.open[:last]
	o.at = afterValue
	if last == 0 {
		o.at = atEnd
	}
	return last == 0, true
}

// value takes in the first byte of a value.
func (o *object) value(b byte) bool {
	switch {
	case b == '{' || b == '[':
		return o.enter(b)
	case b == '"':
		o.at, o.key = inText, false
	case b == '-':
		o.at = atMinus
	case b == '0':
		o.at = atZero
	case digit(b):
		o.at = atDigits
	default:
		for _, word := range []string{"true", "false", "null"} {
			if b == word[0] {
				o.at, o.rest = inWord, word[1:]
				return true
			}
		}
		return false
	}
	return true
}

func (o *object) text(b byte) bool {
	switch o.at {
	case inEscape:
		o.at = inText
		if b == 'u' {
			o.at, o.hex = inHex, 4
			return true
		}
		return strings.IndexByte(`"\/bfnrt`, b) >= 0
	case inHex:
		if o.hex--; o.hex == 0 {
			o.at = inText
		}
		return digit(b) || 'a' <= b|0x20 && b|0x20 <= 'f'
	default:
	}
	switch {
	case b == '\\':
		o.at = inEscape
	case b == '"' && o.key:
		o.at = atColon
	case b == '"':
		o.at = afterValue
	}
	return b >= ' '
}

// number takes in a byte if it goes on with the number; otherwise more is false,
// and ok says whether the number may end there.
func (o *object) number(b byte) (more, ok bool) {
	switch at := o.at; {
	case digit(b) && at != atZero:
		switch at {
		case atMinus:
			o.at = atDigits
			if b == '0' {
				o.at = atZero
			}
		case atPoint:
			o.at = atDecimals
		case atE, atSign:
			o.at = atExponent
		default:
		}
		return true, true
	case b == '.' && (at == atZero || at == atDigits):
		o.at = atPoint
		return true, true
	case b|0x20 == 'e' && (at == atZero || at == atDigits || at == atDecimals):
		o.at = atE
		return true, true
	case (b == '+' || b == '-') && at == atE:
		o.at = atSign
		return true, true
	default:
		return false, at == atZero || at == atDigits || at == atDecimals || at == atExponent
	}
}
