package pattern

import (
	"hash/fnv"
	"slices"
	"unicode/utf8"
)

// maxNesting is how deep JSON may be for package encoding/json.
const maxNesting = 10_000

// expects is what may come next in JSON.
type expects uint8

const (
	expectValue expects = iota
	expectValueOrEnd
	expectName
	expectNameOrEnd
	expectColon
	expectComma // or the end of what is open
	inText
	inName
	inScalar // a number, true, false or null
)

// jsonReader reads JSON and redacts what is inside. It is strict, as
// [encoding/json.Valid] is.
type jsonReader struct {
	r      *Redactor
	hold   int
	engine engine
	cover  cover
	next   expects
	levels []level
	// buf is what came from base on, and at is where it goes on.
	buf      []byte
	base, at int
	// token is where the name or scalar at hand begins.
	token int
	err   error
}

// level is an object or an array that is open.
type level struct {
	object bool
	// names are the hashes of those so far, and whether they were changed.
	names map[uint64]bool
}

func newJSONReader(r *Redactor, hold int) *jsonReader {
	return &jsonReader{r: r, hold: hold, engine: newEngine(r.auto, r.programs), cover: r.newCover()}
}

func (j *jsonReader) held() int { return j.base + len(j.buf) - max(j.cover.out, j.cover.open) }

// push takes the next piece and appends what can be given out.
func (j *jsonReader) push(dst []byte, piece string) []byte {
	if j.err != nil {
		return dst
	}
	j.buf = append(j.buf, piece...)
	return j.read(dst, false)
}

// end ends the JSON.
func (j *jsonReader) end(dst []byte) []byte {
	if j.err != nil {
		return dst
	}
	dst = j.read(dst, true)
	if j.err == nil && j.next == inScalar {
		dst = j.scalar(dst)
	}
	if j.err == nil && (j.next != expectComma || len(j.levels) > 0) {
		j.err = ErrBroken
	}
	if j.err != nil {
		return dst
	}
	return j.release(dst, j.at)
}

func (j *jsonReader) read(dst []byte, final bool) []byte {
	for j.err == nil && j.at < j.base+len(j.buf) {
		var more bool
		if dst, more = j.unit(dst, j.buf[j.at-j.base:], final); more {
			break
		}
		if j.at-max(j.cover.out, j.cover.open) > j.hold {
			if dst = j.release(dst, j.settled()); j.at-j.cover.out > j.hold && j.err == nil {
				j.err = &HoldError{j.hold}
			}
		}
	}
	if j.err != nil {
		return dst
	}
	dst = j.release(dst, j.settled())
	if j.cover.out > j.base {
		n := copy(j.buf, j.buf[j.cover.out-j.base:])
		j.buf, j.base = j.buf[:n], j.cover.out
	}
	return dst
}

// settled is up to where things can be given out.
func (j *jsonReader) settled() int {
	switch j.next {
	case inText:
		return j.engine.frontier()
	case inName, inScalar:
		return j.token
	default:
		return j.at
	}
}

func (j *jsonReader) release(dst []byte, upto int) []byte {
	return j.cover.release(dst, j.buf, j.base, upto, j.r.quoted)
}

// unit reads the character that b begins with; more says that it is not whole.
func (j *jsonReader) unit(dst, b []byte, final bool) (_ []byte, more bool) {
	switch j.next {
	case inText:
		return dst, j.inText(b, final)
	case inName:
		return j.inName(dst, b, final)
	case inScalar:
		if isScalar(b[0]) {
			j.at++
			return dst, false
		}
		if dst = j.scalar(dst); j.err != nil {
			return dst, false
		}
	default:
	}
	j.structure(b[0])
	return dst, false
}

// inText reads on in a text that is a value.
func (j *jsonReader) inText(b []byte, final bool) (more bool) {
	if n := j.engine.runQuoted(b[:min(len(b), j.hold-(j.at-max(j.cover.out, j.cover.open)))]); n > 0 {
		j.at += n
		return false
	}
	r, width, ok := j.inside(b, final)
	switch {
	case !ok:
		j.err = ErrBroken
	case width == 0:
		return true
	case r == endOfText:
		j.engine.finish(&j.cover, j.before())
		j.at, j.next = j.at+width, expectComma
	default:
		j.take(r, width)
		j.at += width
	}
	return false
}

func (j *jsonReader) take(r rune, width int) {
	j.engine.step(&j.cover, j.before(), r, width)
}

// before is what stands before the place at which the engine is.
func (j *jsonReader) before() []byte { return j.buf[:j.engine.pos-j.base] }

// endOfText is what [jsonReader.inside] says of a quote.
const endOfText rune = -2

// inside reads a character inside of quotes.
func (j *jsonReader) inside(b []byte, final bool) (r rune, width int, ok bool) {
	switch c := b[0]; {
	case c == '"':
		return endOfText, 1, true
	case c < ' ':
		return 0, 0, false
	case c == '\\':
		return unescape(b, final)
	case c < utf8.RuneSelf:
		return rune(c), 1, true
	}
	r, width = plainUnit(b, final)
	return r, width, true
}

