package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// MaxLine is the longest line, and the most data of one frame, that is read.
// Above it a call fails, since a truncated tool call must not run.
const MaxLine = 4 << 20

// ErrLineTooLong is what [FrameReader.Next] returns above [MaxLine].
var ErrLineTooLong = fmt.Errorf("the provider sent a line longer than %d bytes", MaxLine)

// Frame is the data of one server-sent event.
type Frame struct {
	// Data is valid until the next frame is read.
	Data []byte
	// Cut says that the input ended inside the frame's last line.
	Cut bool
}

// FrameReader reads server-sent events and gives their data. Comments, other
// fields and frames without data are skipped; LF, CRLF and CR end a line; a
// last frame without a blank line behind it counts. It is not safe for
// concurrent use.
type FrameReader struct {
	lines lineReader
	data  []byte
	err   error
}

// NewFrameReader returns a reader of the frames of r.
func NewFrameReader(r io.Reader) *FrameReader {
	return &FrameReader{lines: lineReader{r: r, buf: make([]byte, 32<<10)}}
}

// Next returns the next frame with a data field. After an error it returns
// that error again; a frame that was begun is returned before its error.
func (f *FrameReader) Next() (Frame, error) {
	f.data = f.data[:0]
	fields := 0
	for f.err == nil {
		line, whole, err := f.lines.next()
		f.err = err
		if whole && len(line) == 0 {
			if fields > 0 {
				return Frame{Data: f.data}, nil
			}
			continue
		}
		value, ok := dataField(line)
		if !ok {
			continue
		}
		if fields > 0 {
			f.data = append(f.data, '\n')
		}
		fields++
		if f.data = append(f.data, value...); len(f.data) > MaxLine {
			f.err = ErrLineTooLong
			return Frame{}, f.err
		}
		if !whole {
			return Frame{Data: f.data, Cut: true}, nil
		}
	}
	if fields > 0 && !errors.Is(f.err, ErrLineTooLong) {
		return Frame{Data: f.data}, nil
	}
	return Frame{}, f.err
}

func dataField(line []byte) (value []byte, ok bool) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	if string(name) != "data" {
		return nil, false
	}
	return bytes.TrimPrefix(value, []byte(" ")), true
}

// lineReader cuts its input into lines, however the network cut it.
type lineReader struct {
	r    io.Reader
	buf  []byte
	rest []byte // what is read and not yet taken
	line []byte
	// skipLF: the last line ended with CR, so an LF at once belongs to it.
	skipLF  bool
	started bool
	err     error
}

// next returns a line without its end, valid until the next call. whole is
// false for text that the input ended in; an error comes with it.
func (l *lineReader) next() (line []byte, whole bool, err error) {
	l.line = l.line[:0]
	for {
		if len(l.rest) == 0 {
			if l.err != nil {
				return l.line, false, l.err
			}
			l.fill()
			continue
		}
		if l.skipLF {
			l.skipLF = false
			if l.rest[0] == '\n' {
				l.rest = l.rest[1:]
				continue
			}
		}
		end := lineEnd(l.rest)
		part := l.rest
		if end >= 0 {
			part = l.rest[:end]
		}
		if len(l.line)+len(part) > MaxLine {
			l.err = ErrLineTooLong
			return nil, false, l.err
		}
		l.line = append(l.line, part...)
		if end < 0 {
			l.rest = nil
			continue
		}
		l.skipLF = l.rest[end] == '\r'
		l.rest = l.rest[end+1:]
		return l.firstWithoutMark(), true, nil
	}
}

// lineEnd is the index of the first CR or LF, -1 if there is none, as
// bytes.IndexAny finds it a byte at a time.
func lineEnd(text []byte) int {
	lf := bytes.IndexByte(text, '\n')
	if lf >= 0 {
		text = text[:lf]
	}
	if cr := bytes.IndexByte(text, '\r'); cr >= 0 {
		return cr
	}
	return lf
}

func (l *lineReader) fill() {
	n, err := l.r.Read(l.buf)
	l.rest, l.err = l.buf[:n], err
}

// firstWithoutMark takes the byte order mark off the first line.
func (l *lineReader) firstWithoutMark() []byte {
	if l.started {
		return l.line
	}
	l.started = true
	return bytes.TrimPrefix(l.line, []byte("\xEF\xBB\xBF"))
}
