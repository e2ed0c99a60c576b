package pattern

import "errors"

// ErrBroken is of a text that is not JSON where some of it has been given out as
// JSON already.
var ErrBroken = errors.New("what was taken for JSON is none")

// JSONStream redacts a piece of JSON that arrives in pieces: the texts in it and
// the names of members, as they are read and not as they are written, and numbers,
// true, false and null, which become a text if something is found in them. What
// nothing is found in keeps its bytes, white space included, and what was JSON
// stays it. Two names that become one stay two.
//
// What is no JSON is redacted as a text, as it is written and as its escapes
// would be read. That can only be said at its end, so the first bytes of it, as
// many as may be held back, are held back until then or until there are more;
// when it turns out later the error is [ErrBroken].
//
// It is not safe for concurrent use. Behind an error it gives out nothing more.
type JSONStream struct {
	r     *Redactor
	hold  int
	whole int
	// json reads it as JSON, until it is known to be none. text does from then on.
	json *jsonReader
	text *TextStream
	// raw is what came and ready what json has given out, until it is decided.
	raw     []byte
	ready   []byte
	decided bool
	err     error
}

// JSON begins a piece of JSON. hold is how many bytes are held back at most of
// what can be a match; 0, and more than [MaxHold], are MaxHold, and so many are
// held back at the beginning.
func (r *Redactor) JSON(hold int) *JSONStream { return r.json(limit(hold), MaxHold) }

func (r *Redactor) json(hold, whole int) *JSONStream {
	return &JSONStream{r: r, hold: hold, whole: whole, json: newJSONReader(r, hold)}
}

// Push takes the next piece and appends to dst what can be given out. The error
// is a [*HoldError] or [ErrBroken].
func (s *JSONStream) Push(dst []byte, piece string) ([]byte, error) {
	if s.err != nil {
		return dst, s.err
	}
	if s.text != nil {
		dst, s.err = s.text.Push(dst, piece)
		return dst, s.err
	}
	if !s.decided {
		s.raw = append(s.raw, piece...)
	}
	s.ready = s.json.push(s.ready, piece)
	return s.settle(dst)
}

// End ends it and appends the rest. The errors are those of Push.
func (s *JSONStream) End(dst []byte) ([]byte, error) {
	if s.err != nil {
		return dst, s.err
	}
	if s.text == nil {
		s.ready = s.json.end(s.ready)
		s.decided = s.decided || s.json.err == nil
		if dst, s.err = s.settle(dst); s.err != nil || s.text == nil {
			return dst, s.err
		}
	}
	dst, s.err = s.text.End(dst)
	return dst, s.err
}

// settle gives out what can be after json has read something.
func (s *JSONStream) settle(dst []byte) ([]byte, error) {
	long := s.json.at > s.whole
	switch err := s.json.err; {
	case errors.Is(err, ErrBroken) && !long && !s.decided:
		s.text = s.r.text(s.hold, plainUnit, escapedUnit)
		s.json, s.ready = nil, nil
		dst, s.err = s.text.Push(dst, string(s.raw))
		s.raw = nil
		return dst, s.err
	case err == nil && !long && !s.decided:
		return dst, nil
	case err != nil:
		s.err, s.json, s.ready, s.raw = err, nil, nil, nil
		return dst, err
	}
	s.decided, s.raw = true, nil
	dst = append(dst, s.ready...)
	s.ready = s.ready[:0]
	return dst, nil
}

// Held is how many bytes are held back.
func (s *JSONStream) Held() int {
	switch {
	case s.text != nil:
		return s.text.Held()
	case s.json == nil || s.err != nil:
		return 0
	case s.decided:
		return s.json.held()
	}
	return len(s.raw)
}

// Owes is as [TextStream.Owes].
func (s *JSONStream) Owes() bool {
	switch {
	case s.text != nil:
		return s.text.Owes()
	case s.decided:
		return s.Held() > 0 && s.json.settled() >= s.json.cover.open
	}
	return s.Held() > 0
}

func (s *JSONStream) counts() []int {
	switch {
	case s.text != nil:
		return s.text.counts()
	case s.json != nil:
		return s.json.cover.counts
	}
	return nil
}