// inName reads on in the name of a member, which is redacted once it is whole.
func (j *jsonReader) inName(dst, b []byte, final bool) (_ []byte, more bool) {
	r, width, ok := j.inside(b, final)
	switch {
	case !ok:
		j.err = ErrBroken
	case width == 0:
		return dst, true
	case r == endOfText:
		dst = j.name(dst)
		j.at, j.next = j.at+width, expectColon
	default:
		j.at += width
	}
	return dst, false
}

// name redacts the name that stands before at.
func (j *jsonReader) name(dst []byte) []byte {
	text := j.buf[j.token+1-j.base : j.at-j.base]
	dst = j.release(dst, j.token+1)
	begin := len(dst)
	j.engine.reset(j.token + 1)
	var plain []byte
	for b := text; len(b) > 0; {
		r, width := escapedUnit(b, true)
		plain = utf8.AppendRune(plain, r)
		j.take(r, width)
		b = b[width:]
	}
	j.engine.finish(&j.cover, j.before())
	changed := len(j.cover.spans) > 0
	if changed {
		dst = j.release(dst, j.at)
		plain = plain[:0]
		for b := dst[begin:]; len(b) > 0; {
			r, width := escapedUnit(b, true)
			plain = utf8.AppendRune(plain, r)
			b = b[width:]
		}
	}
	for range j.levels[len(j.levels)-1].take(plain, changed) {
		dst = j.release(dst, j.at)
		dst = append(dst, '_')
	}
	return dst
}

// take notes a name, and says how many underscores make it another one than
// those before, of which one or it was changed.
func (l *level) take(name []byte, changed bool) (n int) {
	h := fnv.New64a()
	_, _ = h.Write(name) // never fails
	for {
		before, taken := l.names[h.Sum64()]
		if !taken || !before && !changed {
			break
		}
		_, _ = h.Write([]byte("_"))
		n++
	}
	if l.names == nil {
		l.names = map[uint64]bool{}
	}
	l.names[h.Sum64()] = changed || n > 0
	return n
}

func isScalar(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c == '-' || c == '+' || c == '.' || c == 'E'
}

// scalar redacts the number, true, false or null that stands before at.
func (j *jsonReader) scalar(dst []byte) []byte {
	text := j.buf[j.token-j.base : j.at-j.base]
	if !validScalar(text) {
		j.err = ErrBroken
		return dst
	}
	dst = j.release(dst, j.token)
	j.engine.reset(j.token)
	for _, c := range text {
		j.take(rune(c), 1)
	}
	j.engine.finish(&j.cover, j.before())
	if len(j.cover.spans) > 0 {
		dst = append(j.release(append(dst, '"'), j.at), '"')
	}
	j.next = expectComma
	return dst
}

// validScalar reports whether text, of which all characters are those of
// scalars, is one.
func validScalar(text []byte) bool {
	switch string(text) {
	case "true", "false", "null":
		return true
	}
	digits := func() (n int) {
		for n < len(text) && text[n] >= '0' && text[n] <= '9' {
			n++
		}
		text = text[n:]
		return n
	}
	if text[0] == '-' {
		text = text[1:]
	}
	zero := len(text) > 0 && text[0] == '0'
	if n := digits(); n == 0 || zero && n > 1 {
		return false
	}
	if len(text) > 0 && text[0] == '.' {
		if text = text[1:]; digits() == 0 {
			return false
		}
	}
	if len(text) > 0 && text[0]|0x20 == 'e' {
		if text = text[1:]; len(text) > 0 && (text[0] == '+' || text[0] == '-') {
			text = text[1:]
		}
		if digits() == 0 {
			return false
		}
	}
	return len(text) == 0
}

// structure reads a character outside of texts and scalars.
func (j *jsonReader) structure(c byte) {
	switch c {
	case ' ', '\t', '\r', '\n':
		j.at++
		return
	}
	value := j.next == expectValue || j.next == expectValueOrEnd
	inObject := len(j.levels) > 0 && j.levels[len(j.levels)-1].object
	switch {
	case c == '"' && value:
		j.engine.reset(j.at + 1)
		j.next = inText
	case c == '"' && (j.next == expectName || j.next == expectNameOrEnd):
		j.token, j.next = j.at, inName
	case c == '{' && value && len(j.levels) < maxNesting:
		j.levels = append(j.levels, level{object: true})
		j.next = expectNameOrEnd
	case c == '[' && value && len(j.levels) < maxNesting:
		j.levels = append(j.levels, level{})
		j.next = expectValueOrEnd
	case c == '}' && inObject && (j.next == expectNameOrEnd || j.next == expectComma),
		c == ']' && len(j.levels) > 0 && !inObject && (j.next == expectValueOrEnd || j.next == expectComma):
		j.levels = slices.Delete(j.levels, len(j.levels)-1, len(j.levels))
		j.next = expectComma
	case c == ':' && j.next == expectColon:
		j.next = expectValue
	case c == ',' && j.next == expectComma && inObject:
		j.next = expectName
	case c == ',' && j.next == expectComma && len(j.levels) > 0:
		j.next = expectValue
	case isScalar(c) && value:
		j.token, j.next = j.at, inScalar
	default:
		j.err = ErrBroken
		return
	}
	j.at++
}
